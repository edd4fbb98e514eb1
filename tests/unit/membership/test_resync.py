"""What a leader hands out without a rebalance when a topic grows, and when it must not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.assignors import CooperativeStickyAssignor, RangeAssignor, RoundRobinAssignor, StickyAssignor
from holdfast.assignors.interface import Assignor, Cluster, MemberAssignment, MemberSubscription
from holdfast.membership.assignment import perform_assignment
from holdfast.membership.resync import Growth, Leader, plan_growth
from holdfast.wire.apis.describe_groups import DescribedGroup, DescribedGroupMember, GroupExtensions
from holdfast.wire.consumer_protocol import (
    EMPTY_ASSIGNMENT,
    Assignment,
    Subscription,
    TopicPartitions,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)

GENERATION, EPOCH = 4, 4_000_002
Assignments = Mapping[str, Sequence[int]]


def assignment(numbers: Sequence[int], topic: str = "t") -> bytes:
    return encode_assignment(Assignment([TopicPartitions(topic, list(numbers))] if numbers else []))


def member(member_id: str, numbers: Sequence[int], topics: Sequence[str] = ("t",)) -> DescribedGroupMember:
    """As it described itself before this generation, when it had nothing yet."""
    said = encode_subscription(Subscription(list(topics)))
    return DescribedGroupMember(member_id, None, "client", "/host", said, assignment(numbers))


def group(assignments: Assignments, protocol: str = "cooperative-sticky") -> DescribedGroup:
    return DescribedGroup(
        group_id="g",
        group_state="Stable",
        protocol_type="consumer",
        protocol_data=protocol,
        members=[member(member_id, numbers) for member_id, numbers in assignments.items()],
        extensions=GroupExtensions(
            generation_id=GENERATION, assignment_epoch=EPOCH, leader="a", settled=True, standbys=[]
        ),
    )


def leader(*assignors: Assignor) -> Leader:
    return Leader("a", GENERATION, {one.name: one for one in assignors or (CooperativeStickyAssignor(),)})


def numbers_of(growth: Growth | None) -> dict[str, list[int]]:
    assert growth is not None
    return {
        member_id: [number for entry in decode_assignment(data).assigned_partitions for number in entry.partitions]
        for member_id, data in growth.assignments.items()
    }


@pytest.mark.parametrize("assignor", [CooperativeStickyAssignor, StickyAssignor, RoundRobinAssignor])
def test_new_partitions_are_added_to_the_current_assignments(assignor: Callable[[], Assignor]) -> None:
    made = assignor()

    found = plan_growth(leader(made), Cluster({"t": 6}), {"t"}, group({"a": [0, 2], "b": [1, 3]}, made.name))

    assert found is not None and found.epoch == EPOCH
    grown = numbers_of(found)
    assert grown["a"][:2] == [0, 2] and grown["b"][:2] == [1, 3]
    assert sorted(grown["a"] + grown["b"]) == list(range(6))


def test_only_members_that_get_more_are_named() -> None:
    found = plan_growth(leader(), Cluster({"t": 4}), {"t"}, group({"a": [0, 2], "b": [1]}))

    assert numbers_of(found) == {"b": [1, 3]}


def test_range_takes_from_one_to_give_to_the_next_so_it_needs_a_rebalance() -> None:
    assignments = {"a": [0, 1], "b": [2, 3]}

    assert plan_growth(leader(RangeAssignor()), Cluster({"t": 6}), {"t"}, group(assignments, "range")) is None


def test_a_single_member_can_have_all_of_it_with_range_too() -> None:
    found = plan_growth(leader(RangeAssignor()), Cluster({"t": 3}), {"t"}, group({"a": [0, 1]}, "range"))

    assert numbers_of(found) == {"a": [0, 1, 2]}


def test_members_that_wait_get_nothing_and_are_not_counted() -> None:
    described = group({"a": [0], "b": [1]})
    described.members.append(replace(member("waits", []), member_assignment=EMPTY_ASSIGNMENT))
    assert described.extensions is not None
    described = replace(described, extensions=replace(described.extensions, standbys=["waits"]))

    assert numbers_of(plan_growth(leader(), Cluster({"t": 4}), {"t"}, described)).keys() == {"a", "b"}


def changed(**facts: object) -> DescribedGroup:
    described = group({"a": [0], "b": [1]})
    assert described.extensions is not None
    of_extensions = {name: value for name, value in facts.items() if hasattr(described.extensions, name)}
    others = {name: value for name, value in facts.items() if name not in of_extensions}
    return replace(described, extensions=replace(described.extensions, **of_extensions), **others)  # type: ignore[arg-type]


def test_control_the_group_of_the_next_test_grows_when_all_is_as_remembered() -> None:
    assert numbers_of(plan_growth(leader(), Cluster({"t": 4}), {"t"}, changed())).keys() == {"a", "b"}


@pytest.mark.parametrize(
    "facts",
    [
        {"group_state": "PreparingRebalance"},
        {"protocol_type": "connect"},
        {"protocol_data": "somebody-elses"},
        {"settled": False},
        {"leader": "b"},
        {"generation_id": GENERATION + 1},
        {"standbys": ["a"]},
        {"members": [member("a", [0]), replace(member("b", []), member_assignment=b"\x00")]},
        {"members": [member("a", [0]), member("b", [1], ["t", "u"])]},
        {"members": [member("a", [0, 1]), member("b", [1])]},
    ],
    ids=lambda facts: next(iter(facts)),
)
def test_whatever_is_not_as_the_leader_remembers_it_takes_a_rebalance(facts: dict[str, object]) -> None:
    assert plan_growth(leader(), Cluster({"t": 4}), {"t"}, changed(**facts)) is None


def test_a_coordinator_without_extensions_cannot_be_resynced() -> None:
    described = replace(group({"a": [0], "b": [1]}), extensions=None)

    assert plan_growth(leader(), Cluster({"t": 4}), {"t"}, described) is None


def test_nothing_grown_is_no_growth() -> None:
    assert plan_growth(leader(), Cluster({"t": 2}), {"t"}, group({"a": [0], "b": [1]})) is None


class Failing(Assignor):
    name = "failing"

    def assign(
        self, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]
    ) -> Mapping[str, MemberAssignment]:
        raise KeyError("t")


def test_an_assignor_that_fails_shows_that_in_a_rebalance() -> None:
    assert plan_growth(leader(Failing()), Cluster({"t": 4}), {"t"}, group({"a": [0], "b": [1]}, "failing")) is None


class Numbered(RoundRobinAssignor):
    """Tells everybody how many they are given in all."""

    name = "numbered"

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, MemberAssignment]:
        total = str(sum(cluster.partitions.values())).encode()
        return {
            member_id: MemberAssignment(given.partitions, total)
            for member_id, given in super().assign(cluster, subscriptions).items()
        }


def test_a_member_with_new_user_data_but_the_same_partitions_needs_a_rebalance() -> None:
    """A member that is not asked to rejoin would never learn of it."""
    assert plan_growth(leader(Numbered()), Cluster({"t": 3}), {"t"}, group({"a": [0], "b": [1]}, "numbered")) is None


@given(members=st.integers(1, 12), before=st.integers(1, 40), more=st.integers(1, 40), sticky=st.booleans())
def test_sticky_groups_always_grow_without_a_rebalance_and_stay_even(
    members: int, before: int, more: int, sticky: bool
) -> None:
    # given a group that has shared its topic
    assignor: Assignor = StickyAssignor() if sticky else CooperativeStickyAssignor()
    ids = ["a", *(f"m{number}" for number in range(1, members))]
    first = perform_assignment(assignor, Cluster({"t": before}), {one: MemberSubscription(("t",)) for one in ids})
    have = {one: list(_numbers(data)) for one, data in first.items()}

    # when it grows
    found = plan_growth(leader(assignor), Cluster({"t": before + more}), {"t"}, group(have, assignor.name))

    # then each has what it had, and all of it is shared evenly
    has = have | numbers_of(found)
    assert all(set(have[one]) <= set(has[one]) for one in ids)
    assert sorted(number for numbers in has.values() for number in numbers) == list(range(before + more))
    assert max(map(len, has.values())) - min(map(len, has.values())) <= 1


def _numbers(data: bytes) -> list[int]:
    return [number for entry in decode_assignment(data).assigned_partitions for number in entry.partitions]
