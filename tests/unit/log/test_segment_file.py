"""Segment files that stay open, and those that do not."""

import os
import resource
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.log import segment_file
from holdfast.log.segment_file import SegmentFile
from tests.unit.log.keyed_logs import COMPACT, keyed, values
from tests.unit.log.samples import NOW_MS, append, contents, fill, open_log

LIMIT = 5


@pytest.fixture(autouse=True)
def _few_stay_open() -> Iterator[None]:
    before = segment_file._kept_open.limit
    segment_file.keep_open(LIMIT)
    yield
    segment_file._kept_open.limit = before


def open_files(directory: Path) -> list[Path]:
    """The files below `directory` that this process has open."""
    links = [Path(entry.path) for entry in os.scandir("/proc/self/fd")]
    targets = [link.readlink() for link in links if os.path.lexists(link)]
    return [target for target in targets if target.is_relative_to(directory)]


@pytest.mark.parametrize(
    ("allowed", "kept"), [(256, 128), (1024, 512), (1_000_000, 4096), (resource.RLIM_INFINITY, 4096)]
)
def test_half_of_what_the_process_may_open_is_for_segments(
    monkeypatch: pytest.MonkeyPatch, allowed: int, kept: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (allowed, allowed))

    assert segment_file._KeptOpen()._limit() == kept


def test_only_so_many_files_stay_open_and_every_record_is_read(tmp_path: Path) -> None:
    # given more segments than files may stay open, in several logs
    logs = [open_log(tmp_path / f"t-{number}") for number in range(4)]
    stored = [fill(log, 60) for log in logs]
    assert sum(log.segment_count for log in logs) > 4 * LIMIT

    # when all is read, by turns
    readings = [[log.read(offset, 1) for log in logs] for offset in range(0, 120, 5)]

    # then what was read is right, and no more files than allowed stay open once it is let go
    held = len(open_files(tmp_path))
    assert all(region is not None and region.read() for reading in readings for region in reading)
    assert [contents(log) for log in logs] == stored
    assert held > LIMIT
    readings.clear()
    assert len(open_files(tmp_path)) <= LIMIT


def test_a_region_is_read_although_its_file_was_let_go_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"content")
    file = SegmentFile(path)
    held = file.opened()

    file.let_go()
    path.unlink()

    assert os.pread(held.fd, 7, 0) == b"content"
    assert file.opened() is held, "what somebody holds need not be opened again"


def test_a_file_that_was_replaced_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    path, other = tmp_path / "segment", tmp_path / "other"
    path.write_bytes(b"old")
    other.write_bytes(b"new")
    file = SegmentFile(path)
    file.let_go()
    assert os.pread(file.opened().fd, 3, 0) == b"old"

    file.let_go()
    other.replace(path)

    with pytest.raises(FileNotFoundError):
        file.opened()


def test_a_read_that_races_with_a_deletion_is_out_of_range_or_finds_the_next(
    tmp_path: Path,
) -> None:
    # given a reader that took the list of segments, and a retention that then removed the first of them
    log = open_log(tmp_path / "t-0")
    fill(log, 60)
    before = log.segments
    first_left = before[2].base_offset
    log.delete_records_before(first_left)
    assert len(log.apply_retention(NOW_MS)) == 2
    for segment in before:
        segment.file.let_go()

    # when it goes on with the old list, then the file is missing, and with the new one it finds what is there
    with pytest.raises(FileNotFoundError):
        before[0].read(0, 100, at_least_one=True)
    found = log.read(first_left, 100)
    assert found is not None
    assert int.from_bytes(found.read()[:8]) == first_left


def test_compaction_and_readers_get_along_with_one_open_file(tmp_path: Path) -> None:
    # given a log of many small segments, and a reader of its first half
    segment_file.keep_open(1)
    log = open_log(tmp_path / "t-0", replace(COMPACT, segment_bytes=2000))
    for number in range(200):
        append(log, keyed([(b"key-%d" % (number % 10), b"%d " % number * 20)]))
    expected = values(log)
    assert log.segment_count > 10
    reader = log.batches_from(0)
    before = [next(reader) for _ in range(3)]

    # when it is compacted while the reader is under way
    done = log.compact(NOW_MS)

    # then the reader reads on in what it began with, and everybody else in what is left
    assert done is not None
    assert done.records_after < 60
    assert len(before) + len(list(reader)) == 200
    assert values(log) == expected
    log.close()
    assert values(open_log(tmp_path / "t-0", COMPACT, clean=True)) == expected
