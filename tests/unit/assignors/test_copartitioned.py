"""Joined topics stay together; what happens where they cannot is said, and is what happens."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.assignors.cooperative_sticky import CooperativeStickyAssignor
from holdfast.assignors.copartitioned import CopartitionedAssignor
from holdfast.assignors.interface import Assignor, Cluster, MemberAssignment, MemberSubscription
from holdfast.assignors.range import RangeAssignor
from holdfast.assignors.redundant import RedundantAssignor
from holdfast.assignors.registry import assignor
from holdfast.assignors.roundrobin import RoundRobinAssignor
from tests.support.assignments import Group, check_owners, check_well_formed, groups, plain, shuffled, total

JOINED = ["orders", "payments"]


def member(*topics: str, instance: str | None = None) -> MemberSubscription:
    return MemberSubscription(topics, group_instance_id=instance)


def test_partition_i_of_each_topic_is_assigned_to_one_member() -> None:
    group = {who: member(*JOINED) for who in "abc"}

    assert plain(CopartitionedAssignor([JOINED]).assign(Cluster({"orders": 4, "payments": 4}), group)) == {
        "a": {"orders": [0, 3], "payments": [0, 3]},
        "b": {"orders": [1], "payments": [1]},
        "c": {"orders": [2], "payments": [2]},
    }


def test_the_next_group_of_topics_starts_after_the_last_member_used() -> None:
    # Given two groups of one number each, which range would both give to the first member
    groups_of_topics = [["o1", "p1"], ["o2", "p2"]]
    group = {who: member("o1", "p1", "o2", "p2") for who in "ab"}
    cluster = Cluster(dict.fromkeys(("o1", "p1", "o2", "p2"), 1))

    assert plain(CopartitionedAssignor(groups_of_topics).assign(cluster, group)) == {
        "a": {"o1": [0], "p1": [0]},
        "b": {"o2": [0], "p2": [0]},
    }


def test_with_unequal_counts_common_partition_numbers_stay_together() -> None:
    group = {who: member(*JOINED) for who in "ab"}

    assert plain(CopartitionedAssignor([JOINED]).assign(Cluster({"orders": 5, "payments": 2}), group)) == {
        "a": {"orders": [0, 2, 4], "payments": [0]},
        "b": {"orders": [1, 3], "payments": [1]},
    }


def test_members_with_some_of_the_topics_get_none_if_another_has_all() -> None:
    group = {"a": member("orders"), "b": member(*JOINED), "c": member("payments")}

    assert plain(CopartitionedAssignor([JOINED]).assign(Cluster({"orders": 2, "payments": 2}), group)) == {
        "a": {},
        "b": {"orders": [0, 1], "payments": [0, 1]},
        "c": {},
    }


def test_if_no_member_has_all_topics_those_with_equal_subscribers_stay_together() -> None:
    three = ["orders", "payments", "refunds"]
    group = {"a": member("orders", "payments"), "b": member("orders", "payments"), "c": member("refunds")}

    assert plain(CopartitionedAssignor([three]).assign(Cluster(dict.fromkeys(three, 2)), group)) == {
        "a": {"orders": [0], "payments": [0]},
        "b": {"orders": [1], "payments": [1]},
        "c": {"refunds": [0, 1]},
    }


@pytest.mark.parametrize("counts", [{"orders": 2}, {"orders": 2, "payments": 0}], ids=["missing", "empty"])
def test_a_topic_that_is_not_there_is_left_out(counts: dict[str, int]) -> None:
    group = {who: member(*JOINED) for who in "ab"}

    assert plain(CopartitionedAssignor([JOINED]).assign(Cluster(counts), group)) == {
        "a": {"orders": [0]},
        "b": {"orders": [1]},
    }


def test_a_topic_without_subscribers_is_left_out() -> None:
    group = {who: member("orders") for who in "ab"}

    assert plain(CopartitionedAssignor([JOINED]).assign(Cluster({"orders": 2, "payments": 2}), group)) == {
        "a": {"orders": [0]},
        "b": {"orders": [1]},
    }


def test_other_topics_are_assigned_by_range_unless_configured() -> None:
    cluster = Cluster({"orders": 1, "payments": 1, "clicks": 4})
    group = {who: member(*JOINED, "clicks") for who in "ab"}

    def clicks(assignor: Assignor) -> list[list[int]]:
        return [assignment["clicks"] for assignment in plain(assignor.assign(cluster, group)).values()]

    assert clicks(CopartitionedAssignor([JOINED])) == [[0, 1], [2, 3]]
    assert clicks(CopartitionedAssignor([JOINED], rest="roundrobin")) == [[0, 2], [1, 3]]
    assert clicks(CopartitionedAssignor([JOINED], rest=RoundRobinAssignor())) == [[0, 2], [1, 3]]


def test_static_members_keep_their_joint_assignment_when_a_dynamic_one_is_replaced() -> None:
    cluster = Cluster({"orders": 7, "payments": 7})
    statics = {f"m{number}": member(*JOINED, instance=f"i{number}") for number in (1, 2, 3)}

    before = plain(CopartitionedAssignor([JOINED]).assign(cluster, {**statics, "z": member(*JOINED)}))
    after = plain(CopartitionedAssignor([JOINED]).assign(cluster, {**statics, "0": member(*JOINED)}))

    assert {who: after[who] for who in statics} == {who: before[who] for who in statics}


# -- without groups ----------------------------------------------------------------------------------------------------


def owners_of_numbers(assigned: Mapping[str, Mapping[str, list[int]]], *topics: str) -> dict[int, set[str]]:
    """By partition number, who has it of any of these topics."""
    owners: dict[int, set[str]] = {}
    for who, assignment in assigned.items():
        for topic in topics:
            for number in assignment.get(topic, []):
                owners.setdefault(number, set()).add(who)
    return owners


def kept_together(assigned: Mapping[str, Mapping[str, list[int]]], *topics: str) -> bool:
    return all(len(who) == 1 for who in owners_of_numbers(assigned, *topics).values())


def test_by_its_name_it_joins_the_topics_that_members_subscribe_to_together() -> None:
    # given three members that join orders with payments, and one that reads orders only
    group = {who: member(*JOINED) for who in "bcd"} | {"a": member("orders")}
    cluster = Cluster({"orders": 6, "payments": 6})

    assigned = plain(assignor("copartitioned").assign(cluster, group))

    assert assigned == {
        "a": {},
        "b": {"orders": [0, 3], "payments": [0, 3]},
        "c": {"orders": [1, 4], "payments": [1, 4]},
        "d": {"orders": [2, 5], "payments": [2, 5]},
    }
    assert not kept_together(plain(RangeAssignor().assign(cluster, group)), *JOINED), "range is the control"


def test_topics_with_other_counts_are_the_rest() -> None:
    cluster = Cluster({"orders": 2, "payments": 2, "clicks": 4, "views": 4, "refunds": 3})
    group = {who: member(*cluster.partitions) for who in "ab"}

    assigned = plain(CopartitionedAssignor(rest="roundrobin").assign(cluster, group))

    assert kept_together(assigned, "orders", "payments") and kept_together(assigned, "clicks", "views")
    assert [assignment["refunds"] for assignment in assigned.values()] == [[0, 2], [1]]


def test_a_topic_is_joined_with_the_largest_set_that_a_member_subscribes_to() -> None:
    group = {"a": member("o", "p"), "b": member("o", "p"), "c": member("p", "q", "r"), "d": member("q", "r")}
    cluster = Cluster(dict.fromkeys("opqr", 2))

    assert plain(CopartitionedAssignor().assign(cluster, group)) == {
        "a": {"o": [0]},
        "b": {"o": [1]},
        "c": {"p": [0, 1], "q": [0, 1], "r": [0, 1]},
        "d": {},
    }


def test_of_two_equally_large_sets_that_of_more_members_is_joined() -> None:
    group = {"a": member("o", "p"), "b": member("p", "q"), "c": member("p", "q")}
    cluster = Cluster(dict.fromkeys("opq", 2))

    assigned = plain(CopartitionedAssignor().assign(cluster, group))

    assert assigned == {"a": {"o": [0, 1]}, "b": {"p": [0], "q": [0]}, "c": {"p": [1], "q": [1]}}


def test_an_empty_list_of_groups_joins_nothing() -> None:
    group = {who: member(*JOINED) for who in "bc"} | {"a": member("orders")}
    cluster = Cluster({"orders": 6, "payments": 6})

    assert plain(CopartitionedAssignor([]).assign(cluster, group)) == plain(RangeAssignor().assign(cluster, group))


def test_with_a_sticky_rest_and_no_groups_the_rest_sticks() -> None:
    cluster = Cluster({"orders": 2, "payments": 2, "clicks": 4})
    reported = member(*JOINED, "clicks")
    had = CopartitionedAssignor(rest="sticky")
    had.on_assignment(MemberAssignment({"orders": [0], "payments": [0], "clicks": [2, 3]}), 5)
    data = had.subscription_user_data(reported.topics)

    group = {"a": MemberSubscription(reported.topics, data), "b": reported}
    assigned = plain(CopartitionedAssignor(rest="sticky").assign(cluster, group))

    assert assigned["a"]["clicks"] == [2, 3]
    assert kept_together(assigned, *JOINED)


@given(groups(equal=False))
def test_without_groups_each_partition_has_one_owner_and_shared_topics_stay_together(group: Group) -> None:
    cluster, subscriptions = group
    assignments = CopartitionedAssignor().assign(*group)

    check_well_formed(group, assignments)
    check_owners(group, assignments)
    # whatever the largest set is that a member subscribes to, it is kept together
    assigned = plain(assignments)
    counts = set(cluster.partitions.values()) - {0}
    for count in counts:
        alike = {topic for topic, partitions in cluster.partitions.items() if partitions == count}
        sets = [alike & set(reported.topics) for reported in subscriptions.values()]
        largest = max(map(len, sets), default=0)
        if largest:
            assert any(kept_together(assigned, *one) for one in sets if len(one) == largest)


@given(groups(equal=False), st.integers(0, 9))
def test_without_groups_the_order_of_the_members_does_not_matter(group: Group, seed: int) -> None:
    assigned = plain(CopartitionedAssignor().assign(*group))

    assert assigned == plain(CopartitionedAssignor().assign(*shuffled(group, seed)))


class Remembering(Assignor):
    """Returns its last assignment as user data."""

    name = "remembering"
    notified: tuple[MemberAssignment, int] | None = None

    def subscription_user_data(self, topics: object) -> bytes:
        return repr(topics).encode()

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> None:
        self.notified = (assignment, generation)

    def assign(self, cluster: Cluster, subscriptions: object) -> dict[str, MemberAssignment]:
        assert isinstance(subscriptions, dict)
        return {who: MemberAssignment({}, b"regards") for who in subscriptions}


def test_user_data_and_callbacks_of_the_rest_assignor_pass_through() -> None:
    rest = Remembering()
    assignor = CopartitionedAssignor([JOINED], rest=rest)

    assert assignor.subscription_user_data(["orders", "clicks"]) == b"['clicks']"
    assert assignor.assign(Cluster({"orders": 1}), {"a": member("orders")})["a"] == MemberAssignment(
        {"orders": [0]}, b"regards"
    )
    assignor.on_assignment(MemberAssignment({"orders": [0], "clicks": [1]}, b"regards"), 7)
    assert rest.notified == (MemberAssignment({"clicks": [1]}, b"regards"), 7)


def test_with_a_sticky_rest_the_rest_sticks() -> None:
    cluster = Cluster({"orders": 2, "payments": 2, "clicks": 4})
    reported = member(*JOINED, "clicks")
    # Given a member whose assignment of the rest is not what it would be given again
    had = CopartitionedAssignor([JOINED], rest="sticky")
    had.on_assignment(MemberAssignment({"orders": [0], "payments": [0], "clicks": [2, 3]}), 5)
    data = had.subscription_user_data(reported.topics)

    group = {"a": MemberSubscription(reported.topics, data), "b": reported}
    assigned = plain(CopartitionedAssignor([JOINED], rest="sticky").assign(cluster, group))
    fresh = plain(CopartitionedAssignor([JOINED], rest="sticky").assign(cluster, {"a": reported, "b": reported}))

    assert assigned["a"]["clicks"] == [2, 3]
    assert fresh["a"]["clicks"] != [2, 3]


def test_several_owners_in_the_rest_are_several_owners() -> None:
    assert CopartitionedAssignor(rest=RedundantAssignor(2)).allows_multiple_owners
    assert not CopartitionedAssignor().allows_multiple_owners


def test_a_cooperative_rest_is_refused() -> None:
    with pytest.raises(ValueError, match="must be eager, which 'cooperative-sticky' is not"):
        CopartitionedAssignor([JOINED], rest=CooperativeStickyAssignor())


def test_a_topic_in_two_groups_is_refused() -> None:
    with pytest.raises(ValueError, match="topic 'a' is named twice"):
        CopartitionedAssignor([["a", "b"], ["c", "a"]])


def test_a_list_of_topics_that_are_not_in_groups_is_refused() -> None:
    with pytest.raises(TypeError, match="groups are lists of topics"):
        CopartitionedAssignor(["orders", "payments"])


@st.composite
def joined(draw: st.DrawFn) -> tuple[CopartitionedAssignor, Group]:
    group = draw(groups(equal=draw(st.booleans())))
    topics = sorted({topic for reported in group[1].values() for topic in reported.topics} | group[0].partitions.keys())
    cut = draw(st.integers(0, len(topics)))
    end = draw(st.integers(cut, len(topics)))
    rest = draw(st.sampled_from(["range", "roundrobin", "sticky"]))
    return CopartitionedAssignor([topics[:cut], topics[cut:end]], rest=rest), group


@given(joined())
def test_every_partition_has_one_owner(case: tuple[CopartitionedAssignor, Group]) -> None:
    assignor, group = case

    assignments = assignor.assign(*group)

    check_well_formed(group, assignments)
    check_owners(group, assignments)


@given(groups(equal=True))
def test_numbers_in_common_always_stay_together(group: Group) -> None:
    assignor = CopartitionedAssignor([sorted(group[0].partitions)])

    owners: dict[int, set[str]] = {}
    for who, assignment in plain(assignor.assign(*group)).items():
        for numbers in assignment.values():
            for number in numbers:
                owners.setdefault(number, set()).add(who)

    assert all(len(of_number) == 1 for of_number in owners.values())


@given(groups(equal=True))
def test_numbers_are_balanced_to_within_one(group: Group) -> None:
    assignments = CopartitionedAssignor([sorted(group[0].partitions)]).assign(*group)

    for topic in group[0].partitions:
        of_topic = [len(given.partitions.get(topic, ())) for given in assignments.values()]
        assert max(of_topic) - min(of_topic) <= 1


@given(joined(), st.integers(0, 9))
def test_the_order_of_the_members_does_not_matter(case: tuple[CopartitionedAssignor, Group], seed: int) -> None:
    assignor, group = case

    assert plain(assignor.assign(*group)) == plain(assignor.assign(*shuffled(group, seed)))


def test_groups_that_are_not_there_change_nothing() -> None:
    group = {who: member("clicks") for who in "ab"}

    assignments = CopartitionedAssignor([JOINED]).assign(Cluster({"clicks": 3}), group)

    assert [total(given) for given in assignments.values()] == [2, 1]
