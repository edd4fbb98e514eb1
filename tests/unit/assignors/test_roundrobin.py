"""The roundrobin assignor, by the cases of Kafka's own tests."""

import pytest

from holdfast.assignors.interface import Cluster, MemberSubscription
from holdfast.assignors.roundrobin import RoundRobinAssignor
from tests.support.assignments import plain


def member(*topics: str, instance: str | None = None) -> MemberSubscription:
    return MemberSubscription(topics, group_instance_id=instance)


def assigned(cluster: Cluster, group: dict[str, MemberSubscription]) -> dict[str, dict[str, list[int]]]:
    return plain(RoundRobinAssignor().assign(cluster, group))


@pytest.mark.parametrize("topics", [[], ["unknown"]], ids=["no topic", "unknown topic"])
def test_a_consumer_without_partitions_has_an_empty_entry(topics: list[str]) -> None:
    assert assigned(Cluster({"other": 3}), {"c1": member(*topics)}) == {"c1": {}}


def test_static_members_are_ordered_before_dynamic_ones() -> None:
    group = {"consumer-b": member("t", instance="i"), "consumer-a": member("t")}

    assert assigned(Cluster({"t": 3}), group) == {"consumer-b": {"t": [0, 2]}, "consumer-a": {"t": [1]}}
    # and without its instance id it would not
    assert assigned(Cluster({"t": 3}), {**group, "consumer-b": member("t")})["consumer-b"] == {"t": [1]}


def test_static_members_keep_their_partitions_when_a_dynamic_one_is_replaced() -> None:
    cluster = Cluster({"t1": 5, "t2": 4})
    statics = {f"m{number}": member("t1", "t2", instance=f"i{number}") for number in (1, 2, 3)}

    before = assigned(cluster, {**statics, "z-old": member("t1", "t2")})
    after = assigned(cluster, {**statics, "a-new": member("t1", "t2")})

    assert {who: after[who] for who in statics} == {who: before[who] for who in statics}
    assert after["a-new"] == before["z-old"]


def test_static_members_are_assigned_first_and_the_dynamic_one_last() -> None:
    group = {f"c{number}": member("t1", "t2", instance=f"i{number}") for number in (1, 2, 3)}
    group["c4"] = member("t1", "t2")

    assert assigned(Cluster({"t1": 3, "t2": 3}), group) == {
        "c1": {"t1": [0], "t2": [1]},
        "c2": {"t1": [1], "t2": [2]},
        "c3": {"t1": [2]},
        "c4": {"t2": [0]},
    }


def test_kip_345s_example_a_b_and_c_over_nine_partitions() -> None:
    def assignments_of(ids: dict[str, str]) -> dict[str, list[int]]:
        given = assigned(Cluster({"topic": 9}), {ids[name]: member("topic", instance=name) for name in "ABC"})
        return {name: given[ids[name]]["topic"] for name in "ABC"}

    before = assignments_of({"A": "1", "B": "2", "C": "3"})

    assert before == {"A": [0, 3, 6], "B": [1, 4, 7], "C": [2, 5, 8]}
    assert assignments_of({"A": "4", "B": "2", "C": "3"}) == before


def test_members_that_do_not_subscribe_are_skipped() -> None:
    group = {"c1": member("t1"), "c2": member("t1", "t2"), "c3": member("t1", "t2", "t3")}

    assert assigned(Cluster({"t1": 1, "t2": 2, "t3": 3}), group) == {
        "c1": {"t1": [0]},
        "c2": {"t2": [0]},
        "c3": {"t2": [1], "t3": [0, 1, 2]},
    }


def test_the_order_of_members_continues_from_topic_to_topic() -> None:
    group = {who: member("t1", "t2", "t3") for who in ("c1", "c2")}

    assert assigned(Cluster({"t1": 1, "t2": 1, "t3": 1}), group) == {
        "c1": {"t1": [0], "t3": [0]},
        "c2": {"t2": [0]},
    }
