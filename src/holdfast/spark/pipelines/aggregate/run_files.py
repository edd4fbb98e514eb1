"""Runs as files: Arrow's IPC format, uncompressed, so that a file can be mapped into memory and searched there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import google_crc32c
import pyarrow as pa

from holdfast.spark.pipelines.aggregate.aggregate_settings import AggregateSettings
from holdfast.spark.pipelines.aggregate.errors import RunMissing
from holdfast.spark.pipelines.aggregate.totals import Run
from holdfast.spark.pipelines.aggregate.version import RunFile
from holdfast.spark.pipelines.errors import Damaged, TooNew
from holdfast.spark.pipelines.shared_files import PIECE, SharedFiles

FORMAT: Final = 1
_FORMAT_KEY: Final = b"holdfast.format"


def encode_run(table: pa.Table, settings: AggregateSettings) -> bytes:
    sink = pa.BufferOutputStream()
    schema = settings.schema.with_metadata({_FORMAT_KEY: str(FORMAT)})
    with pa.ipc.new_file(sink, schema) as writer:
        for batch in table.combine_chunks().to_batches():
            writer.write_batch(batch.cast(schema))
    return bytes(sink.getvalue().to_pybytes())


def run_file_of(name: str, table: pa.Table, content: bytes) -> RunFile:
    return RunFile(name, table.num_rows, len(content), google_crc32c.value(content))


class StoredRun(NamedTuple):
    """A run in the state, which may be on a disk or in an object store."""

    files: SharedFiles
    name: str

    def __str__(self) -> str:
        return self.files.shown(self.name)

    def pieces(self) -> Iterator[bytes]:
        """Raises RunMissing."""
        try:
            yield from self.files.pieces(self.name)
        except FileNotFoundError as error:
            raise RunMissing(str(self)) from error

    def load(self, run: RunFile, settings: AggregateSettings) -> Run:
        """The run, after its content was checked. Raises Damaged or RunMissing."""
        path = self.files.path(self.name)
        content = None if path is not None else b"".join(self.pieces())
        is_whole = _matches(self.pieces() if content is None else [content], run)
        if not is_whole:
            raise damaged(self, "it has other bytes than were written")
        return open_run(path, settings) if path is not None else _decode(pa.BufferReader(content), self, settings)


def open_run(path: Path, settings: AggregateSettings) -> Run:
    """Maps the file instead of reading it. Its content was checked when it was cached."""
    try:
        source = pa.memory_map(str(path))
    except FileNotFoundError as error:
        raise RunMissing(path) from error
    return _decode(source, path, settings)


def _decode(source: pa.NativeFile, shown: Path | StoredRun, settings: AggregateSettings) -> Run:
    try:
        with source:
            table = pa.ipc.open_file(source).read_all()
    except pa.ArrowInvalid as error:
        raise damaged(shown, "it is no Arrow") from error
    found = int((table.schema.metadata or {}).get(_FORMAT_KEY, b"0"))
    if found > FORMAT:
        raise TooNew.because(str(shown), found, FORMAT)
    if not table.schema.equals(settings.schema):
        raise damaged(shown, "it has other columns than the settings say")
    return Run.of(table)


def is_whole(path: Path, run: RunFile) -> bool:
    """Whether size and checksum are those that were written."""
    with path.open("rb") as file:
        return _matches(iter(lambda: file.read(PIECE), b""), run)


def _matches(pieces: Iterable[bytes], run: RunFile) -> bool:
    crc = size = 0
    for piece in pieces:
        crc = google_crc32c.extend(crc, piece)
        size += len(piece)
    return (size, crc) == (run.size_bytes, run.crc32c)


def damaged(shown: Path | StoredRun, why: str) -> Damaged:
    return Damaged(
        f"{shown} is no run of a state ({why}): it was changed after it was written. Restore it from a backup, or "
        "start a new state; nothing was changed"
    )
