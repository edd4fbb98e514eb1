"""Idempotent producers: what is appended, what is a repetition, what is refused."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.log.errors import ProducerError
from holdfast.log.producer_state import CorruptSnapshot, ProducerState, StoredBatch
from holdfast.wire.batch import BatchHeader
from tests.unit.log.samples import NOW_MS, sample

LAST = 2**31 - 1


def header(count: int = 1, *, sequence: int, epoch: int = 0, producer_id: int = 1) -> BatchHeader:
    return sample(count, producer_id=producer_id, epoch=epoch, sequence=sequence)[0].header


def stored(state: ProducerState, *headers: BatchHeader, offset: int = 0) -> ProducerState:
    for each in headers:
        assert state.check_all([each]) is None
        state.update(each, offset, each.max_timestamp, NOW_MS)
        offset += each.record_count
    return state


def refusal(state: ProducerState, *headers: BatchHeader) -> int:
    with pytest.raises(ProducerError) as error:
        state.check_all(headers)
    return error.value.code


def test_a_sequence_continues_where_it_ended() -> None:
    state = stored(ProducerState(), header(3, sequence=0), header(2, sequence=3))

    assert state.check_all([header(sequence=5)]) is None
    assert refusal(state, header(sequence=6)) == 45
    assert refusal(state, header(sequence=4)) == 45


def test_an_unknown_producer_may_start_anywhere() -> None:
    assert ProducerState().check_all([header(sequence=1000)]) is None


@pytest.mark.parametrize("age", range(5))
def test_the_last_five_batches_are_recognised(age: int) -> None:
    batches = [header(2, sequence=2 * number) for number in range(8)]
    state = stored(ProducerState(), *batches)

    repeated = state.check_all([batches[-1 - age]])

    first_offset = 2 * (7 - age)
    expected = (first_offset, first_offset + 1, first_offset, first_offset + 1, NOW_MS + 1)
    assert repeated == StoredBatch(*expected)


def test_the_sixth_is_out_of_order() -> None:
    batches = [header(2, sequence=2 * number) for number in range(8)]
    state = stored(ProducerState(), *batches)

    assert refusal(state, batches[2]) == 45


def test_a_repetition_must_have_the_same_range() -> None:
    state = stored(ProducerState(), header(3, sequence=0))

    assert refusal(state, header(2, sequence=0)) == 45


def test_an_older_epoch_is_fenced() -> None:
    state = stored(ProducerState(), header(sequence=0, epoch=3))

    assert refusal(state, header(sequence=1, epoch=2)) == 47
    assert refusal(state, header(sequence=0, epoch=2)) == 47, "even one that looks like a repetition"


def test_a_new_epoch_starts_at_zero() -> None:
    state = stored(ProducerState(), header(sequence=0), header(sequence=1))

    assert refusal(state, header(sequence=2, epoch=1)) == 45
    stored(state, header(sequence=0, epoch=1), offset=2)
    assert refusal(state, header(sequence=1, epoch=0)) == 47
    assert state.check_all([header(sequence=1, epoch=1)]) is None


def test_the_sequence_wraps_after_the_largest() -> None:
    across = header(4, sequence=LAST - 1)
    state = stored(ProducerState(), header(1, sequence=LAST - 2), across)

    assert state.check_all([header(sequence=2)]) is None
    assert state.check_all([across]) is not None, "and is recognised across the edge"
    assert refusal(state, header(sequence=LAST)) == 45
    assert stored(ProducerState(), header(1, sequence=LAST)).check_all([header(sequence=0)]) is None


def test_producers_do_not_know_of_each_other() -> None:
    state = stored(ProducerState(), header(sequence=0, producer_id=1))

    assert state.check_all([header(sequence=0, producer_id=2)]) is None


def test_batches_of_one_request_follow_each_other() -> None:
    state = stored(ProducerState(), header(sequence=0))

    assert state.check_all([header(2, sequence=1), header(1, sequence=3)]) is None
    assert refusal(state, header(2, sequence=1), header(1, sequence=4)) == 45
    assert refusal(state, header(sequence=0), header(sequence=1)) == 46, "half of it is stored already"


def test_a_batch_without_a_producer_is_never_checked() -> None:
    assert ProducerState().check_all([sample()[0].header]) is None


def test_a_silent_producer_is_forgotten() -> None:
    state = stored(ProducerState(), header(sequence=0, producer_id=1), header(sequence=0, producer_id=2))
    state.update(header(sequence=1, producer_id=2), 2, 0, NOW_MS + 500)

    assert state.expire(NOW_MS + 999, 1000) == 0
    assert state.expire(NOW_MS + 1000, 1000) == 1

    assert state.get(1) is None
    assert state.get(2) is not None, "though its records' timestamps are older"


entries = st.lists(
    st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, LAST), st.integers(1, 50)),
    max_size=10,
    unique_by=lambda entry: entry[0],
)


@given(plan=entries)
def test_a_snapshot_brings_back_each_producers_last_batch(plan: list[tuple[int, int, int, int]]) -> None:
    state = ProducerState()
    last = [
        header(count, sequence=sequence, epoch=epoch, producer_id=producer_id)
        for producer_id, epoch, sequence, count in plan
    ]
    stored(state, *last)

    restored = ProducerState.from_snapshot(state.to_snapshot(), NOW_MS)

    assert len(restored) == len(plan)
    for each in last:
        assert restored.check_all([each]) == state.check_all([each]) is not None


def test_the_snapshots_layout_is_kafkas() -> None:
    state = stored(ProducerState(), header(3, sequence=4, epoch=2, producer_id=9), offset=100)

    data = state.to_snapshot()

    assert len(data) == 2 + 4 + 4 + 46
    version, _, count = struct.unpack_from(">hIi", data)
    assert (version, count) == (1, 1)
    fields = struct.unpack_from(">qhiqiqiq", data, 10)
    assert fields == (9, 2, 6, 102, 2, NOW_MS + 2, -1, -1)


@given(cut=st.integers(0, 200), flip=st.integers(0, 199))
def test_a_torn_or_changed_snapshot_is_refused(cut: int, flip: int) -> None:
    state = ProducerState()
    for producer_id in range(5):
        stored(state, header(sequence=0, producer_id=producer_id))
    data = bytearray(state.to_snapshot())
    assert ProducerState.from_snapshot(bytes(data), NOW_MS)

    with pytest.raises(CorruptSnapshot):
        ProducerState.from_snapshot(bytes(data[:cut]), NOW_MS)
    data[flip] ^= 0x40
    with pytest.raises(CorruptSnapshot):
        ProducerState.from_snapshot(bytes(data), NOW_MS)
