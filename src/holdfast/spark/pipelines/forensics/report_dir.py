"""The directory of a report: it is replaced atomically."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyarrow import parquet as pq

from holdfast.client.errors import ConfigError, HoldfastError
from holdfast.spark.pipelines.forensics.tables import TABLES

REPORT_FILE: Final = "report.json"
PAGE_FILE: Final = "timeline.html"
FORMAT: Final = 1
_DISK_FULL: Final = {errno.ENOSPC, errno.EDQUOT}


class ReportUnwritable(HoldfastError):
    """The file system returned an error."""

    RETRIABLE = True

    @classmethod
    def because(cls, path: Path, error: OSError) -> ReportUnwritable:
        why = error.strerror or str(error)
        what = f"there is no room left for {path} ({why})" if error.errno in _DISK_FULL else f"{path}: {why}"
        return cls(f"{what}; nothing was written there, and an earlier report stays")


def checked_path(text: str | os.PathLike[str]) -> Path:
    """The directory, absolute. Raises ConfigError if it is not a directory, or contains something else."""
    given = os.fspath(text)
    if not given or "://" in given:
        raise ConfigError(
            f"{given!r}: the report needs a directory that driver and executors can write, local or mounted"
        )
    path = Path(given).absolute()
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{path} is a file: give a directory for the report")
    if path.is_dir() and any(path.iterdir()) and not _is_report(path):
        raise ConfigError(
            f"{path} contains something else than a report: give a new directory, or that of an earlier report"
        )
    return path


def _is_report(path: Path) -> bool:
    try:
        report = json.loads((path / REPORT_FILE).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(report, dict) and "forensics" in report


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """A directory beside `out`, which is renamed to it when the block succeeds, and deleted when it fails."""
    unfinished = out.with_name(f".{out.name}.unfinished-{uuid.uuid4().hex}")
    try:
        unfinished.mkdir(parents=True)
        yield unfinished
        _publish(unfinished, out)
    except OSError as error:
        raise ReportUnwritable.because(out, error) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _publish(unfinished: Path, out: Path) -> None:
    _sync(unfinished)
    old = out.with_name(f".{out.name}.replaced-{uuid.uuid4().hex}")
    try:
        out.rename(old)
    except FileNotFoundError:
        unfinished.rename(out)
        return
    try:
        unfinished.rename(out)
    except OSError:
        with contextlib.suppress(OSError):
            old.rename(out)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _sync(directory: Path) -> None:
    """Flushes all files in it, and then the directory itself, to the device. Neither pyarrow nor delta-rs does this."""
    for path in [*directory.rglob("*"), directory]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def keep_only(directory: Path, files: Collection[str]) -> None:
    """Deletes files that no task reported, of tasks that were run again. An empty table gets a file without rows,
    from which a program that reads only Parquet learns the columns."""
    for name, schema in TABLES.items():
        table = directory / name
        table.mkdir(exist_ok=True)
        for path in table.iterdir():
            if f"{name}/{path.name}" not in files:
                path.unlink()
        if not any(table.iterdir()):
            pq.write_table(schema.empty_table(), table / "empty.parquet")
