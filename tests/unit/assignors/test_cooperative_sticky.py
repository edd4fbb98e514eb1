"""Cooperative-sticky: nothing is handed over in the round in which it is revoked."""

from collections.abc import Mapping
from struct import pack

import pytest
from hypothesis import HealthCheck, given, settings

from holdfast.assignors import sticky_user_data
from holdfast.assignors.cooperative_sticky import CooperativeStickyAssignor
from holdfast.assignors.interface import NO_GENERATION, Cluster, MemberAssignment, MemberSubscription
from holdfast.assignors.sticky import StickyAssignor
from tests.support.assignments import check_owners, check_well_formed
from tests.support.sticky_groups import Claims, Group, answers, by_topic, owners, small_groups, subscriptions_of


def cooperative(owned: str, generation: int, user_data: bytes | None = None) -> MemberSubscription:
    return MemberSubscription(["t"], user_data, by_topic(owned), generation)


def test_a_partition_that_changes_owners_is_first_unassigned() -> None:
    members = {"c1": cooperative("t-0 t-1 t-2 t-3", 1), "c2": cooperative("", 1)}
    first = answers(CooperativeStickyAssignor().assign(Cluster({"t": 4}), members))
    assert first == {"c1": "t-0 t-1", "c2": ""}
    # The second round, when c1 has given them up.
    members = {member: cooperative(owned, 2) for member, owned in first.items()}
    assert answers(CooperativeStickyAssignor().assign(Cluster({"t": 4}), members)) == {"c1": "t-0 t-1", "c2": "t-2 t-3"}


def test_unowned_partitions_are_assigned_at_once() -> None:
    members = {"c1": cooperative("t-0", 1), "c2": cooperative("", 1)}
    assert answers(CooperativeStickyAssignor().assign(Cluster({"t": 2}), members)) == {"c1": "t-0", "c2": "t-1"}


@pytest.mark.parametrize(("count", "c1"), [(3, "t-1"), (4, "t-1 t-3")])
def test_what_two_claim_in_one_generation_waits_until_both_have_given_it_up(count: int, c1: str) -> None:
    members = {"c1": cooperative("t-0 t-1", 5), "c2": cooperative("t-0 t-2", 5), "c3": cooperative("", 5)}
    found = answers(CooperativeStickyAssignor().assign(Cluster({"t": count}), members))
    assert found == {"c1": c1, "c2": "t-2", "c3": ""}
    members = {member: cooperative(owned, 6) for member, owned in found.items()}
    assert answers(CooperativeStickyAssignor().assign(Cluster({"t": count}), members)) == {
        "c1": c1,
        "c2": "t-2",
        "c3": "t-0",
    }


def test_a_topic_that_its_owner_unsubscribed_waits_until_it_has_given_it_up() -> None:
    members = {
        "c1": MemberSubscription(["b"], None, {"a": [0], "b": [0]}, 1),
        "c2": MemberSubscription(["a", "b"], None, {}, 1),
    }
    cluster = Cluster({"a": 1, "b": 1})
    assert answers(CooperativeStickyAssignor().assign(cluster, members)) == {"c1": "b-0", "c2": ""}
    members["c1"] = MemberSubscription(["b"], None, {"b": [0]}, 2)
    assert answers(CooperativeStickyAssignor().assign(cluster, members)) == {"c1": "b-0", "c2": "a-0"}


def test_the_generation_of_the_subscription_wins_over_that_in_the_user_data() -> None:
    members = {"c1": cooperative("t-0", 2, pack(">i", 9)), "c2": cooperative("t-0", 3, pack(">i", 1))}
    assert answers(CooperativeStickyAssignor().assign(Cluster({"t": 1}), members)) == {"c1": "", "c2": "t-0"}


def test_without_a_generation_in_the_subscription_the_user_data_gives_it() -> None:
    members = {"c1": cooperative("t-0", NO_GENERATION, pack(">i", 9)), "c2": cooperative("t-0", 3)}
    assert answers(CooperativeStickyAssignor().assign(Cluster({"t": 1}), members)) == {"c1": "t-0", "c2": ""}


@pytest.mark.parametrize("user_data", [None, b"", b"\x00\x00\x09", pack(">i", -5)])
def test_user_data_without_a_generation_is_older_than_all(user_data: bytes | None) -> None:
    members = {"c1": cooperative("t-0", NO_GENERATION, user_data), "c2": cooperative("t-0", 0)}
    assert answers(CooperativeStickyAssignor().assign(Cluster({"t": 1}), members)) == {"c1": "", "c2": "t-0"}


@pytest.mark.parametrize("previous", [{}, {"t": [0]}, {"t": [0], "u": [1, 2]}])
def test_librdkafka_before_kip_792_says_it_at_the_end_of_a_sticky_user_data(previous: dict[str, list[int]]) -> None:
    """Read as Java's it would be the number of topics, and lose to a claim that is staler."""
    live = cooperative("t-0", NO_GENERATION, sticky_user_data.encode(previous, 9))
    for stale in (cooperative("t-0", 8), cooperative("t-0", NO_GENERATION, pack(">i", 8))):
        members = {"c1": live, "c2": stale}
        assert answers(CooperativeStickyAssignor().assign(Cluster({"t": 1}), members)) == {"c1": "t-0", "c2": ""}


def test_a_member_of_a_newer_generation_that_has_nothing_owns_nothing() -> None:
    members = {"c1": cooperative("t-0 t-1", 1), "c2": cooperative("", 9, pack(">i", 9))}
    assert answers(CooperativeStickyAssignor().assign(Cluster({"t": 3}), members)) == {"c1": "t-0 t-1", "c2": "t-2"}


def test_the_user_data_is_the_generation() -> None:
    assignor = CooperativeStickyAssignor()
    assert assignor.subscription_user_data(["t"]) == b"\xff\xff\xff\xff"
    assignor.on_assignment(MemberAssignment({"t": [0]}), 7)
    assert assignor.subscription_user_data(["t"]) == b"\x00\x00\x00\x07"


def test_two_consumers_of_one_process_remember_each_its_own() -> None:
    one, other = CooperativeStickyAssignor(), CooperativeStickyAssignor()
    one.on_assignment(MemberAssignment({"t": [0]}), 7)
    assert other.subscription_user_data(["t"]) == b"\xff\xff\xff\xff"


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(small_groups(CooperativeStickyAssignor))
def test_never_handed_over_in_the_round_that_revokes_and_all_is_given_in_the_second(case: tuple[Group, Claims]) -> None:
    group, claims = case
    cluster, subscriptions = group
    claimed = {(topic, number): set[str]() for topic, count in cluster.partitions.items() for number in range(count)}
    for member, (owned, _) in claims.items():
        for topic, numbers in owned.items():
            for number in numbers:
                claimed.get((topic, number), set()).add(member)

    first = CooperativeStickyAssignor().assign(cluster, subscriptions)
    check_well_formed(group, first)
    for partition, member in owners({member: assignment.partitions for member, assignment in first.items()}).items():
        # Who gets what others claim had it before, in a newer generation than they.
        others = claimed[partition] - {member}
        assert not others or (
            member in claimed[partition] and all(claims[member][1] > claims[other][1] for other in others)
        )

    second_subscriptions = {
        member: subscriptions_of(
            CooperativeStickyAssignor, list(subscriptions[member].topics), assignment.partitions, 3
        )
        for member, assignment in first.items()
    }
    second = CooperativeStickyAssignor().assign(cluster, second_subscriptions)
    check_owners((cluster, second_subscriptions), second)
    for member, assignment in first.items():
        assert all(
            set(numbers) <= set(second[member].partitions.get(topic, ()))
            for topic, numbers in assignment.partitions.items()
        )
    # And a third changes nothing.
    third_subscriptions = {
        member: subscriptions_of(
            CooperativeStickyAssignor, list(subscriptions[member].topics), assignment.partitions, 4
        )
        for member, assignment in second.items()
    }
    assert answers(CooperativeStickyAssignor().assign(cluster, third_subscriptions)) == answers(second)


@settings(max_examples=100, deadline=None)
@given(small_groups(CooperativeStickyAssignor))
def test_after_the_second_round_it_is_as_even_as_the_eager_one(case: tuple[Group, Claims]) -> None:
    (cluster, subscriptions), claims = case
    eager = StickyAssignor().assign(
        cluster,
        {
            member: subscriptions_of(StickyAssignor, list(subscriptions[member].topics), *claims[member])
            for member in claims
        },
    )
    rounds: Mapping[str, MemberSubscription] = subscriptions
    for generation in (3, 4):
        assignments = CooperativeStickyAssignor().assign(cluster, rounds)
        rounds = {
            member: subscriptions_of(
                CooperativeStickyAssignor,
                list(subscriptions[member].topics),
                assignments[member].partitions,
                generation,
            )
            for member in subscriptions
        }
    assert totals(assignments) == totals(eager)


def totals(assignments: Mapping[str, MemberAssignment]) -> list[int]:
    return sorted(sum(map(len, assignment.partitions.values())) for assignment in assignments.values())
