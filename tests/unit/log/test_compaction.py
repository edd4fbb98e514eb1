"""Compaction: the last record of each key stays, at its offset; deleted keys stay deleted."""

import contextlib
import itertools
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.log import checkpoint, compaction, disk
from holdfast.log.data_directory import DataDirectory
from holdfast.log.errors import CorruptLog, ProducerError
from holdfast.log.partition_log import PartitionLog
from holdfast.wire.batch import DELETE_HORIZON, BatchError, BatchFault, parse_header
from holdfast.wire.compression import Codec
from holdfast.wire.records import decode_batch
from tests.unit.log.keyed_logs import (
    COMPACT,
    HOUR_MS,
    History,
    check,
    config,
    filled,
    found,
    keyed,
    reopened,
    shape,
    values,
)
from tests.unit.log.samples import NOW_MS, append, contents, open_log

pytestmark = pytest.mark.usefixtures("no_syncs")

# What stays


def test_the_last_record_of_each_key_stays_at_its_offset(tmp_path: Path) -> None:
    log, history = filled(tmp_path)
    active = log.segments[-1].base_offset

    done = log.compact(NOW_MS)

    assert done is not None
    closed = [record for record in found(log) if record.offset < active]
    assert [record.offset for record in closed] == list(range(active - 4, active))
    assert done.records_before == active
    assert done.records_after == 4
    assert done.bytes_after < done.bytes_before
    assert done.first_dirty_offset == log.first_dirty_offset == active
    check(log, history)


def test_the_active_segment_is_left_alone(tmp_path: Path) -> None:
    log, _ = filled(tmp_path)
    active = log.segments[-1]
    before = active.file.path.read_bytes()

    log.compact(NOW_MS)

    assert log.segments[-1] is active
    assert active.file.path.read_bytes() == before


def test_a_batch_that_keeps_all_its_records_keeps_every_byte(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", COMPACT)
    for number in range(30):
        append(log, keyed([(b"unique-%d" % number, b"x" * 20), (b"same", b"y")], codec=Codec(number % 5)))
        append(log, keyed([(b"alone-%d" % number, b"x" * 20)], codec=Codec(number % 5)))
    whole = {batch for batch in contents(log) if parse_header(batch).record_count == 1}

    assert log.compact(NOW_MS) is not None

    assert whole <= set(contents(log))


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_that_loses_records_keeps_codec_offsets_and_producer(tmp_path: Path, codec: Codec) -> None:
    # given a batch of which the first and the last record are superseded
    log = open_log(tmp_path / "t-0", COMPACT)
    pairs = [(b"first", b"1" * 50), (b"kept", b"2" * 50), (b"also", b"3" * 50), (b"last", b"4" * 50)]
    append(log, keyed(pairs, codec=codec, producer_id=9, sequence=0))
    append(log, keyed([(b"first", b"new"), (b"last", b"new")], producer_id=9, sequence=4))
    before = parse_header(contents(log)[0])
    roll(log)

    # when
    assert log.compact(NOW_MS) is not None

    # then
    batch = contents(log)[0]
    header = parse_header(batch)
    assert [(record.offset, record.key) for record in decode_batch(batch)] == [(1, b"kept"), (2, b"also")]
    assert header.record_count == 2
    assert header.codec == codec
    assert header.max_timestamp == NOW_MS + 2
    unchanged = ("base_offset", "last_offset_delta", "base_timestamp", "producer_id", "producer_epoch", "base_sequence")
    assert [getattr(header, name) for name in unchanged] == [getattr(before, name) for name in unchanged]


def test_records_without_key_are_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", COMPACT)

    with pytest.raises(BatchError) as refused:
        append(log, keyed([(b"key", b"value"), (None, b"value")]))

    assert refused.value.fault is BatchFault.INVALID_RECORD
    assert log.end_offset == 0


def test_records_without_key_from_before_go(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", replace(COMPACT, compacts=False))
    append(log, keyed([(None, b"no key"), (b"key", b"value")]))
    roll(log)
    assert log.compact(NOW_MS) is None, "not while the topic is not compacted"
    log.config = COMPACT

    assert log.compact(NOW_MS) is not None

    assert [record.value for record in found(log)] == [b"value"]


def test_keys_longer_than_what_is_held_in_memory(tmp_path: Path) -> None:
    log, history = open_log(tmp_path / "t-0", config(segment_bytes=3000)), History()
    for number in range(40):
        history.put(log, [(b"long " * 40 + b"%d" % (number % 3), b"%d" % number)])

    assert log.compact(NOW_MS) is not None

    check(log, history)
    assert len([record for record in found(log) if record.offset < log.first_dirty_offset]) == 3


def test_a_batch_that_cannot_be_read_stays_as_it_is(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", COMPACT)
    append(log, keyed([(b"a", b"old")]))
    append(log, keyed([(b"a", b"damaged on the disk")]))
    append(log, keyed([(b"a", b"new")]))
    roll(log)
    path = log.segments[0].file.path
    data = bytearray(path.read_bytes())
    data[data.index(b"damaged")] ^= 1
    path.write_bytes(data)
    damaged = contents(log)[1]

    assert log.compact(NOW_MS) is not None

    assert contents(log)[0] == damaged
    assert [record.value for record in decode_batch(contents(log)[1])] == [b"new"]


def test_a_segment_with_garbage_in_it_is_not_compacted(tmp_path: Path) -> None:
    log, _ = filled(tmp_path)
    path = log.segments[0].file.path
    data = bytearray(path.read_bytes())
    data[16] = 0  # the magic of the first batch
    path.write_bytes(data)

    with pytest.raises(CorruptLog, match="cannot compact"):
        log.compact(NOW_MS)

    assert path.read_bytes() == data
    assert shape(log).others == []


# Tombstones


def test_a_tombstone_is_removed_after_its_retention_from_the_first_compaction(tmp_path: Path) -> None:
    # given a deleted key
    log, history = open_log(tmp_path / "t-0", COMPACT), History()
    history.put(log, [(b"gone", b"value"), (b"there", b"value")])
    history.put(log, [(b"gone", None), (b"else", b"value")])

    # when the log is compacted, long after the deletion
    first_ms = NOW_MS + 30 * 24 * HOUR_MS
    compact_all(log, history, first_ms)

    # then the tombstone stays, and its batch says until when
    assert tombstones(log) == [2]
    (marked,) = [parse_header(batch) for batch in contents(log) if parse_header(batch).attributes & DELETE_HORIZON]
    assert (marked.base_offset, marked.base_timestamp) == (2, first_ms + HOUR_MS)
    check(log, history)

    # and as long as that time has not come, other compactions leave it
    compact_all(log, history, first_ms + HOUR_MS - 1)
    assert tombstones(log) == [2]

    # and after it, also after a restart, it goes
    log = reopened(log)
    done = compact_all(log, history, first_ms + HOUR_MS)
    assert done.tombstones_dropped == 1
    assert tombstones(log) == []
    assert b"gone" not in {record.key for record in found(log)}
    check(log, history)


def test_a_key_that_is_written_again_after_its_deletion_is_there(tmp_path: Path) -> None:
    log, history = open_log(tmp_path / "t-0", COMPACT), History()
    history.put(log, [(b"key", b"old"), (b"key", None)])
    compact_all(log, history, NOW_MS)
    history.put(log, [(b"key", b"new")])
    compact_all(log, history, NOW_MS + HOUR_MS)
    compact_all(log, history, NOW_MS + 3 * HOUR_MS)

    assert values(log)[b"key"] == b"new"
    check(log, history)


def test_a_horizon_without_end_is_kept(tmp_path: Path) -> None:
    log, history = open_log(tmp_path / "t-0", config(delete_retention_ms=2**63 - 1)), History()
    history.put(log, [(b"key", b"old"), (b"key", None)])
    compact_all(log, history, NOW_MS)
    compact_all(log, history, NOW_MS + 10**12)

    assert tombstones(log) == [1]
    check(log, history)


# When


def test_the_dirty_ratio_decides(tmp_path: Path) -> None:
    # given a log that is wholly clean
    log, history = filled(tmp_path)
    log.config = config(min_cleanable_dirty_ratio=0.5)
    for number in range(40):
        history.put(log, [(b"clean-%d" % number, b"x" * 60)])
    roll(log)
    assert log.compact(NOW_MS) is not None
    clean_bytes = log.size_bytes

    # when less than half of it is dirty, then nothing happens
    while log.size_bytes - clean_bytes < clean_bytes * 0.9:
        history.put(log, [(b"key-0", b"y" * 60)])
        assert log.compact(NOW_MS) is None

    # when more than half of it is dirty, it does
    while log.size_bytes - clean_bytes < clean_bytes * 2:
        history.put(log, [(b"key-0", b"y" * 60)])
    assert log.compact(NOW_MS) is not None
    assert log.compact(NOW_MS) is None
    check(log, history)


def test_records_younger_than_the_lag_stay(tmp_path: Path) -> None:
    log, history = open_log(tmp_path / "t-0", config(min_compaction_lag_ms=HOUR_MS)), History()
    for number in range(40):
        history.put(log, [(b"key", b"%d" % number * 30)], NOW_MS + number * 60_000)

    assert log.compact(NOW_MS + HOUR_MS - 1) is None

    assert log.compact(NOW_MS + HOUR_MS + 20 * 60_000) is not None
    kept = {record.offset for record in found(log)}
    assert kept >= set(range(21, 40))
    assert 0 not in kept
    check(log, history)


def test_the_longest_lag_beats_the_ratio_and_closes_the_active_segment(tmp_path: Path) -> None:
    log, history = open_log(tmp_path / "t-0", config(min_cleanable_dirty_ratio=1.0)), History()
    history.put(log, [(b"key", b"old")])
    history.put(log, [(b"key", b"new")])
    assert log.compact(NOW_MS + 5 * HOUR_MS) is None
    log.config = config(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=HOUR_MS)

    assert log.compact(NOW_MS + HOUR_MS) is None
    assert log.compact(NOW_MS + HOUR_MS + 1) is not None

    assert [record.value for record in found(log)] == [b"new"]


def test_an_active_segment_is_closed_when_it_is_large_and_dirty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "WORTH_ROLLING_BYTES", 2000)
    log, history = open_log(tmp_path / "t-0", config(segment_bytes=1 << 20, min_cleanable_dirty_ratio=0.5)), History()
    while log.size_bytes < 2000:
        assert log.compact(NOW_MS) is None
        history.put(log, [(b"key", b"x" * 100)])

    assert log.compact(NOW_MS) is not None

    assert len(found(log)) == 1
    check(log, history)


def test_old_records_do_not_make_a_new_segment_at_each_look(tmp_path: Path) -> None:
    """As when a topic is filled again with what happened long ago: the segment is young, whatever is in it."""
    # given a log that is not dirty enough to be compacted
    lasting = config(min_cleanable_dirty_ratio=1.0, segment_bytes=1 << 20, segment_ms=24 * HOUR_MS)
    log = open_log(tmp_path / "t-0", lasting)

    # when
    for look in range(10):
        append(log, keyed([(b"key", b"value")], timestamp=NOW_MS - 48 * HOUR_MS), NOW_MS + look)
        log.compact(NOW_MS + look)

    # then
    assert log.segment_count == 1
    # and it is closed when it is as old as segment.ms says
    log.compact(NOW_MS + 25 * HOUR_MS)
    assert log.segment_count == 2


def test_a_segment_from_before_the_start_is_as_old_as_its_records(tmp_path: Path) -> None:
    """Else a broker that is started every day would never close the segment of a small log."""
    lasting = config(min_cleanable_dirty_ratio=1.0, segment_bytes=1 << 20, segment_ms=24 * HOUR_MS)
    log = open_log(tmp_path / "t-0", lasting)
    append(log, keyed([(b"key", b"value")]))
    log.close()

    log = open_log(log.directory, lasting, clean=True, now_ms=NOW_MS + 25 * HOUR_MS)
    log.compact(NOW_MS + 25 * HOUR_MS)

    assert log.segment_count == 2


def test_an_empty_log_is_not_rolled_over_and_over(tmp_path: Path) -> None:
    log, history = filled(tmp_path)
    for hours in range(1000, 1005):
        log.compact(NOW_MS + hours * HOUR_MS)
    assert log.segment_count == 2
    check(log, history)


# Segments


def test_thousands_of_small_segments_become_few(tmp_path: Path) -> None:
    log, history = open_log(tmp_path / "t-0", config(segment_bytes=100)), History()
    for number in range(1000):
        history.put(log, [(b"key-%d" % number, b"x" * 20)])
    assert log.segment_count == 1000
    log.config = config(segment_bytes=50_000)

    done = log.compact(NOW_MS)

    assert done is not None
    assert (done.segments_before, done.segments_after) == (999, log.segment_count - 1)
    assert log.segment_count < 6
    assert len(shape(log).logs) == log.segment_count
    assert max(segment.size for segment in log.segments) <= 50_000
    assert len(list(log.directory.glob("*.index"))) == log.segment_count - 1
    check(reopened(log), history)


def test_a_segment_without_losses_is_not_replaced(tmp_path: Path) -> None:
    log, history = open_log(tmp_path / "t-0", config(segment_bytes=1000)), History()
    while log.segment_count < 4:
        history.put(log, [(b"key-%d" % len(history.records), b"x" * 300)])
    before = log.segments

    assert log.compact(NOW_MS) is not None

    assert log.segments == before
    assert shape(log).others == []


def test_a_limit_on_memory_makes_several_passes_of_one(tmp_path: Path) -> None:
    log, history = filled(tmp_path, rounds=50, keys=8)
    log.config = config(compaction_memory_bytes=1000)
    active = log.segments[-1].base_offset

    # when, then each pass gets further
    passes, reached = 0, 0
    while log.first_dirty_offset < active:
        done = log.compact(NOW_MS)
        assert done is not None
        assert done.first_dirty_offset > reached
        passes, reached = passes + 1, done.first_dirty_offset
        check(log, history)

    assert passes > 2
    assert len([record for record in found(log) if record.offset < active]) == 8


def test_retention_and_compaction_together(tmp_path: Path) -> None:
    # given a log of `compact,delete`
    log, history = open_log(tmp_path / "t-0", config(retention_ms=HOUR_MS)), History()
    for minute in range(90):
        history.put(log, [(b"key-%d" % (minute % 40), b"x" * 80)], NOW_MS + minute * 60_000)
    assert log.compact(NOW_MS + 90 * 60_000) is not None

    # when
    deleted = log.apply_retention(NOW_MS + 120 * 60_000)

    # then old segments are gone, and the rest is readable
    assert deleted
    assert all(segment.reason == "retention.ms" for segment in deleted)
    assert log.start_offset > 0
    survivors = {record.offset for record in found(log)}
    last = {record.offset for record in history.state().values() if record.offset >= log.start_offset}
    assert survivors >= last
    assert log.compact(NOW_MS + 120 * 60_000) is None


def test_a_start_offset_inside_a_segment_stays(tmp_path: Path) -> None:
    log, _ = filled(tmp_path)
    log.delete_records_before(7)

    assert log.compact(NOW_MS) is not None

    assert log.start_offset == 7
    region = log.read(7, 1)
    assert region is not None
    assert parse_header(region.read()).last_offset >= 7


# Producers


@pytest.mark.parametrize("snapshots", ["kept", "lost"])
def test_a_producer_whose_records_are_gone_is_still_known(tmp_path: Path, snapshots: str) -> None:
    # given producers whose records were all superseded
    log = open_log(tmp_path / "t-0", COMPACT)
    for number in range(12):
        append(log, keyed([(b"key", b"x" * 100)], producer_id=5, sequence=number))
        append(log, keyed([(b"key", b"x" * 100)], producer_id=6, sequence=number))
    for _ in range(10):
        append(log, keyed([(b"key", b"z" * 100)]))

    # when
    assert log.compact(NOW_MS) is not None
    log.close(clean=False)
    if snapshots == "lost":
        for path in log.directory.glob("*.snapshot"):
            path.unlink()
    log = open_log(log.directory, COMPACT, recovery_point=log.recovery_point)

    # then
    assert append(log, keyed([(b"key", b"x" * 100)], producer_id=5, sequence=11)).base_offset == 22
    assert append(log, keyed([(b"key", b"x" * 100)], producer_id=6, sequence=11)).duplicate
    with pytest.raises(ProducerError):
        append(log, keyed([(b"key", b"x")], producer_id=5, sequence=17))
    assert not append(log, keyed([(b"key", b"x")], producer_id=5, sequence=12)).duplicate


def test_a_producer_that_is_forgotten_leaves_no_batch(tmp_path: Path) -> None:
    log, history = open_log(tmp_path / "t-0", COMPACT), History()
    append(log, keyed([(b"key", b"x")], producer_id=5, sequence=0))
    history.records += found(log)
    compact_all(log, history, NOW_MS)
    assert 5 in {parse_header(batch).producer_id for batch in contents(log)}
    log.apply_retention(NOW_MS + 100 * HOUR_MS)

    history.put(log, [(b"key", b"y")])
    compact_all(log, history, NOW_MS + 100 * HOUR_MS)

    assert 5 not in {parse_header(batch).producer_id for batch in contents(log)}


# Other threads


def test_readers_and_the_writer_go_on_while_segments_are_replaced(tmp_path: Path) -> None:
    # given a reader that reads the log from start to end, over and over, while another thread compacts
    log, history = filled(tmp_path, rounds=100)
    compacted, stop = [], threading.Event()

    def compact() -> None:
        while not stop.is_set():
            done = log.compact(NOW_MS)
            if done is not None:
                compacted.append(done)

    worker = threading.Thread(target=compact)
    worker.start()
    try:
        for number in itertools.takewhile(lambda _: len(compacted) < 5, range(5000)):
            history.put(log, [(b"key-%d" % (number % 4), b"during %d" % number * 5)])
            # when
            seen: dict[bytes | None, int] = {}
            offset = log.start_offset
            while (region := log.read(offset, 700)) is not None:
                batch = region.read()
                header = parse_header(batch)
                seen |= {record.key: record.offset for record in decode_batch(batch)}
                offset = header.last_offset + 1
            # then it always ends up with the last record of each key
            assert seen == {key: record.offset for key, record in history.state().items()}
    finally:
        stop.set()
        worker.join()

    assert len(compacted) >= 5, "the control: there was something to disturb the reader"
    check(log, history)


def test_a_region_read_before_a_swap_stays_readable(tmp_path: Path) -> None:
    log, _ = filled(tmp_path)
    region = log.read(0, 10_000)
    assert region is not None
    before = region.read()

    assert log.compact(NOW_MS) is not None

    assert region.read() == before
    after = log.read(0, 10_000)
    assert after is not None
    assert after.read() != before


def test_closing_ends_a_compaction_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a compaction that is in the middle of a segment
    log, history = filled(tmp_path)
    reached, closing = threading.Event(), threading.Event()
    results: list[object] = []
    rewrite = compaction.Compaction._kept

    def slow(self: compaction.Compaction, *arguments: object) -> bytes | None:
        reached.set()
        assert closing.wait(10)
        return rewrite(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(compaction.Compaction, "_kept", slow)
    worker = threading.Thread(target=lambda: results.append(log.compact(NOW_MS)))
    worker.start()
    assert reached.wait(10)
    assert log.apply_retention(NOW_MS + 10**12) == [], "retention does not wait for it"

    # when
    closer = threading.Thread(target=log.close)
    closer.start()
    while not log._cleaner._is_closing:
        pass
    closing.set()
    closer.join(10)
    worker.join(10)

    # then it gave up and left nothing behind
    assert results == [None]
    assert shape(log).others == []
    assert log.compact(NOW_MS) is None
    check(open_log(log.directory, COMPACT, clean=True), history)


def test_a_pass_asks_whether_to_go_on_every_few_milliseconds_of_work(tmp_path: Path) -> None:
    """Where it asks, the broker's worker takes a break, so that the event loop has its turn."""
    # given four megabytes in batches of a usual size
    log = open_log(tmp_path / "t-0", replace(COMPACT, segment_bytes=1 << 20))
    for number in range(400):
        append(log, keyed([(b"key-%d" % (n % 37), b"%d " % number * 20) for n in range(100)]))
    asked: list[float] = []

    # when it is compacted
    def go_on() -> bool:
        asked.append(time.thread_time())
        return False

    assert log.compact(NOW_MS, go_on) is not None

    # then it never worked for long in between; by its own time, not by that of a busy machine
    assert len(asked) > 600
    assert max(later - earlier for earlier, later in itertools.pairwise(asked)) < 0.02


def test_a_pass_can_be_stopped(tmp_path: Path) -> None:
    log, history = filled(tmp_path)

    assert log.compact(NOW_MS, lambda: True) is None

    assert log.first_dirty_offset == 0
    check(log, history)
    assert log.compact(NOW_MS, lambda: False) is not None


# The checkpoint


def test_how_far_a_log_is_compacted_is_remembered(tmp_path: Path) -> None:
    directory, log, history = started(tmp_path)
    for number in range(40):
        history.put(log, [(b"key-%d" % (number % 4), b"x" * 60)])
    assert log.compact(NOW_MS) is not None
    directory.write_cleaner_offsets({("t", 0): log})
    directory.close({("t", 0): log}, clean=False)

    reached = log.first_dirty_offset
    directory, log, _ = started(tmp_path)

    assert log.first_dirty_offset == reached > 0
    assert checkpoint.read_offsets(tmp_path / checkpoint.CLEANER_OFFSETS) == {("t", 0): reached}
    assert log.compact(NOW_MS) is None
    directory.close({("t", 0): log})


def test_a_new_log_of_the_same_name_does_not_inherit_it(tmp_path: Path) -> None:
    """Or tombstones would be dropped before what they hide."""
    # given a checkpoint that a deleted topic left behind
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 10\n")
    directory, log, history = started(tmp_path)
    assert log.first_dirty_offset == 0

    # when the new log has grown as long, and the process was killed
    for number in range(40):
        history.put(log, [(b"key", b"x" * 60 if number < 5 else None)])
    directory.close({("t", 0): log}, clean=False)
    directory, log, _ = started(tmp_path)

    # then
    assert log.first_dirty_offset == 0
    for hours in (0, 2, 4):
        compact_all(log, history, NOW_MS + hours * HOUR_MS)
        check(log, history)
    directory.close({("t", 0): log})


# A model


_KEYS = st.sampled_from([b"a", b"b", b"c", b"long key " * 5])
_PAIRS = st.lists(st.tuples(_KEYS, st.one_of(st.none(), st.binary(max_size=60))), min_size=1, max_size=5)
_STEPS = st.one_of(
    st.tuples(st.just("put"), _PAIRS, st.sampled_from(list(Codec))),
    st.tuples(st.just("put"), _PAIRS, st.just(Codec.NONE)),
    st.tuples(st.just("compact"), st.integers(0, 2 * HOUR_MS), st.sampled_from([300, 1000, 10**8])),
    st.tuples(st.just("roll"), st.none(), st.none()),
    st.tuples(st.just("reopen"), st.booleans(), st.none()),
    st.tuples(st.just("kill"), st.integers(1, 60), st.none()),
)


class Killed(BaseException):
    """The process is gone: nothing reaches the disk any more."""


def killed_at(number: int):  # type: ignore[no-untyped-def]
    left = [number]

    def fault(_: str) -> None:
        left[0] -= 1
        if left[0] <= 0:
            raise Killed

    return fault


@settings(max_examples=150, deadline=None)
@given(steps=st.lists(_STEPS, min_size=5, max_size=60))
def test_any_sequence_keeps_every_last_value_and_no_deleted_key(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, object, object]]
) -> None:
    directory, history, now_ms = tmp_path_factory.mktemp("model") / "t-0", History(), NOW_MS
    log = open_log(directory, COMPACT)
    with pytest.MonkeyPatch.context() as patch:
        for kind, what, extra in steps:
            if kind == "put":
                history.put(log, what, now_ms, extra)  # type: ignore[arg-type]
            elif kind == "roll":
                roll(log)
            elif kind == "compact":
                now_ms += what  # type: ignore[operator]
                log.config = config(compaction_memory_bytes=extra)
                log.compact(now_ms)
            else:
                if kind == "kill":
                    patch.setattr(disk, "fault", killed_at(what))  # type: ignore[arg-type]
                    with contextlib.suppress(Killed):
                        log.compact(now_ms)
                    patch.setattr(disk, "fault", None)
                clean = kind == "reopen" and bool(what)
                log.close(clean)
                log = open_log(
                    directory,
                    COMPACT,
                    clean=clean,
                    recovery_point=log.recovery_point,
                    first_dirty_offset=log.first_dirty_offset,
                )
            check(log, history)


# Help


def roll(log: PartitionLog) -> None:
    with log.lock:
        if log.segments[-1].size:
            log.roll(NOW_MS)


def compact_all(log: PartitionLog, history: History, now_ms: int) -> compaction.Compacted:
    """Close the active segment with something in it, and compact."""
    history.put(log, [(b"filler", b"%d" % len(history.records))], now_ms)
    roll(log)
    done = log.compact(now_ms)
    assert done is not None
    return done


def tombstones(log: PartitionLog) -> list[int]:
    return [record.offset for record in found(log) if record.value is None]


def started(path: Path) -> tuple[DataDirectory, PartitionLog, History]:
    directory = DataDirectory.open(path, node_id=1)
    return directory, directory.open_log("t", 0, COMPACT, now_ms=NOW_MS), History()
