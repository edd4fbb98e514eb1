"""Members and topics come in the order in which Java's client puts them."""

import pytest

from holdfast.assignors.interface import Cluster, MemberSubscription
from holdfast.assignors.java_order import in_java_order, in_order, subscribers


def member(*topics: str, instance: str | None = None) -> MemberSubscription:
    return MemberSubscription(topics, group_instance_id=instance)


def test_static_members_come_first_and_by_instance_id() -> None:
    group = {"1": member(), "3": member(instance="a"), "2": member(instance="b"), "0": member()}

    assert in_order(group) == ["3", "2", "0", "1"]


def test_an_empty_instance_id_is_one() -> None:
    assert in_order({"a": member(), "b": member(instance="")}) == ["b", "a"]


def test_two_with_one_instance_id_still_have_an_order() -> None:
    group = {"2": member(instance="same"), "1": member(instance="same")}

    assert in_order(group) == ["1", "2"]


def test_strings_compare_by_utf16_code_units() -> None:
    # Given two characters whose order differs between code points and code units
    beyond, below = "\U0001f600", "\uffee"
    assert sorted([beyond, below]) == [below, beyond]

    assert in_java_order([below, beyond]) == [beyond, below]
    assert in_order({below: member(), beyond: member()}) == [beyond, below]
    assert in_order({"1": member(instance=below), "2": member(instance=beyond)}) == ["2", "1"]


def test_half_a_surrogate_pair_is_ordered_too() -> None:
    assert in_java_order(["\udc00", "\ud800", "a"]) == ["a", "\ud800", "\udc00"]


def test_subscribers_are_those_of_topics_that_have_partitions() -> None:
    cluster = Cluster({"t2": 1, "t1": 2, "unread": 3, "empty": 0, "negative": -1})
    group = {"b": member("t1", "t1", "gone"), "a": member("t2", "t1", "empty", "negative")}

    found = subscribers(cluster, group)

    assert found == {"t1": ["a", "b"], "t2": ["a"]}
    assert list(found) == ["t1", "t2"]


@pytest.mark.parametrize("topics", [["t", "u"], ("u", "t"), {"t", "u"}, frozenset({"t", "u"})])
def test_any_collection_of_topics_will_do(topics: list[str]) -> None:
    group = {"a": MemberSubscription(topics)}

    assert subscribers(Cluster({"t": 1, "u": 1}), group) == {"t": ["a"], "u": ["a"]}
