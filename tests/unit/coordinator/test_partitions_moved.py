"""What counts as a moved partition: what a member had and has no longer, however many owners a partition has."""

from __future__ import annotations

import pytest

from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.events.group_event import EventKind, GroupEvent
from holdfast.coordinator.events.partitions_moved import changed_owner, moved_partitions, partition_count
from holdfast.wire.consumer_protocol import EMPTY_ASSIGNMENT, Assignment, TopicPartitions, encode_assignment
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.harness import CoordinatorHarness
from tests.unit.coordinator.members import Consumer, keep_alive, pair, stable

Assignments = dict[str, set[int]]


def written(assignments: Assignments) -> dict[str, bytes]:
    return {
        member: encode_assignment(Assignment([TopicPartitions("t", sorted(numbers))])) if numbers else EMPTY_ASSIGNMENT
        for member, numbers in assignments.items()
    }


def moved(before: Assignments, after: Assignments) -> int | None:
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
def test_partitions_with_one_owner(what: str, before: Assignments, after: Assignments, expected: int) -> None:
    assert moved(before, after) == expected, what


@pytest.mark.parametrize(
    ("what", "before", "after", "expected"),
    [
        ("nothing changed", {"a": {0, 1}, "b": {0, 1}}, {"a": {0, 1}, "b": {0, 1}}, 0),
        ("the same, reported the other way round", {"a": {0, 1}, "b": {0, 1}}, {"b": {0, 1}, "a": {0, 1}}, 0),
        ("one of two owners is another", {"a": {0}, "b": {0}, "c": set()}, {"a": {0}, "b": set(), "c": {0}}, 1),
        ("both owners are others", {"a": {0}, "b": {0}}, {"a": set(), "b": set(), "c": {0}, "d": {0}}, 1),
        ("a second owner", {"a": {0}, "b": set()}, {"a": {0}, "b": {0}}, 0),
        ("a third member", {"a": {0, 1, 2}, "b": {0, 1, 2}}, {"a": {0, 1}, "b": {0, 2}, "c": {1, 2}}, 2),
    ],
)
def test_partitions_with_several_owners(what: str, before: Assignments, after: Assignments, expected: int) -> None:
    """A partition counts once, no matter which owner changed."""
    assert moved(before, after) == expected, what


def test_kip_429_a_cooperative_hand_over_counts_once_when_it_is_revoked() -> None:
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
def test_partitions_that_changed_owner(
    what: str, before: Assignments, after: Assignments, gone: Assignments, expected: int
) -> None:
    assert changed_owner(written(before), written(after), written(gone)) == expected, what


def test_an_assignment_of_another_protocol_is_not_counted() -> None:
    good, bad = written({"a": {0}}), {"b": b"\x00\x01\xff"}

    assert changed_owner(good, good, bad) is None
    assert [partition_count(assignment) for assignment in (good["a"], bad["b"])] == [1, None]


def owning(*numbers: int) -> bytes:
    return written({"": set(numbers)})[""]


def dead_and_taken_over(harness: CoordinatorHarness, instance: str | None, *, comes_back: bool = False) -> GroupEvent:
    """What the ledger tells of the assignment after the second of two members was silent for its session."""
    first = Consumer(harness, instance="L", assignment=owning(0, 1), session_ms=60_000)
    second = Consumer(harness, instance=instance, assignment=owning(2, 3), session_ms=1_000)
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
    return harness.events_of(EventKind.ASSIGNED)[-1]


@pytest.mark.parametrize("instance", ["F", None], ids=["static", "dynamic"])
def test_the_ledger_counts_what_was_taken_over_from_a_member_that_died(instance: str | None) -> None:
    event = dead_and_taken_over(CoordinatorHarness(), instance)

    assert (event.moved_partitions, event.changed_owner) == (0, 2)


def test_control_of_a_static_member_that_is_back_in_time_nothing_is_taken_over() -> None:
    event = dead_and_taken_over(CoordinatorHarness(), "F", comes_back=True)

    assert (event.moved_partitions, event.changed_owner) == (0, 0)


def test_control_without_a_death_both_counts_are_the_same() -> None:
    harness = CoordinatorHarness()
    first, second = pair(harness)
    first.assignment, second.assignment = owning(0, 1, 2), owning(3)
    for numbers, more in (((0, 1, 2), (3,)), ((0,), (1, 2, 3))):
        first.assignment, second.assignment = owning(*numbers), owning(*more)
        first.join()
        second.join()
        first.take()
        first.sync(second)

    event = harness.events_of(EventKind.ASSIGNED)[-1]
    assert (event.moved_partitions, event.changed_owner) == (2, 2)


def test_partitions_of_a_group_that_became_empty_have_no_owner() -> None:
    harness = CoordinatorHarness()
    alone = Consumer(harness, assignment=owning(0, 1))
    stable(alone)
    alone.leave()

    stable(Consumer(harness, assignment=owning(0, 1)))

    assert harness.events_of(EventKind.ASSIGNED)[-1].changed_owner == 0


@pytest.mark.parametrize(
    ("protocol_type", "cause"),
    [("consumer", CauseCode.SUBSCRIPTION_CHANGED), ("connect", CauseCode.METADATA_CHANGED)],
)
def test_only_consumers_have_a_subscription_to_change(protocol_type: str, cause: CauseCode) -> None:
    harness = CoordinatorHarness()
    leader = harness.join(instance="A", protocol_type=protocol_type)
    harness.advance(500)
    harness.sync(leader.member_id, 1, {leader.member_id: b"\x01"}, instance="A", protocol_type=protocol_type)

    harness.join(leader.member_id, instance="A", metadata=b"other", protocol_type=protocol_type)

    assert harness.events_of(EventKind.REBALANCE_STARTED)[-1].cause == Cause(cause)
