"""kill -9 at every place that writes.

A workload uses every operation of the log that changes files: appends, rolls, flushes, checkpoints, deletions,
retention, a clean close, a start after it, and a start after a kill. A dry run counts the points at which
`log/disk.py` touches the disk, the middle of each write included. Then the workload runs once for each point, in
a child that is killed right there, and the parent looks at what is left.
"""

import itertools
import os
import signal
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.log import disk
from holdfast.log.data_directory import DataDirectory
from holdfast.log.errors import CorruptSegment
from holdfast.log.partition_log import PartitionLog
from holdfast.log.segment import Segment
from holdfast.wire.batch import Batch, BatchError, parse_header
from tests.unit.log.samples import NOW_MS, TINY, append, contents, sample

pytestmark = pytest.mark.usefixtures("no_syncs")

TOPIC = ("orders", 0)
CONFIG = replace(TINY, segment_bytes=600, retention_bytes=1500)
PRODUCER = 77
RECORDS = 2
# So that the test can be spread over several workers.
PARTS = 4

_MESSAGE = struct.Struct(">cq")
Report = Callable[[bytes, int], None]


def numbered(number: int) -> list[Batch]:
    """The workload's n-th batch: the same bytes in the child and in the parent."""
    value = bytes([number % 251]) * (10 + number % 50)
    return sample(
        RECORDS,
        value=value,
        timestamp=NOW_MS + number,
        producer_id=PRODUCER,
        sequence=number * RECORDS,
    )


def stored(number: int) -> bytes:
    (batch,) = numbered(number)
    data = bytearray(batch.data)
    struct.pack_into(">q", data, 0, number * RECORDS)
    struct.pack_into(">i", data, 12, 0)
    return bytes(data)


def start(path: Path) -> tuple[DataDirectory, PartitionLog]:
    directory = DataDirectory.open(path, node_id=1)
    return directory, directory.open_log(*TOPIC, CONFIG, now_ms=NOW_MS)


def workload(path: Path, say: Report) -> None:
    """Everything that writes. `say` tells the parent what has been acknowledged."""
    numbers = itertools.count()

    def append_some(log: PartitionLog, count: int) -> None:
        for number in itertools.islice(numbers, count):
            append(log, numbered(number))
            say(b"a", number)

    directory, log = start(path)
    append_some(log, 7)
    log.flush()
    directory.write_recovery_points({TOPIC: log})
    append_some(log, 7)
    directory.close({TOPIC: log}, clean=False)
    with open(sorted(log.directory.glob("*.log"))[-1], "ab") as file:
        file.write(stored(14)[:50])  # what a kill in the middle of an append leaves

    directory, log = start(path)
    append_some(log, 4)
    log.flush()
    log.apply_retention(NOW_MS)
    append_some(log, 4)
    log.delete_records_before(log.end_offset - 3)
    directory.write_start_offsets({TOPIC: log})
    say(b"s", log.start_offset)
    log.apply_retention(NOW_MS)
    append_some(log, 3)
    directory.close({TOPIC: log})

    directory, log = start(path)
    append_some(log, 9)
    log.apply_retention(NOW_MS)
    log.flush()
    directory.close({TOPIC: log})


class Outcome(NamedTuple):
    """What a child had acknowledged when it ended."""

    killed: bool
    appended: int
    start_offset: int
    points: int


def run_child(path: Path, kill_at: int) -> Outcome:
    """Run the workload in a process of its own that is killed at one point; 0 is never."""
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _child(path, kill_at, lambda kind, value: _send(send, kind, value))
            os._exit(0)
        except BaseException:  # noqa: BLE001  a child must not return into pytest
            os._exit(1)
    os.close(send)
    with open(receive, "rb") as pipe:
        messages = list(_MESSAGE.iter_unpack(pipe.read()))
    _, status = os.waitpid(pid, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert killed or os.waitstatus_to_exitcode(status) == 0, "the workload itself failed"
    appended = [value for kind, value in messages if kind == b"a"]
    starts = [value for kind, value in messages if kind == b"s"]
    points = [value for kind, value in messages if kind == b"p"]
    return Outcome(killed, len(appended), max(starts, default=0), max(points, default=0))


def _send(fd: int, kind: bytes, value: int) -> None:
    os.write(fd, _MESSAGE.pack(kind, value))


def _child(path: Path, kill_at: int, say: Report) -> None:
    points = itertools.count(1)

    def fault(_: str) -> None:
        number = next(points)
        if number == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    disk.fault = fault
    workload(path, say)
    say(b"p", next(points) - 1)


def check(path: Path, outcome: Outcome) -> None:
    """Nothing that was acknowledged is lost, and the log works on."""
    directory, log = start(path)
    try:
        found = contents(log)
        first = parse_header(found[0]).base_offset // RECORDS if found else log.end_offset // RECORDS
        assert log.end_offset % RECORDS == 0
        last = log.end_offset // RECORDS
        # One append may have been under way: stored, not yet acknowledged.
        assert outcome.appended <= last <= outcome.appended + 1
        assert found == [stored(number) for number in range(first, last)]
        assert log.start_offset >= outcome.start_offset
        assert log.start_offset // RECORDS <= max(first, outcome.start_offset // RECORDS, last - 2)
        check_reads(log)
        check_producer(log, outcome.appended, last)
    finally:
        directory.close({TOPIC: log})
    check_indexes(path / "orders-0")


def check_reads(log: PartitionLog) -> None:
    for offset in range(log.start_offset, log.end_offset):
        region = log.read(offset, 1)
        assert region is not None
        header = parse_header(region.read())
        assert header.base_offset <= offset <= header.last_offset
        found = log.offset_for_timestamp(NOW_MS + offset // RECORDS + 1)
        assert found is None or found.timestamp >= NOW_MS + offset // RECORDS + 1


def check_indexes(directory: Path) -> None:
    """Each entry on disk describes a batch of the log it belongs to."""
    for path in directory.glob("*.log"):
        base_offset, data = int(path.stem), path.read_bytes()
        position, by_position, largest = 0, {}, set()
        while position < len(data):
            header = parse_header(data, position)
            by_position[position] = header.last_offset - base_offset
            largest.add((header.max_timestamp, header.last_offset - base_offset))
            position += header.size
        index, times = path.with_suffix(".index"), path.with_suffix(".timeindex")
        for relative, position in struct.iter_unpack(">II", index.read_bytes() if index.exists() else b""):
            assert by_position.get(position) == relative
        assert largest.issuperset(struct.iter_unpack(">qI", times.read_bytes() if times.exists() else b""))


def check_producer(log: PartitionLog, acknowledged: int, last: int) -> None:
    """A producer that never got its answer sends again and finds its batch; then it goes on."""
    if acknowledged:
        again = append(log, numbered(last - 1))
        assert again.duplicate
        assert again.base_offset == (last - 1) * RECORDS
    fresh = append(log, numbered(last))
    assert not fresh.duplicate
    assert fresh.base_offset == last * RECORDS


def test_the_workload_reaches_every_kind_of_point(tmp_path: Path) -> None:
    names: set[str] = set()
    disk.fault = names.add
    try:
        workload(tmp_path / "data", lambda kind, value: None)
    finally:
        disk.fault = None

    assert names >= {
        "before write",
        "half written",
        "written",
        "before truncate",
        "truncated",
        "before create",
        "before mkdir",
        "before fdatasync",
        "before fsync",
        "before directory sync",
        "before rename",
        "renamed",
        "before unlink",
        "unlinked",
    }


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_acknowledged_is_lost_by_a_kill_at_any_point(tmp_path: Path, part: int) -> None:
    # given the points of a run that nobody disturbs
    calm = run_child(tmp_path / "calm", kill_at=0)
    assert not calm.killed
    assert calm.points > 150
    check(tmp_path / "calm", calm)

    for point in range(1 + part, calm.points + 1, PARTS):
        path = tmp_path / f"killed-{point}"

        # when the process is killed at this one
        outcome = run_child(path, kill_at=point)

        # then
        assert outcome.killed
        try:
            check(path, outcome)
        except (AssertionError, BatchError) as violation:
            pytest.fail(f"killed at point {point} of {calm.points}: {violation}")


def test_the_check_notices_a_recovery_that_does_not_happen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: left as the kill left it, a torn tail violates what the test above asserts."""
    violations = 0
    monkeypatch.setattr(Segment, "unreadable_tail_bytes", 0)
    for point in range(1, 60):
        path = tmp_path / f"killed-{point}"
        outcome = run_child(path, kill_at=point)
        if (path / "orders-0").is_dir():
            # A marker that lies: the log is opened on trust.
            (path / ".kafka_cleanshutdown").write_text("{}")
            try:
                check(path, outcome)
            except (AssertionError, BatchError, CorruptSegment):
                violations += 1

    assert violations > 0
