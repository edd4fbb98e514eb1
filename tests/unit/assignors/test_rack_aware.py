"""As near as balance allows, and never nearer at the cost of balance."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.assignors.interface import Cluster, MemberAssignment, MemberSubscription
from holdfast.assignors.rack_aware import RackAwareAssignor
from tests.support.assignments import (
    Group,
    check_owners,
    check_well_formed,
    groups,
    pairs,
    plain,
    shuffled,
    spread_of_totals,
)


def member(*topics: str, rack: str | None = None, data: bytes | None = None) -> MemberSubscription:
    return MemberSubscription(topics, data, rack=rack)


def racks(*of_partitions: str) -> list[frozenset[str]]:
    return [frozenset(letters) for letters in of_partitions]


def assigned(cluster: Cluster, group: dict[str, MemberSubscription]) -> dict[str, dict[str, list[int]]]:
    return plain(RackAwareAssignor().assign(cluster, group))


def near(group: Group, assignments: dict[str, MemberAssignment]) -> int:
    cluster, subscriptions = group
    return sum(
        subscriptions[who].rack in cluster.racks[topic][number]
        for topic, number, who in pairs(assignments)
        if subscriptions[who].rack
    )


def test_every_member_reads_from_its_own_rack() -> None:
    cluster = Cluster({"t": 4}, {"t": racks("a", "b", "a", "b")})

    assert assigned(cluster, {"1": member("t", rack="b"), "2": member("t", rack="a")}) == {
        "1": {"t": [1, 3]},
        "2": {"t": [0, 2]},
    }


def test_balance_has_priority_over_racks() -> None:
    cluster = Cluster({"t": 4}, {"t": racks("a", "a", "a", "a")})

    assert assigned(cluster, {"1": member("t", rack="b"), "2": member("t", rack="a")}) == {
        "1": {"t": [2, 3]},
        "2": {"t": [0, 1]},
    }


def test_small_topics_do_not_all_go_to_one_member() -> None:
    # Given many topics of one partition, all in one rack, where range would give the same member every one
    topics = [f"t{number}" for number in range(6)]
    cluster = Cluster(dict.fromkeys(topics, 1), {topic: racks("a") for topic in topics})
    group = {"1": member(*topics, rack="a"), "2": member(*topics, rack="b")}

    assert [len(assignment) for assignment in assigned(cluster, group).values()] == [3, 3]


def test_no_member_takes_a_partition_that_only_another_is_near_to() -> None:
    # Given a first member that is near to nothing but what the second one needs, and a partition near to both
    cluster = Cluster({"t": 2}, {"t": racks("ab", "a")})
    group = {"1": member("t", rack="a"), "2": member("t", rack="b")}

    assert assigned(cluster, group) == {"1": {"t": [1]}, "2": {"t": [0]}}


def test_a_near_member_gets_the_larger_quota() -> None:
    cluster = Cluster({"t": 3}, {"t": racks("b", "b", "a")})
    group = {"1": member("t", rack="a"), "2": member("t", rack="b")}

    assert assigned(cluster, group) == {"1": {"t": [2]}, "2": {"t": [0, 1]}}


def test_a_member_without_a_rack_takes_partitions_that_are_near_to_none() -> None:
    cluster = Cluster({"t": 4}, {"t": racks("c", "a", "", "a")})

    assert assigned(cluster, {"1": member("t"), "2": member("t", rack="a")}) == {"1": {"t": [0, 2]}, "2": {"t": [1, 3]}}


def test_without_racks_it_is_round_robin() -> None:
    assert assigned(Cluster({"t": 3}), {"1": member("t"), "2": member("t")}) == {"1": {"t": [0, 2]}, "2": {"t": [1]}}


def test_a_rack_may_come_as_user_data() -> None:
    data = RackAwareAssignor(rack="b").subscription_user_data(["t"])
    cluster = Cluster({"t": 2}, {"t": racks("a", "b")})

    assert assigned(cluster, {"1": member("t", data=data), "2": member("t", rack="a")})["1"] == {"t": [1]}
    # and the subscription's own field counts for more
    assert assigned(cluster, {"1": member("t", rack="a", data=data), "2": member("t", rack="b")})["1"] == {"t": [0]}


def test_without_a_rack_nothing_is_said() -> None:
    assert RackAwareAssignor().subscription_user_data(["t"]) is None


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", bytes(1000)], ids=["empty", "not text", "zeros"])
def test_user_data_that_names_no_known_rack_is_no_rack(data: bytes) -> None:
    cluster = Cluster({"t": 2}, {"t": racks("a", "b")})

    assert assigned(cluster, {"1": member("t", data=data), "2": member("t", rack="a")}) == {
        "1": {"t": [1]},
        "2": {"t": [0]},
    }


def test_unequal_subscriptions_are_balanced_among_the_subscribers_of_a_topic() -> None:
    cluster = Cluster({"t": 4, "u": 2}, {"t": racks("a", "a", "b", "b"), "u": racks("b", "b")})
    group = {"1": member("t", rack="a"), "2": member("t", "u", rack="b")}

    assert assigned(cluster, group) == {"1": {"t": [0, 1]}, "2": {"t": [2, 3], "u": [0, 1]}}


@given(groups(racks=True))
def test_every_partition_has_one_owner(group: Group) -> None:
    assignments = RackAwareAssignor().assign(*group)

    check_well_formed(group, assignments)
    check_owners(group, assignments)


@given(groups(equal=True, racks=True))
def test_with_equal_subscriptions_totals_differ_by_one_at_most(group: Group) -> None:
    assert spread_of_totals(RackAwareAssignor().assign(*group)) <= 1


@given(groups(racks=True), st.integers(0, 9))
def test_the_order_of_the_members_does_not_matter(group: Group, seed: int) -> None:
    assert plain(RackAwareAssignor().assign(*group)) == plain(RackAwareAssignor().assign(*shuffled(group, seed)))


@given(
    st.lists(st.frozensets(st.sampled_from("abc"), max_size=2), min_size=1, max_size=6),
    st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=3),
)
def test_no_balanced_assignment_is_nearer(of_partitions: list[frozenset[str]], of_members: list[str | None]) -> None:
    cluster = Cluster({"t": len(of_partitions)}, {"t": of_partitions})
    group = {str(number): member("t", rack=rack) for number, rack in enumerate(of_members)}

    nearest = max(
        sum(of_members[who] in where for who, where in zip(owners, of_partitions, strict=True))
        for owners in product(range(len(of_members)), repeat=len(of_partitions))
        if _balanced([owners.count(who) for who in range(len(of_members))])
    )

    assert near((cluster, group), RackAwareAssignor().assign(cluster, group)) == nearest


def _balanced(totals: list[int]) -> bool:
    return max(totals) - min(totals) <= 1
