"""Each partition to several members, who are not the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.assignors.interface import Cluster, MemberSubscription
from holdfast.assignors.redundant import RedundantAssignor
from tests.support.assignments import (
    Group,
    check_owners,
    check_well_formed,
    groups,
    plain,
    shuffled,
    spread_of_totals,
)


def test_each_partition_has_two_owners_dealt_around() -> None:
    group = {who: MemberSubscription(["t"]) for who in "abc"}

    assert plain(RedundantAssignor(2).assign(Cluster({"t": 3}), group)) == {
        "a": {"t": [0, 1]},
        "b": {"t": [0, 2]},
        "c": {"t": [1, 2]},
    }


def test_fewer_members_than_wanted_owners_all_get_everything() -> None:
    group = {who: MemberSubscription(["t"]) for who in "ab"}

    assert plain(RedundantAssignor(3).assign(Cluster({"t": 2}), group)) == {"a": {"t": [0, 1]}, "b": {"t": [0, 1]}}


def test_only_subscribers_are_owners() -> None:
    group = {"a": MemberSubscription(["t"]), "b": MemberSubscription(["u"]), "c": MemberSubscription(["t", "u"])}

    assert plain(RedundantAssignor(2).assign(Cluster({"t": 1, "u": 1}), group)) == {
        "a": {"t": [0]},
        "b": {"u": [0]},
        "c": {"t": [0], "u": [0]},
    }


def test_static_members_come_first() -> None:
    group = {"a": MemberSubscription(["t"]), "b": MemberSubscription(["t"], group_instance_id="i")}

    assert plain(RedundantAssignor(1).assign(Cluster({"t": 1}), group)) == {"a": {}, "b": {"t": [0]}}


@pytest.mark.parametrize("n", [0, -1])
def test_less_than_one_owner_is_refused(n: int) -> None:
    with pytest.raises(ValueError, match="at least one owner"):
        RedundantAssignor(n)


def test_it_says_that_partitions_have_several_owners() -> None:
    assert RedundantAssignor(2).allows_multiple_owners


@given(groups(), st.integers(1, 5))
def test_every_partition_has_as_many_owners_as_wanted_or_as_there_are(group: Group, n: int) -> None:
    assignments = RedundantAssignor(n).assign(*group)

    check_well_formed(group, assignments)
    check_owners(group, assignments, owners=n)


@given(groups(equal=True), st.integers(1, 5))
def test_with_equal_subscriptions_totals_differ_by_one_at_most(group: Group, n: int) -> None:
    assert spread_of_totals(RedundantAssignor(n).assign(*group)) <= 1


@given(groups(), st.integers(0, 9))
def test_the_order_of_the_members_does_not_matter(group: Group, seed: int) -> None:
    assert RedundantAssignor(2).assign(*group) == RedundantAssignor(2).assign(*shuffled(group, seed))
