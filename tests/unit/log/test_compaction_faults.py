"""A disk that refuses while a log is compacted: nothing is lost, and the next compaction makes good for it."""

from pathlib import Path

import pytest

from holdfast.log import disk
from holdfast.log.errors import StorageError
from tests.unit.log.keyed import COMPACT, HOUR_MS, History, check, config, copy, filled, keyed, reopened, shape
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
    assert all(path.exists() for segment in log._segments[:-1] for path in segment.paths)
    check(log, history)


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
