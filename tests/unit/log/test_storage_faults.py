"""A disk that refuses: all or nothing is stored, and the log works again when space returns."""

import errno
import io
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.log import disk
from holdfast.log.errors import StorageError
from holdfast.wire.records import decode_batch
from tests.unit.log.samples import TINY, append, contents, fill, open_log, sample

UNINDEXED = replace(TINY, segment_bytes=100_000)
"""All records are in the active segment, whose time index is read when it is needed."""


class FailingAt:
    """Raises at the named points, as often as given."""

    def __init__(self, *points: str, error: int = errno.ENOSPC) -> None:
        self.points = points
        self.error = error
        self.hits = 0

    def __call__(self, point: str) -> None:
        if point in self.points:
            self.hits += 1
            raise OSError(self.error, os.strerror(self.error))


@contextmanager
def faulty(fault: FailingAt) -> Iterator[FailingAt]:
    disk.fault = fault
    try:
        yield fault
    finally:
        disk.fault = None
    assert fault.hits, "the fault was never reached"


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("point", ["before write", "half written", "written"])
def test_a_failed_append_leaves_nothing(tmp_path: Path, point: str, error: int) -> None:
    log = open_log(tmp_path / "t-0")
    stored = fill(log, 3)
    files = {path: path.read_bytes() for path in log.directory.iterdir()}

    with faulty(FailingAt(point, error=error)), pytest.raises(StorageError) as refusal:
        append(log, sample(2, producer_id=1, sequence=0))

    assert refusal.value.errno == error
    assert {path: path.read_bytes() for path in log.directory.iterdir()} == files
    assert contents(log) == stored
    # and when space returns it goes on, with the same offset and the same sequence
    again = append(log, sample(2, producer_id=1, sequence=0))
    assert (again.base_offset, again.duplicate) == (log.end_offset - 2, False)


def test_an_append_that_cannot_read_the_time_index_stores_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a log that was opened again and has not read its time index, and no file descriptors
    log = open_log(tmp_path / "t-0", UNINDEXED)
    stored = fill(log, 20)
    log.close()
    log = open_log(tmp_path / "t-0", UNINDEXED, clean=True)
    opened = io.open

    def exhausted(path: object, *arguments: object, **options: object) -> object:
        if str(path).endswith(".timeindex"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return opened(path, *arguments, **options)  # type: ignore[call-overload]  # whatever it was called with

    # when
    with monkeypatch.context() as patch, pytest.raises(StorageError) as refusal:
        patch.setattr(io, "open", exhausted)
        for _ in range(20):
            append(log, sample(2))

    # then the log goes on when there are some again
    assert refusal.value.errno == errno.EMFILE
    assert contents(log) == stored
    assert log.segments[-1].path.stat().st_size == log.segments[-1].size
    assert append(log, sample(2)).base_offset == log.end_offset - 2


def test_a_tail_that_cannot_be_cut_is_cut_before_the_next_append(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    stored = fill(log, 2)
    with faulty(FailingAt("half written", "before truncate")), pytest.raises(StorageError):
        append(log, sample(3, value=b"never acknowledged"))
    with faulty(FailingAt("before truncate")), pytest.raises(StorageError):
        append(log, sample())

    batch = sample()
    append(log, batch)

    assert contents(log) == [*stored, bytes(batch[0].data)]
    log.close(clean=False)
    assert contents(open_log(tmp_path / "t-0")) == [*stored, bytes(batch[0].data)]


def test_a_roll_that_fails_leaves_the_old_segment_in_use(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    append(log, sample(value=bytes(800)))

    with faulty(FailingAt("before create")), pytest.raises(StorageError):
        append(log, sample(value=bytes(800)))
    assert log.segment_count == 1

    assert append(log, sample(value=bytes(800))).base_offset == 1
    assert log.segment_count == 2


@pytest.mark.parametrize("point", ["before write", "half written", "before rename", "before directory sync"])
def test_a_failed_flush_promises_nothing_and_can_be_repeated(tmp_path: Path, point: str) -> None:
    log = open_log(tmp_path / "t-0")
    stored = fill(log, 20)

    with faulty(FailingAt(point, error=errno.EIO)), pytest.raises(StorageError):
        log.flush()
    assert log.recovery_point == 0
    assert log.needs_flush

    assert log.flush() == log.end_offset
    log.close(clean=False)
    assert contents(open_log(tmp_path / "t-0", recovery_point=log.recovery_point)) == stored


def test_after_a_failed_sync_only_a_new_start_shows_what_is_stored(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    stored = fill(log, 3)
    with faulty(FailingAt("before fdatasync", error=errno.EIO)), pytest.raises(StorageError):
        log.flush()

    # A second sync would succeed and promise what the first one lost.
    with pytest.raises(StorageError, match="sync failed"):
        log.flush()
    with pytest.raises(StorageError, match="sync failed"):
        append(log, sample())
    assert contents(log) == stored, "what is there can be read"
    log.close(clean=False)
    assert append(open_log(tmp_path / "t-0"), sample()).base_offset == log.end_offset


def test_a_real_limit_of_the_file_system_cuts_the_file_back(tmp_path: Path) -> None:
    # given a limit on file sizes in the middle of the next batch: the kernel writes a part of it
    log = open_log(tmp_path / "t-0", TINY)
    stored = fill(log, 1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.size_bytes + 100, before[1]))

    # when
    try:
        with pytest.raises(StorageError) as refusal:
            append(log, sample(value=bytes(500)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    # then
    assert refusal.value.errno == errno.EFBIG
    (segment,) = log.directory.glob("*.log")
    assert segment.read_bytes() == b"".join(stored)
    assert append(log, sample(value=bytes(500))).base_offset == 1


def test_a_directory_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "t-0").write_text("a file is in the way")

    with pytest.raises(StorageError, match="t-0"):
        open_log(tmp_path / "t-0")


@pytest.mark.parametrize("refuses_still", [False, True])
def test_a_torn_tail_does_not_outlive_a_clean_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses_still: bool
) -> None:
    """A log that was closed properly is trusted to its last byte: what is appended behind a torn batch is lost."""
    # given a write that fails half way, and a disk that refuses the truncation too
    log = open_log(tmp_path / "t-0")
    fill(log, 3)

    def faulty(point: str) -> None:
        if point in ("half written", "before truncate"):
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(disk, "fault", faulty)
    with pytest.raises(StorageError):
        append(log, sample(value=b"torn" * 10))

    # when it is closed
    if refuses_still:
        with pytest.raises(StorageError, match="cannot close"):
            log.close()
    monkeypatch.setattr(disk, "fault", None)
    if not refuses_still:
        log.close()

    # then what comes after it is found: the log was closed whole, or is looked at as after a kill
    end_offset = log.end_offset
    log = open_log(log.directory, clean=not refuses_still)
    assert append(log, sample(value=b"after it")).base_offset == end_offset
    assert decode_batch(contents(log)[3])[0].value == b"after it"
    log.close()
    assert open_log(log.directory, clean=True).end_offset == end_offset + 1
