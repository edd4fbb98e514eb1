"""A disk that refuses while a log is compacted: nothing is lost, and the next compaction makes good for it."""

from pathlib import Path

import pytest

from holdfast.log import compaction, disk
from holdfast.log.errors import StorageError
from tests.unit.log.keyed_logs import (
    COMPACT,
    HOUR_MS,
    History,
    Shape,
    check,
    config,
    copy,
    filled,
    keyed,
    reopened,
    shape,
)
from tests.unit.log.samples import NOW_MS, append, open_log

pytestmark = pytest.mark.usefixtures("no_syncs")


def test_a_fault_of_the_disk_costs_nothing_but_the_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given the points at which a compaction touches the disk
    names: list[str] = []
    log, history = filled(tmp_path)
    log.flush()
    monkeypatch.setattr(disk, "fault", names.append)
    assert log.compact(NOW_MS) is not None
    assert {"half written", "before rename", "renamed", "before unlink", "before directory sync"} <= set(names)

    for number in range(1, len(names) + 1):
        (tmp_path / f"{number}").mkdir()
        monkeypatch.setattr(disk, "fault", None)
        log, history = filled(tmp_path / f"{number}")
        log.flush()

        # when the disk refuses at one of them
        monkeypatch.setattr(disk, "fault", failing_once(number))
        with pytest.raises(StorageError):
            log.compact(NOW_MS)
        monkeypatch.setattr(disk, "fault", None)

        # then nothing is missing, neither now nor after a kill, and the next compaction makes good for it
        check(log, history)
        check(open_log(copy(log, tmp_path / f"copy-{number}"), COMPACT), history)
        log.apply_retention(NOW_MS)
        done = log.compact(NOW_MS)
        assert done is not None
        assert done.records_after == 4
        assert shape(log).others == []
        assert len(shape(log).logs) == log.segment_count
        check(reopened(log), history)


def test_a_swap_that_is_finished_the_second_time_leaves_its_indexes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a swap of which all is done, indexes included, but for the old snapshots
    names: list[str] = []
    (tmp_path / "calm").mkdir()
    log, _ = filled(tmp_path / "calm")
    log.flush()
    monkeypatch.setattr(disk, "fault", names.append)
    assert log.compact(NOW_MS) is not None
    in_place = names.index("renamed", names.index("renamed") + 1)
    monkeypatch.setattr(disk, "fault", None)
    log, history = filled(tmp_path)
    log.flush()
    monkeypatch.setattr(disk, "fault", failing_once(names.index("before unlink", in_place) + 1))
    with pytest.raises(StorageError, match="finish compacting"):
        log.compact(NOW_MS)
    monkeypatch.setattr(disk, "fault", None)

    # when the rest is done
    log.apply_retention(NOW_MS)

    # then
    assert all(path.exists() for segment in log.segments[:-1] for path in segment.paths)
    check(log, history)


@pytest.mark.parametrize("refused", ["the first place", "the indexes"])
def test_retention_deletes_what_it_can_beside_a_swap_that_cannot_be_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """A full disk: what retention deletes makes the room that the swap waits for, and never comes back with it."""
    # given a compaction whose disk is full from the given point on
    log, _ = filled(tmp_path)
    log.flush()
    renames: list[str] = []

    def full(point: str) -> None:
        if point == "renamed":
            renames.append(point)
        is_reached = len(renames) == (1 if refused == "the first place" else 2)
        if is_reached and point in ("before rename", "half written"):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "fault", full)
    with pytest.raises(StorageError, match="finish compacting"):
        log.compact(NOW_MS)
    before = log.segment_count

    # when everything but the active segment is before the start
    log.delete_records_before(log.segments[-1].base_offset)
    deleted = log.apply_retention(NOW_MS)

    # then a segment that has its place goes, one that has not waits for it
    if refused == "the indexes":
        assert len(deleted) == before - 1
    else:
        assert deleted == []
    monkeypatch.setattr(disk, "fault", None)
    log.apply_retention(NOW_MS)
    assert log.segment_count == 1
    assert shape(log) == Shape([log.segments[0].path.name], [])
    again = open_log(copy(log, tmp_path / "copy"), COMPACT)
    assert (again.start_offset, again.end_offset) == (log.start_offset, log.end_offset)


def test_a_disk_that_fails_while_it_is_looked_what_to_compact_is_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = filled(tmp_path)

    def faulty(*_: object) -> bool:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(compaction, "wants_roll", faulty)
    with pytest.raises(StorageError, match=r"cannot compact .*t-0: Input/output error"):
        log.compact(NOW_MS)


def test_a_failed_write_before_a_roll_leaves_no_torn_batch_in_a_closed_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a write that fails half way, and a disk that refuses the truncation too
    log, history = open_log(tmp_path / "t-0", config(max_compaction_lag_ms=HOUR_MS)), History()
    history.put(log, [(b"key", b"value")])

    def fault(point: str) -> None:
        if point in ("half written", "before truncate"):
            raise OSError(5, "faulty")

    monkeypatch.setattr(disk, "fault", fault)
    with pytest.raises(StorageError):
        append(log, keyed([(b"key", b"torn")]))
    monkeypatch.setattr(disk, "fault", None)

    # when compaction closes the segment
    log.compact(NOW_MS + 2 * HOUR_MS)

    # then
    history.put(log, [(b"other", b"value")])
    check(log, history)
    check(open_log(copy(log, tmp_path / "copy"), COMPACT), history)


def failing_once(number: int):  # type: ignore[no-untyped-def]
    left = [number]

    def fault(_: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise OSError(28, "No space left on device")

    return fault
