"""kill -9 at every place where a compaction writes, and again where the start after it does."""

import functools
import itertools
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.log import disk
from holdfast.log.data_directory import DataDirectory
from holdfast.log.partition_log import PartitionLog
from holdfast.wire.records import Record, decode_batch
from tests.unit.log.keyed_logs import COMPACT, HOUR_MS, History, check, found, keyed, shape, values
from tests.unit.log.samples import NOW_MS, append
from tests.unit.log.test_kill_points import check_indexes

pytestmark = pytest.mark.usefixtures("no_syncs")

TOPIC = ("keys", 0)
PRODUCER = 77
KEYS = 7
# So that the test can be spread over several workers.
PARTS = 2


def start(path: Path) -> tuple[DataDirectory, PartitionLog]:
    directory = DataDirectory.open(path, node_id=1)
    return directory, directory.open_log(*TOPIC, COMPACT, now_ms=NOW_MS)


def write(log: PartitionLog, numbers: Iterator[int], count: int) -> None:
    """The n-th batch writes one key and, each fifth time, deletes another; the same bytes in every run."""
    for number in itertools.islice(numbers, count):
        append(log, keyed(numbered(number), producer_id=PRODUCER, sequence=2 * number))


def numbered(number: int) -> list[tuple[bytes | None, bytes | None]]:
    second = None if number % 5 == 0 else b"second %d" % number
    return [(b"key-%d" % (number % KEYS), b"value %d" % number), (b"key-%d" % (number * 3 % KEYS), second)]


def prepare(path: Path) -> int:
    """A log of many segments, partly compacted before; returns how many batches it has."""
    directory, log = start(path)
    numbers = itertools.count()
    write(log, numbers, 20)
    assert log.compact(NOW_MS) is not None
    directory.write_cleaner_offsets({TOPIC: log})
    write(log, numbers, 15)
    log.flush()
    directory.write_recovery_points({TOPIC: log})
    directory.close({TOPIC: log}, clean=False)
    return next(numbers)


def compact(path: Path) -> None:
    """What is killed: a start and two compactions, of which the second drops tombstones."""
    directory, log = start(path)
    for hours in (0, 2):
        write(log, itertools.count(log.end_offset // 2), 8)
        assert log.compact(NOW_MS + hours * HOUR_MS) is not None
        directory.write_cleaner_offsets({TOPIC: log})
    directory.close({TOPIC: log})


def run_child(work: Callable[[Path], None], path: Path, kill_at: int) -> bool:
    """Do the work in a process of its own that is killed at one point; whether it came to that."""
    pid = os.fork()
    if pid == 0:
        try:
            points = itertools.count(1)

            def fault(_: str) -> None:
                if next(points) == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)

            disk.fault = fault
            work(path)
            os._exit(0)
        except BaseException:  # noqa: BLE001  a child must not return into pytest
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert killed or os.waitstatus_to_exitcode(status) == 0, "the work itself failed"
    return killed


def history_of(log: PartitionLog) -> History:
    """The batches are numbered, so the log's end says what was written."""
    history = History()
    for number in range(log.end_offset // 2):
        history.records += records_of(number)
    return history


@functools.cache
def records_of(number: int) -> list[Record]:
    (batch,) = keyed(numbered(number), producer_id=PRODUCER, sequence=2 * number)
    return [record._replace(offset=2 * number + n) for n, record in enumerate(decode_batch(batch.data))]


def inspect(path: Path, prepared: int) -> None:
    """What must hold after a kill: all that :func:`check` asks, indexes that fit, and the log works on."""
    directory, log = start(path)
    check(log, history_of(log))
    directory.close({TOPIC: log})
    check_indexes(path / "keys-0")
    directory, log = start(path)
    try:
        assert log.end_offset >= 2 * prepared
        history = history_of(log)
        check(log, history)
        before = values(log)
        last = log.end_offset // 2 - 1
        again = append(log, keyed(numbered(last), producer_id=PRODUCER, sequence=2 * last))
        assert (again.duplicate, again.base_offset) == (True, 2 * last)
        assert shape(log).others == []
        assert log.compact(NOW_MS + 5 * HOUR_MS) is not None or log.first_dirty_offset > 0
        assert values(log) == before == {r.key: r.value for r in history.state().values() if r.value is not None}
        check(log, history)
    finally:
        directory.close({TOPIC: log})


def points_of(work: Callable[[Path], None], path: Path) -> list[str]:
    names: list[str] = []
    disk.fault = names.append
    try:
        work(path)
    finally:
        disk.fault = None
    return names


@pytest.mark.parametrize("part", range(PARTS))
def test_a_kill_at_any_point_of_a_compaction_leaves_the_old_or_the_new(tmp_path: Path, part: int) -> None:
    # given a log, and the points of a compaction that nobody disturbs
    prepared = prepare(tmp_path / "prepared")
    shutil.copytree(tmp_path / "prepared", tmp_path / "calm")
    names = points_of(compact, tmp_path / "calm")
    inspect(tmp_path / "calm", prepared)
    assert names.count("before rename") > 10
    assert len(names) > 100

    for point in range(1 + part, len(names) + 1, PARTS):
        path = tmp_path / f"killed-{point}"
        shutil.copytree(tmp_path / "prepared", path)

        # when the process is killed at this one
        assert run_child(compact, path, point)

        # then
        try:
            inspect(path, prepared)
        except AssertionError as violation:
            pytest.fail(f"killed at point {point} of {len(names)}, {names[point - 1]}: {violation}")


def test_a_kill_while_a_swap_is_finished_at_the_start_is_no_worse(tmp_path: Path) -> None:
    # given every state in which a kill leaves a swap that is decided and not finished
    prepared = prepare(tmp_path / "prepared")
    shutil.copytree(tmp_path / "prepared", tmp_path / "calm")
    names = points_of(compact, tmp_path / "calm")
    states = 0
    for point in range(1, len(names) + 1):
        path = tmp_path / f"killed-{point}"
        # After each rename to .swap, and after some of the removals that follow it.
        if names[point - 1] != "renamed" and (names[point - 1] != "unlinked" or point % 4):
            continue
        shutil.copytree(tmp_path / "prepared", path)
        assert run_child(compact, path, point)
        if not list(path.rglob("*.swap")):
            continue
        states += 1

        # when the start that would finish it is killed too, at any point
        for second in itertools.count(1):
            again = tmp_path / f"killed-{point}-{second}"
            shutil.copytree(path, again)
            if not run_child(lambda path: void(start(path)), again, second):
                break

            # then
            inspect(again, prepared)
            shutil.rmtree(again)
        assert second > 5
    assert states > 5


def test_the_check_notices_an_unfinished_swap(tmp_path: Path) -> None:
    """The control: without the `.swap` file the same kills cost records."""
    prepared = prepare(tmp_path / "prepared")
    shutil.copytree(tmp_path / "prepared", tmp_path / "calm")
    names = points_of(compact, tmp_path / "calm")
    violations = 0
    for point in range(1, len(names) + 1):
        if names[point - 1] != "unlinked":
            continue
        path = tmp_path / f"killed-{point}"
        shutil.copytree(tmp_path / "prepared", path)
        assert run_child(compact, path, point)
        for swap in path.rglob("*.log.swap"):
            swap.unlink()
        try:
            inspect(path, prepared)
        except AssertionError:
            violations += 1

    assert violations > 0


def test_the_workload_drops_tombstones(tmp_path: Path) -> None:
    prepare(tmp_path / "data")
    before = count_tombstones(tmp_path / "data")
    compact(tmp_path / "data")

    directory, log = start(tmp_path / "data")
    first_dirty_offset, records = log.first_dirty_offset, found(log)
    directory.close({TOPIC: log})

    assert before > 0
    kept = [r.offset for r in records if r.value is None and r.offset < first_dirty_offset]
    assert all(offset >= 2 * 35 for offset in kept), "only those that the last compaction met first"


def count_tombstones(path: Path) -> int:
    directory, log = start(path)
    count = sum(record.value is None for record in found(log))
    directory.close({TOPIC: log}, clean=False)
    return count


def void(_: object) -> None:
    """For a value that is not needed."""
