"""Runs as files: Arrow's IPC format, uncompressed, so that a file can be mapped into memory and searched there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import google_crc32c
import pyarrow as pa

from holdfast.spark.pipelines.aggregate.aggregate_settings import AggregateSettings
from holdfast.spark.pipelines.aggregate.errors import RunMissing
from holdfast.spark.pipelines.aggregate.totals import Run
from holdfast.spark.pipelines.aggregate.version import RunFile
from holdfast.spark.pipelines.errors import Damaged, TooNew

FORMAT: Final = 1
_FORMAT_KEY: Final = b"holdfast.format"
_PIECE: Final = 8 * 1024 * 1024


def encode_run(table: pa.Table, settings: AggregateSettings) -> bytes:
    sink = pa.BufferOutputStream()
    schema = settings.schema.with_metadata({_FORMAT_KEY: str(FORMAT)})
    with pa.ipc.new_file(sink, schema) as writer:
        for batch in table.combine_chunks().to_batches():
            writer.write_batch(batch.cast(schema))
    return bytes(sink.getvalue().to_pybytes())


def run_file_of(name: str, table: pa.Table, content: bytes) -> RunFile:
    return RunFile(name, table.num_rows, len(content), google_crc32c.value(content))


def open_run(path: Path, settings: AggregateSettings) -> Run:
    """Maps the file instead of reading it. Its content was checked when it was cached."""
    try:
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
    except FileNotFoundError as error:
        raise RunMissing(path) from error
    except pa.ArrowInvalid as error:
        raise damaged(path, "it is no Arrow") from error
    found = int((table.schema.metadata or {}).get(_FORMAT_KEY, b"0"))
    if found > FORMAT:
        raise TooNew.because(str(path), found, FORMAT)
    if not table.schema.equals(settings.schema):
        raise damaged(path, "it has other columns than the settings say")
    return Run.of(table)


def pieces(path: Path) -> Iterable[bytes]:
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece
    except FileNotFoundError as error:
        raise RunMissing(path) from error


def is_whole(path: Path, run: RunFile) -> bool:
    """Whether size and checksum are those that were written."""
    crc = size = 0
    for piece in pieces(path):
        crc = google_crc32c.extend(crc, piece)
        size += len(piece)
    return (size, crc) == (run.size_bytes, run.crc32c)


def damaged(path: Path, why: str) -> Damaged:
    return Damaged(
        f"{path} is no run of a state ({why}): it was changed after it was written. Restore it from a backup, or "
        "start a new state; nothing was changed"
    )
