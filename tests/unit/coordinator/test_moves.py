"""What counts as a moved partition: what a member had and has no longer, however many owners a partition has."""

from __future__ import annotations

import pytest

from holdfast.coordinator.ledger import Event, EventKind
from holdfast.coordinator.moves import changed_owner, moved_partitions, partition_count
from holdfast.wire.consumer_protocol import EMPTY_ASSIGNMENT, Assignment, TopicPartitions, encode_assignment
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.bench import Bench
from tests.unit.coordinator.scene import Consumer, keep_alive, pair, stable

Shares = dict[str, set[int]]


def written(shares: Shares) -> dict[str, bytes]:
    return {
        member: encode_assignment(Assignment([TopicPartitions("t", sorted(numbers))])) if numbers else EMPTY_ASSIGNMENT
        for member, numbers in shares.items()
    }


def moved(before: Shares, after: Shares) -> int | None:
    return moved_partitions(written(before), written(after))


@pytest.mark.parametrize(
    ("what", "before", "after", "expected"),
    [
        ("nothing changed", {"a": {0, 1}, "b": {2}}, {"a": {0, 1}, "b": {2}}, 0),
        ("two handed over", {"a": {0, 1, 2}, "b": {3}}, {"a": {0}, "b": {1, 2, 3}}, 2),
        ("two swapped", {"a": {0}, "b": {1}}, {"a": {1}, "b": {0}}, 2),
        ("a newcomer gets one", {"a": {0, 1}}, {"a": {0}, "b": {1}}, 1),
        ("partitions added", {"a": {0}, "b": {1}}, {"a": {0, 2}, "b": {1, 3}}, 0),
        ("of one that is gone", {}, {"a": {0, 1}}, 0),
    ],
)
def test_partitions_with_one_owner(what: str, before: Shares, after: Shares, expected: int) -> None:
    assert moved(before, after) == expected, what


@pytest.mark.parametrize(
    ("what", "before", "after", "expected"),
    [
        ("nothing changed", {"a": {0, 1}, "b": {0, 1}}, {"a": {0, 1}, "b": {0, 1}}, 0),
        ("the same, told the other way round", {"a": {0, 1}, "b": {0, 1}}, {"b": {0, 1}, "a": {0, 1}}, 0),
        ("one of two owners is another", {"a": {0}, "b": {0}, "c": set()}, {"a": {0}, "b": set(), "c": {0}}, 1),
        ("both owners are others", {"a": {0}, "b": {0}}, {"a": set(), "b": set(), "c": {0}, "d": {0}}, 1),
        ("a second owner", {"a": {0}, "b": set()}, {"a": {0}, "b": {0}}, 0),
        ("a third member", {"a": {0, 1, 2}, "b": {0, 1, 2}}, {"a": {0, 1}, "b": {0, 2}, "c": {1, 2}}, 2),
    ],
)
def test_partitions_with_several_owners(what: str, before: Shares, after: Shares, expected: int) -> None:
    """A partition counts once, whichever of its owners is another."""
    assert moved(before, after) == expected, what


def test_kip_429_a_cooperative_hand_over_counts_in_the_generation_that_revokes_and_not_again() -> None:
    before, between, after = {"a": {0, 1}, "b": set[int]()}, {"a": {0}, "b": set[int]()}, {"a": {0}, "b": {1}}

    assert [moved(before, between), moved(between, after)] == [1, 0]


def test_members_that_were_given_no_bytes_have_nothing() -> None:
    assert moved_partitions({"a": b""}, {"a": b""}) == 0


@pytest.mark.parametrize("which", ["before", "after"])
def test_bytes_of_another_protocol_are_not_counted(which: str) -> None:
    good, bad = written({"a": {0}}), {"a": b"\x00\x01\xff"}

    assert moved_partitions(*((bad, good) if which == "before" else (good, bad))) is None


# -- those of members that went ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "before", "after", "gone", "expected"),
    [
        ("one died, another has it all", {"a": {0}}, {"a": {0, 1, 2}}, {"b": {1, 2}}, 2),
        ("and something moved as well", {"a": {0}, "c": {3}}, {"a": {1, 3}, "c": {0, 2}}, {"b": {1, 2}}, 4),
        ("nobody has it", {"a": {0}}, {"a": {0}}, {"b": {1, 2}}, 0),
        ("it came back for a part of it", {"a": {0}}, {"a": {0, 1}, "b": {2}}, {"b": {1, 2}}, 1),
        ("it came back for all of it", {"a": {0}}, {"a": {0}, "b": {1, 2}}, {"b": {1, 2}}, 0),
        ("one of two owners died", {"a": {0}}, {"a": {0}, "c": {0}}, {"b": {0}}, 1),
    ],
)
def test_partitions_that_changed_owner(what: str, before: Shares, after: Shares, gone: Shares, expected: int) -> None:
    assert changed_owner(written(before), written(after), written(gone)) == expected, what


def test_a_share_of_another_protocol_is_not_counted() -> None:
    good, bad = written({"a": {0}}), {"b": b"\x00\x01\xff"}

    assert changed_owner(good, good, bad) is None
    assert [partition_count(share) for share in (good["a"], bad["b"])] == [1, None]


def owning(*numbers: int) -> bytes:
    return written({"": set(numbers)})[""]


def dead_and_taken_over(bench: Bench, instance: str | None, *, comes_back: bool = False) -> Event:
    """What the ledger tells of the assignment after the second of two members was silent for its session."""
    first = Consumer(bench, instance="L", assignment=owning(0, 1), session_ms=60_000)
    second = Consumer(bench, instance=instance, assignment=owning(2, 3), session_ms=1_000)
    stable(first, second)
    keep_alive(1_200, first)
    assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "the session has ended"
    if comes_back:
        second = second.restarted(assignment=owning(2, 3))
        second.join()
    else:
        first.assignment = owning(0, 1, 2, 3)
    first.join()
    second.take()
    first.sync(*([second] if comes_back else []))
    return bench.told(EventKind.ASSIGNED)[-1]


@pytest.mark.parametrize("instance", ["F", None], ids=["static", "dynamic"])
def test_the_ledger_counts_what_was_taken_over_from_a_member_that_died(instance: str | None) -> None:
    event = dead_and_taken_over(Bench(), instance)

    assert (event.moved_partitions, event.changed_owner) == (0, 2)


def test_control_of_a_static_member_that_is_back_in_time_nothing_is_taken_over() -> None:
    event = dead_and_taken_over(Bench(), "F", comes_back=True)

    assert (event.moved_partitions, event.changed_owner) == (0, 0)


def test_control_without_a_death_both_counts_are_the_same() -> None:
    bench = Bench()
    first, second = pair(bench)
    first.assignment, second.assignment = owning(0, 1, 2), owning(3)
    for numbers, more in (((0, 1, 2), (3,)), ((0,), (1, 2, 3))):
        first.assignment, second.assignment = owning(*numbers), owning(*more)
        first.join()
        second.join()
        first.take()
        first.sync(second)

    event = bench.told(EventKind.ASSIGNED)[-1]
    assert (event.moved_partitions, event.changed_owner) == (2, 2)


def test_what_a_group_that_became_empty_had_is_nobodys_any_more() -> None:
    bench = Bench()
    alone = Consumer(bench, assignment=owning(0, 1))
    stable(alone)
    alone.leave()

    stable(Consumer(bench, assignment=owning(0, 1)))

    assert bench.told(EventKind.ASSIGNED)[-1].changed_owner == 0


@pytest.mark.parametrize(
    ("protocol_type", "cause"),
    [("consumer", "a member changed its subscription"), ("connect", "a member changed its metadata")],
)
def test_only_consumers_have_a_subscription_to_change(protocol_type: str, cause: str) -> None:
    bench = Bench()
    leader = bench.join(instance="A", protocol_type=protocol_type)
    bench.advance(500)
    bench.sync(leader.member_id, 1, {leader.member_id: b"\x01"}, instance="A", protocol_type=protocol_type)

    bench.join(leader.member_id, instance="A", metadata=b"other", protocol_type=protocol_type)

    assert bench.told(EventKind.REBALANCE_STARTED)[-1].cause == cause
