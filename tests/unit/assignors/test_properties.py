"""What holds for range and round robin whatever the group, and for every assignor whatever nonsense it is given."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.assignors import ASSIGNORS, Cluster, MemberSubscription, RangeAssignor, RoundRobinAssignor, assignor
from holdfast.assignors.interface import Assignor
from tests.support.assignments import (
    Group,
    check_owners,
    check_well_formed,
    groups,
    plain,
    shuffled,
    spread_of_totals,
)

both = pytest.mark.parametrize("strategy", [RangeAssignor(), RoundRobinAssignor()], ids=lambda one: str(one.name))
each = pytest.mark.parametrize("name", ASSIGNORS)


@both
@given(group=groups(racks=True))
def test_every_subscribed_partition_has_one_owner(strategy: Assignor, group: Group) -> None:
    assignments = strategy.assign(*group)

    check_well_formed(group, assignments)
    check_owners(group, assignments)


@both
@given(group=groups(racks=True), seed=st.integers(0, 9))
def test_the_order_of_the_members_does_not_matter(strategy: Assignor, group: Group, seed: int) -> None:
    assert strategy.assign(*group) == strategy.assign(*shuffled(group, seed))


@given(groups(equal=True))
def test_round_robin_with_equal_subscriptions_is_balanced_to_within_one(group: Group) -> None:
    assert spread_of_totals(RoundRobinAssignor().assign(*group)) <= 1


@given(groups(racks=True))
def test_range_balances_every_topic_to_within_one_racks_or_not(group: Group) -> None:
    cluster, subscriptions = group
    assignments = plain(RangeAssignor().assign(*group))

    for topic in cluster.partitions:
        of_topic = [
            len(assignments[who].get(topic, ())) for who, reported in subscriptions.items() if topic in reported.topics
        ]
        assert max(of_topic, default=0) - min(of_topic, default=0) <= 1


@given(groups(racks=True, equal=True))
def test_range_co_partitions_topics_of_equal_count_racks_or_not(group: Group) -> None:
    cluster, _ = group
    for assignment in plain(RangeAssignor().assign(*group)).values():
        by_count: dict[int, list[list[int]]] = {}
        for topic, numbers in assignment.items():
            by_count.setdefault(cluster.partitions[topic], []).append(numbers)
        assert all(numbers == alike[0] for alike in by_count.values() for numbers in alike)


HOSTILE: dict[str, Group] = {
    "nobody": (Cluster({"t": 3}), {}),
    "no topics at all": (Cluster({}), {"a": MemberSubscription(["t"])}),
    "a negative count": (Cluster({"t": -5, "u": 1}), {"a": MemberSubscription(["t", "u"])}),
    "an empty topic": (Cluster({"t": 0}), {"a": MemberSubscription(["t"])}),
    "a topic named twice": (Cluster({"t": 3}), {"a": MemberSubscription(["t", "t"]), "b": MemberSubscription(["t"])}),
    "a topic that nobody reads": (Cluster({"t": 3, "u": 3}), {"a": MemberSubscription(["u"])}),
    "more racks than partitions": (
        Cluster({"t": 1, "gone": 0}, {"t": [frozenset("a")] * 9, "gone": [frozenset("a")], "never": [frozenset("b")]}),
        {"a": MemberSubscription(["t", "never"], rack="a"), "b": MemberSubscription(["t"], rack="b")},
    ),
    "forged claims": (
        Cluster({"t": 2}),
        {
            "a": MemberSubscription(["t"], b"\x7f\xff\xff\xff", {"t": [-1, 7, 0, 0], "gone": [1]}, 2**31 - 1),
            "b": MemberSubscription(["t"], b"", {"t": [0, 1]}, -5),
        },
    ),
    "the same instance id twice": (
        Cluster({"t": 2}),
        {who: MemberSubscription(["t"], group_instance_id="same") for who in "ab"},
    ),
    "names of all kinds": (
        Cluster({"": 1, "\ud800": 1, "/~0": 1}),
        {who: MemberSubscription(["", "\ud800", "/~0"]) for who in ("", "\udfff", "\U0001f600")},
    ),
}


@each
@pytest.mark.parametrize("group", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_groups_get_a_valid_assignment(name: str, group: Group) -> None:
    strategy = assignor(name)

    assignments = strategy.assign(*group)

    check_well_formed(group, assignments)
    if not strategy.allows_unassigned:
        check_owners(group, assignments, owners=2 if strategy.allows_multiple_owners else 1)


@each
def test_what_was_handed_in_is_left_as_it_was(name: str) -> None:
    def group() -> Group:
        topics = ["t", "u"]
        racks = {"t": [frozenset("a"), frozenset("b")], "u": [frozenset("b"), frozenset("a")]}
        return Cluster({"t": 2, "u": 2}, racks), {
            who: MemberSubscription(list(topics), owned={"t": [0]}, generation=1, rack=who) for who in "ab"
        }

    ours = group()
    assignor(name).assign(*ours)

    assert ours == group()
