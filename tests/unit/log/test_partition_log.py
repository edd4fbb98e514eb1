"""A partition's log against a simple model, and its rules one by one."""

import itertools
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.log import disk
from holdfast.log.errors import OffsetOutOfRange, ProducerError, RecordListTooLarge, RecordTooLarge
from holdfast.log.partition_log import PartitionLog
from holdfast.wire.batch import BatchError, BatchFault, parse_header
from holdfast.wire.compression import Codec
from holdfast.wire.records import Record, decode_batch
from tests.unit.log.samples import NOW_MS, TINY, append, contents, fill, open_log, sample


class Model:
    """What the log should hold: a list of batches."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.records: list[Record] = []

    def add(self, stored: bytes) -> None:
        self.batches.append(stored)
        self.records += decode_batch(stored)

    def batches_from(self, offset: int) -> bytes:
        return b"".join(batch for batch in self.batches if parse_header(batch).last_offset >= offset)

    def first_at_or_after(self, timestamp: int) -> tuple[int, int] | None:
        found = (record for record in self.records if record.timestamp >= timestamp)
        return next(((record.timestamp, record.offset) for record in found), None)

    def latest(self) -> tuple[int, int]:
        if not self.records:
            return -1, -1
        latest = max(self.records, key=lambda record: (record.timestamp, -record.offset))
        return latest.timestamp, latest.offset


sizes = st.tuples(st.integers(1, 6), st.integers(0, 140), st.integers(-2000, 2000), st.sampled_from(Codec))


def reopened(log: PartitionLog, how: str) -> PartitionLog:
    if how == "not":
        return log
    log.close(clean=how != "killed")
    for path in log.directory.iterdir():
        if how == "closed, indexes lost" and path.suffix in (".index", ".timeindex"):
            path.unlink()
        if how == "closed, indexes emptied" and path.suffix in (".index", ".timeindex"):
            path.write_bytes(b"")
        if how == "closed, indexes halved" and path.suffix in (".index", ".timeindex"):
            os.truncate(path, path.stat().st_size // 2)
        if how == "closed, indexes lying" and path.suffix == ".index":
            entries = bytearray(path.read_bytes())
            entries[7::8] = bytes(byte ^ 0x15 for byte in entries[7::8])
            path.write_bytes(entries)
    return open_log(log.directory, clean=how != "killed")


WAYS = [
    "not",
    "closed",
    "killed",
    "closed, indexes lost",
    "closed, indexes emptied",
    "closed, indexes halved",
    "closed, indexes lying",
]


@pytest.mark.parametrize("how", WAYS)
@given(plan=st.lists(sizes, max_size=30), more=st.lists(sizes, max_size=4), max_bytes=st.integers(0, 1500))
@settings(max_examples=60, deadline=None)
def test_every_read_agrees_with_the_model(
    tmp_path_factory: pytest.TempPathFactory,
    how: str,
    plan: list[tuple[int, int, int, Codec]],
    more: list[tuple[int, int, int, Codec]],
    max_bytes: int,
) -> None:
    # given a log of several segments, used further after it was reopened in some way
    log = open_log(tmp_path_factory.mktemp("log"))
    model = Model()
    for part in (plan, more):
        for count, size, drift, codec in part:
            timestamp = NOW_MS + 100 * len(model.batches) + drift
            batch = sample(count, value=bytes(size), timestamp=timestamp, codec=codec)
            append(log, batch)
            model.add(bytes(batch[0].data))
        if part is plan:
            log = reopened(log, how)

    # then it holds what the model holds, and every look-up finds it
    assert contents(log) == model.batches
    assert log.end_offset == len(model.records)
    assert log.size_bytes == sum(map(len, model.batches))
    assert log.max_timestamp() == model.latest()
    for offset in range(log.end_offset):
        check_read(log, model, offset, max_bytes)
    for timestamp in {record.timestamp + step for record in model.records for step in (-1, 0, 1)}:
        assert log.offset_for_timestamp(timestamp) == model.first_at_or_after(timestamp)
    log.close(clean=False)


def check_read(log: PartitionLog, model: Model, offset: int, max_bytes: int) -> None:
    expected = model.batches_from(offset)
    first = parse_header(expected)

    region = log.read(offset, max_bytes)
    assert region is not None
    assert expected.startswith(region.read())
    assert first.size <= region.length <= max(max_bytes, first.size)

    partial = log.read(offset, max_bytes, at_least_one=False)
    if max_bytes == 0:
        assert partial is None
    else:
        assert partial is not None
        assert expected.startswith(partial.read())
        assert 0 < partial.length <= max_bytes


def test_a_consumer_that_reads_on_sees_everything_once(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    stored = fill(log, 100)

    seen, offset = b"", 0
    while (region := log.read(offset, 300)) is not None:
        data = region.read()
        # Whole batches count; the client asks again from the first one that was cut.
        while len(data) >= 61 and parse_header(data).size <= len(data):
            header = parse_header(data)
            seen, data = seen + data[: header.size], data[header.size :]
            offset = header.last_offset + 1

    assert seen == b"".join(stored)


def test_offsets_outside_of_the_log_are_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    fill(log, 3)

    assert log.read(log.end_offset, 100) is None
    for offset in (-1, log.end_offset + 1):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 100)


def test_an_append_says_where_it_went(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    append(log, sample(3))

    result = append(log, sample(2))

    assert (result.base_offset, result.last_offset, result.log_start_offset) == (3, 4, 0)
    assert result.log_append_time_ms == -1
    assert not result.duplicate
    assert log.end_offset == 5


def test_several_batches_are_appended_together(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")

    result = append(log, [*sample(2), *sample(3), *sample(1)])

    assert (result.base_offset, result.last_offset) == (0, 5)
    assert [parse_header(batch).base_offset for batch in contents(log)] == [0, 2, 5]


def test_log_append_time_is_the_brokers(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", replace(TINY, message_timestamp_type="LogAppendTime"))

    result = append(log, sample(2, timestamp=5), now_ms=NOW_MS + 7)

    assert result.log_append_time_ms == NOW_MS + 7
    assert [record.timestamp for record in decode_batch(contents(log)[0])] == [NOW_MS + 7] * 2
    assert log.max_timestamp() == (NOW_MS + 7, 0), "the first record that has it, as Kafka answers"


def test_a_batch_above_the_limit_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", replace(TINY, max_message_bytes=200))
    fits = sample(value=bytes(200 - len(sample(value=b"")[0].data) - 2))
    assert len(fits[0].data) == 200

    append(log, fits)
    with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes=200"):
        append(log, sample(value=bytes(200)))

    assert log.end_offset == 1


def test_batches_that_no_segment_can_hold_are_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")

    with pytest.raises(RecordListTooLarge):
        append(log, [*sample(value=bytes(600)), *sample(value=bytes(600))])

    assert log.end_offset == 0


@pytest.mark.parametrize(("drift_ms", "accepted"), [(3_600_000, True), (3_600_001, False), (-(10**9), True)])
def test_a_timestamp_from_the_future_is_refused(tmp_path: Path, drift_ms: int, accepted: bool) -> None:
    log = open_log(tmp_path / "t-0")

    if accepted:
        append(log, sample(timestamp=NOW_MS + drift_ms))
    else:
        with pytest.raises(BatchError) as refusal:
            append(log, sample(timestamp=NOW_MS + drift_ms))
        assert refusal.value.fault is BatchFault.INVALID_TIMESTAMP


def test_segments_roll_by_size(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    fill(log, 30)

    sizes = [path.stat().st_size for path in sorted(log.directory.glob("*.log"))]

    assert len(sizes) == log.segment_count > 2
    assert all(size <= TINY.segment_bytes for size in sizes)


def test_segments_roll_by_the_records_time(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", replace(TINY, segment_ms=1000))

    append(log, sample(timestamp=NOW_MS))
    append(log, sample(timestamp=NOW_MS + 1000))
    assert log.segment_count == 1
    append(log, sample(timestamp=NOW_MS + 1001))

    assert log.segment_count == 2


def test_segments_roll_when_an_index_is_full(tmp_path: Path) -> None:
    # given room for eight entries of the time index, one of which is kept for the largest timestamp
    log = open_log(
        tmp_path / "t-0", replace(TINY, segment_bytes=1 << 20, index_interval_bytes=0, segment_index_bytes=96)
    )

    fill(log, 60)
    log.close()

    indexes = [path.stat().st_size for path in log.directory.glob("*index")]
    assert log.end_offset == 120
    assert len(indexes) > 6
    assert max(indexes) <= 96


def test_retention_by_size_keeps_as_much_as_the_limit(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", replace(TINY, retention_bytes=2500))
    fill(log, 60)
    before = log.size_bytes

    deleted = log.apply_retention(NOW_MS)

    assert {entry.reason for entry in deleted} == {"retention.bytes"}
    assert log.size_bytes == before - sum(entry.size for entry in deleted)
    assert 2500 <= log.size_bytes < 2500 + TINY.segment_bytes
    assert log.start_offset == parse_header(contents(log)[0]).base_offset > 0
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 100)
    assert not list(log.directory.glob(f"{0:020d}.*")), "all files of the segment are gone"


def test_retention_by_time_empties_even_the_active_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", replace(TINY, retention_ms=1000))
    fill(log, 20)
    end = log.end_offset
    latest = log.max_timestamp().timestamp

    assert log.apply_retention(latest + 1000)[-1:] != [], "the older segments"
    assert log.segment_count == 1
    log.apply_retention(latest + 1001)

    assert (log.start_offset, log.end_offset, log.size_bytes) == (end, end, 0)
    assert append(log, sample()).base_offset == end


def test_without_limits_nothing_is_deleted(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", replace(TINY, retention_ms=-1, retention_bytes=-1))
    fill(log, 60)

    assert log.apply_retention(NOW_MS * 2) == []


def test_deleted_records_are_gone_and_their_segments_with_the_next_retention(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    fill(log, 60)

    assert log.delete_records_before(50) == 50
    assert log.delete_records_before(20) == 50, "the start never goes back"
    with pytest.raises(OffsetOutOfRange):
        log.delete_records_before(log.end_offset + 1)
    deleted = log.apply_retention(NOW_MS)

    assert {entry.reason for entry in deleted} == {"log start offset"}
    assert log.start_offset == 50
    with pytest.raises(OffsetOutOfRange):
        log.read(49, 100)
    region = log.read(50, 100)
    assert region is not None
    header = parse_header(region.read())
    assert header.base_offset <= 50 <= header.last_offset
    found = log.offset_for_timestamp(0)
    assert found is not None
    assert found.offset == 50


def test_a_region_stays_readable_when_its_segment_is_deleted_and_the_log_closed(tmp_path: Path) -> None:
    # given a region of the oldest segment, under way to a client
    log = open_log(tmp_path / "t-0", replace(TINY, retention_bytes=0))
    stored = fill(log, 30)
    region = log.read(0, 200)
    assert region is not None
    fd = region.fd

    # when retention deletes the segment and the log is closed
    log.apply_retention(NOW_MS)
    log.close(clean=False)
    del log

    # then its bytes can still be sent, and the file is closed with the region
    assert b"".join(stored).startswith(region.read())
    assert os.fstat(fd).st_nlink == 0
    del region
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_leader_epochs_are_kept(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for epoch, count in ((0, 2), (3, 4), (4, 1)):
        log.append(sample(count), leader_epoch=epoch, now_ms=NOW_MS)

    for reopened_log in (log, reopened(log, "closed")):
        ends = [reopened_log.leader_epoch_end(epoch) for epoch in (-1, 0, 1, 3, 4, 5)]
        assert ends == [(-1, -1), (0, 2), (0, 2), (3, 6), (4, 7), (-1, -1)]
        assert reopened_log.latest_leader_epoch == 4


def test_leader_epochs_are_found_in_the_batches_after_a_kill(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.append(sample(2), leader_epoch=0, now_ms=NOW_MS)
    log.append(sample(2), leader_epoch=7, now_ms=NOW_MS)

    log = reopened(log, "killed")

    assert log.leader_epoch_end(0) == (0, 2)
    assert log.latest_leader_epoch == 7


def test_a_flush_covers_what_was_appended_before_it(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    fill(log, 30)
    assert log.recovery_point == 0
    assert log.needs_flush, "segments were rolled"

    assert log.flush() == log.end_offset

    assert log.recovery_point == log.end_offset
    assert not log.needs_flush
    rolled = sorted(log.directory.glob("*.log"))[:-1]
    assert all(path.with_suffix(".index").stat().st_size for path in rolled)


def test_appends_flushes_retention_and_look_ups_do_not_disturb_each_other(tmp_path: Path) -> None:
    # given a worker that flushes, applies retention and looks up timestamps all the time
    log = open_log(tmp_path / "t-0", replace(TINY, retention_bytes=20_000))
    stop = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            while not stop.is_set():
                log.flush()
                log.apply_retention(NOW_MS)
                log.offset_for_timestamp(NOW_MS + 10)
                log.max_timestamp()
        except BaseException as failure:  # noqa: BLE001  shown by the assertion below
            failures.append(failure)

    worker = threading.Thread(target=work)
    worker.start()

    # when the loop appends and reads
    try:
        for number in range(1500):
            result = append(log, sample(1 + number % 3, timestamp=NOW_MS + number))
            region = log.read(result.base_offset, 100)
            assert region is not None
            assert parse_header(region.read()).base_offset == result.base_offset
    finally:
        stop.set()
        worker.join()

    # then nothing was disturbed, and what is left is whole
    assert failures == []
    log.apply_retention(NOW_MS)
    kept = [parse_header(batch) for batch in contents(log)]
    assert kept[-1].last_offset + 1 == log.end_offset
    assert all(a.last_offset + 1 == b.base_offset for a, b in itertools.pairwise(kept))
    log.close()
    assert open_log(log.directory, clean=True).end_offset == kept[-1].last_offset + 1


def test_a_repeated_batch_is_answered_with_its_first_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    first = append(log, sample(3, producer_id=1, sequence=0))
    append(log, sample(2, producer_id=1, sequence=3))

    again = append(log, sample(3, producer_id=1, sequence=0))

    # Kafka, too, answers a duplicate with its first copy's timestamp.
    assert again == first._replace(duplicate=True, log_append_time_ms=NOW_MS + 2)
    assert log.end_offset == 5


def test_a_gap_in_the_sequence_stores_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    append(log, sample(3, producer_id=1, sequence=0))

    with pytest.raises(ProducerError) as refusal:
        append(log, [*sample(1, producer_id=1, sequence=3), *sample(1, producer_id=1, sequence=5)])

    assert refusal.value.code == 45
    assert log.end_offset == 3


def test_a_log_that_is_given_up_is_not_flushed_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its directory is deleted next, and another log may have the name: a flush must be over, or not begin."""
    # given a flush that is under way while the log is closed
    log = open_log(tmp_path / "t-0")
    fill(log, 10)
    points: list[str] = []
    after_close: list[int] = []

    def close() -> None:
        log.close(clean=False)
        after_close.append(len(points))

    closing = threading.Thread(target=close)

    def close_meanwhile(point: str) -> None:
        points.append(point)
        if point == "before fdatasync" and not closing.ident:
            closing.start()
            closing.join(0.5)  # as long as it takes if it does not wait

    # when
    monkeypatch.setattr(disk, "fault", close_meanwhile)
    log.flush()
    closing.join()

    # then
    assert after_close == [len(points)], "something was written after the log was closed"
    assert "renamed" in points
