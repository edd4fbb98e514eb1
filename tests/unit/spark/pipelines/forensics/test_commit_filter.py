"""Of the commits, those that tell something are left, and nothing of it is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.spark.pipelines.forensics.commit_filter import CommitFilter, HistoryRecord
from holdfast.spark.pipelines.forensics.records import RecordKind
from holdfast.wire.group_records import (
    GenerationKey,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_key,
    encode_value,
)
from tests.unit.spark.pipelines.forensics.histories import GROUP, TOPIC, History


def thinned(history: History, groups: list[str] | None = None) -> list[HistoryRecord]:
    return [*CommitFilter(groups).records(history.records)]


def kept(facts: list[HistoryRecord]) -> list[tuple[RecordKind, int | None, int | None, int | None]]:
    return [(RecordKind(one.kind), one.partition, one.before, one.after) for one in facts]


def test_the_first_commit_of_a_generation_is_left_and_the_rest_is_not() -> None:
    history = History()
    history.stored(10, 1, {"a": [0, 1]})
    for at in range(20, 30):
        history.commit(at, 0, at)
        history.commit(at, 1, at)
    history.stored(40, 2, {"a": [0, 1]})
    history.commit(50, 0, 50)
    history.commit(51, 0, 51)

    found = thinned(history)

    assert kept(found) == [
        (RecordKind.GROUP, None, None, None),
        (RecordKind.FIRST_COMMIT, 0, None, 20),
        (RecordKind.FIRST_COMMIT, 1, None, 20),
        (RecordKind.GROUP, None, None, None),
        (RecordKind.FIRST_COMMIT, 0, 29, 50),
    ]
    assert {(one.group_id, one.topic) for one in found} == {(GROUP, TOPIC), (GROUP, None)}


def test_every_commit_of_a_lower_offset_is_kept() -> None:
    history = History()
    for at, offset in enumerate([5, 9, 9, 7, 8, 3]):
        history.commit(at, 0, offset)

    assert kept(thinned(history)) == [
        (RecordKind.FIRST_COMMIT, 0, None, 5),
        (RecordKind.COMMIT_BACK, 0, 9, 7),
        (RecordKind.COMMIT_BACK, 0, 8, 3),
    ]


def test_a_deleted_offset_starts_again() -> None:
    """The control: without the deletion the second commit goes back."""
    for deletes in (True, False):
        history = History()
        history.commit(1, 0, 100)
        if deletes:
            history.commit(2, 0, None)
        history.commit(3, 0, 1)

        assert [one.kind for one in thinned(history)] == [
            RecordKind.FIRST_COMMIT,
            RecordKind.FIRST_COMMIT if deletes else RecordKind.COMMIT_BACK,
        ]


def test_versions_of_kafka_and_offsets_with_metadata_are_read_alike() -> None:
    history = History()
    key = encode_key(OffsetCommitKey(GROUP, TOPIC, 3))
    for at, (version, offset) in enumerate([(3, 40), (4, 30), (1, 20), (0, 10)]):
        history.record(at, key, encode_value(OffsetCommitValue(offset, -1, "said by a client", at), version))

    assert kept(thinned(history)) == [
        (RecordKind.FIRST_COMMIT, 3, None, 40),
        (RecordKind.COMMIT_BACK, 3, 40, 30),
        (RecordKind.COMMIT_BACK, 3, 30, 20),
        (RecordKind.COMMIT_BACK, 3, 20, 10),
    ]


def test_what_is_not_known_is_counted_and_named_and_the_rest_is_read() -> None:
    history = History()
    commit = encode_key(OffsetCommitKey(GROUP, TOPIC, 0))
    history.commit(1, 0, 5)
    history.record(2, b"\x00\x03\x00\x01g", b"of a newer kind of group")
    history.record(3, commit, b"\x00\x63" + bytes(30))
    history.record(4, commit, b"\x00\x03\x00")
    history.record(5, None, b"")
    history.record(6, b"\x00", b"")
    history.record(7, encode_key(GenerationKey(GROUP)), None)
    history.commit(8, 0, 4)

    thinning = CommitFilter()
    found = [*thinning.records(history.records)]

    assert kept(found) == [(RecordKind.FIRST_COMMIT, 0, None, 5), (RecordKind.COMMIT_BACK, 0, 5, 4)]
    assert thinning.unreadable == {
        "__consumer_offsets: key version 3": 1,
        "__consumer_offsets: an offset, value version 99": 1,
        "__consumer_offsets: a damaged record of key version 1": 1,
        "__consumer_offsets: a record without a key": 1,
        "__consumer_offsets: key version -1": 1,
    }
    first = next(thinning.unreadable_counts())
    assert (first.kind, first.body, first.after) == (RecordKind.UNREADABLE, b"__consumer_offsets: key version 3", 1)


def test_unknown_kinds_are_distinguished_up_to_a_limit() -> None:
    history = History()
    for version in range(100, 400):
        history.record(version, version.to_bytes(2, "big"), b"")

    thinning = CommitFilter()
    assert [*thinning.records(history.records)] == []

    assert sum(thinning.unreadable.values()) == 300
    assert thinning.unreadable["__consumer_offsets: others"] == 250


def test_only_the_groups_that_were_asked_for_are_left() -> None:
    history, other = History(), History("another")
    for one in (history, other):
        one.stored(1, 1, {"a": [0]})
        one.commit(2, 0, 7)
        one.commit(3, 0, 6)
    history.records += other.records

    assert {one.group_id for one in thinned(history, [GROUP])} == {GROUP}
    assert {one.group_id for one in thinned(history)} == {GROUP, "another"}, "the control"


@given(
    st.lists(
        st.one_of(
            st.just("stored"),
            st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 5)),
        ),
        max_size=60,
    )
)
def test_every_step_back_is_found_and_every_partition_of_a_generation(steps: list[object]) -> None:
    history = History()
    last: dict[tuple[str, int], int] = {}
    backs, firsts = [], []
    seen: set[tuple[str, int]] = set()
    for at, step in enumerate(steps):
        if step == "stored":
            history.stored(at, at, {"m": [0]})
            seen.clear()
            continue
        assert isinstance(step, tuple)
        topic, partition, offset = step
        history.commit(at, partition, offset, topic)
        where = (topic, partition)
        if offset < last.get(where, 0):
            backs.append((at, where, last[where], offset))
        elif where not in seen:
            firsts.append((at, where, offset))
        seen.add(where)
        last[where] = offset

    found = thinned(history)

    assert [
        (one.at_ms, (one.topic, one.partition), one.before, one.after)
        for one in found
        if one.kind == RecordKind.COMMIT_BACK
    ] == backs
    assert [
        (one.at_ms, (one.topic, one.partition), one.after) for one in found if one.kind == RecordKind.FIRST_COMMIT
    ] == firsts
