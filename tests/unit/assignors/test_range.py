"""The range assignor, by the cases of Kafka's own tests."""

import pytest

from holdfast.assignors.interface import Cluster, MemberSubscription
from holdfast.assignors.range import RangeAssignor
from tests.support.assignments import plain

Assignments = dict[str, dict[str, list[int]]]


def member(*topics: str, instance: str | None = None, rack: str | None = None) -> MemberSubscription:
    return MemberSubscription(topics, group_instance_id=instance, rack=rack)


def assigned(cluster: Cluster, group: dict[str, MemberSubscription]) -> Assignments:
    return plain(RangeAssignor().assign(cluster, group))


@pytest.mark.parametrize("topics", [[], ["unknown"]], ids=["no topic", "unknown topic"])
def test_a_consumer_without_partitions_has_an_empty_entry(topics: list[str]) -> None:
    assert assigned(Cluster({"other": 3}), {"c1": member(*topics)}) == {"c1": {}}


def test_each_topic_is_split_among_its_subscribers() -> None:
    cluster = Cluster({"t1": 3, "t2": 2})
    group = {"c1": member("t1"), "c2": member("t1", "t2"), "c3": member("t1")}

    assert assigned(cluster, group) == {"c1": {"t1": [0]}, "c2": {"t1": [1], "t2": [0, 1]}, "c3": {"t1": [2]}}


def test_static_members_are_ordered_before_dynamic_ones() -> None:
    group = {"consumer-b": member("t1", "t2", instance="i"), "consumer-a": member("t1", "t2")}

    assert assigned(Cluster({"t1": 3, "t2": 3}), group) == {
        "consumer-b": {"t1": [0, 1], "t2": [0, 1]},
        "consumer-a": {"t1": [2], "t2": [2]},
    }
    # and without its instance id it would not
    group["consumer-b"] = member("t1", "t2")
    assert assigned(Cluster({"t1": 3, "t2": 3}), group)["consumer-b"] == {"t1": [2], "t2": [2]}


def test_static_members_keep_their_partitions_when_a_dynamic_one_is_replaced() -> None:
    cluster = Cluster({"t1": 5, "t2": 4})
    statics = {f"m{number}": member("t1", "t2", instance=f"i{number}") for number in (1, 2, 3)}

    before = assigned(cluster, {**statics, "z-old": member("t1", "t2")})
    after = assigned(cluster, {**statics, "a-new": member("t1", "t2")})

    assert {who: after[who] for who in statics} == {who: before[who] for who in statics}
    assert after["a-new"] == before["z-old"]


def test_with_racks_every_member_reads_from_its_own() -> None:
    # Given partitions of all topics one after the other on brokers in racks a, b and c
    counts = {"t1": 6, "t2": 7, "t3": 2}
    around = iter("abc" * 5)
    racks = {topic: [frozenset(next(around)) for _ in range(count)] for topic, count in counts.items()}
    group = {f"c{number}": member(*counts, rack=rack) for number, rack in enumerate("abc", 1)}

    with_racks = assigned(Cluster(counts, racks), group)

    assert with_racks == {
        "c1": {"t1": [0, 3], "t2": [0, 3, 6]},
        "c2": {"t1": [1, 4], "t2": [1, 4], "t3": [0]},
        "c3": {"t1": [2, 5], "t2": [2, 5], "t3": [1]},
    }
    assert with_racks != assigned(Cluster(counts), group)


def test_racks_that_all_have_every_partition_do_not_change_the_result() -> None:
    counts = {"t1": 6, "t2": 7, "t3": 2}
    everywhere = {topic: [frozenset("abc")] * count for topic, count in counts.items()}
    group = {f"c{number}": member(*counts, rack=rack) for number, rack in enumerate("abc", 1)}

    assert assigned(Cluster(counts, everywhere), group) == {
        "c1": {"t1": [0, 1], "t2": [0, 1, 2], "t3": [0]},
        "c2": {"t1": [2, 3], "t2": [3, 4], "t3": [1]},
        "c3": {"t1": [4, 5], "t2": [5, 6]},
    }


def test_kip_345s_example_a_b_and_c_over_nine_partitions() -> None:
    cluster = Cluster({"topic": 9})

    def assignments_of(ids: dict[str, str]) -> dict[str, list[int]]:
        given = assigned(cluster, {ids[name]: member("topic", instance=name) for name in "ABC"})
        return {name: given[ids[name]]["topic"] for name in "ABC"}

    before = assignments_of({"A": "1", "B": "2", "C": "3"})
    # When A restarts and is given a new member id, which sorts last
    after = assignments_of({"A": "4", "B": "2", "C": "3"})

    assert before == {"A": [0, 1, 2], "B": [3, 4, 5], "C": [6, 7, 8]}
    assert after == before


def test_kip_345s_example_without_instance_ids_everything_moves() -> None:
    cluster = Cluster({"topic": 9})

    before = assigned(cluster, {who: member("topic") for who in "123"})
    after = assigned(cluster, {who: member("topic") for who in "423"})

    assert before == {"1": {"topic": [0, 1, 2]}, "2": {"topic": [3, 4, 5]}, "3": {"topic": [6, 7, 8]}}
    assert after == {"2": {"topic": [0, 1, 2]}, "3": {"topic": [3, 4, 5]}, "4": {"topic": [6, 7, 8]}}


def test_equal_topics_are_co_partitioned() -> None:
    group = {who: member("orders", "payments") for who in ("c1", "c2", "c3")}

    for assignment in assigned(Cluster({"orders": 8, "payments": 8}), group).values():
        assert assignment["orders"] == assignment["payments"]


def test_co_partitioning_has_priority_over_racks() -> None:
    # Given two topics whose partitions are never in one rack
    racks = {"t1": [frozenset("a"), frozenset("b")], "t2": [frozenset("b"), frozenset("a")]}
    group = {"c1": member("t1", "t2", rack="b"), "c2": member("t1", "t2", rack="a")}

    assignments = assigned(Cluster({"t1": 2, "t2": 2}, racks), group)

    assert assignments == {"c1": {"t1": [0], "t2": [0]}, "c2": {"t1": [1], "t2": [1]}}


def test_a_member_without_a_rack_is_near_to_everything() -> None:
    racks = {"t": [frozenset("a"), frozenset("a"), frozenset("b"), frozenset("b")]}
    group = {"c1": member("t"), "c2": member("t", rack="a")}

    # c1 comes first and takes what it would have taken, though c2 is nearer to it
    assert assigned(Cluster({"t": 4}, racks), group) == {"c1": {"t": [0, 1]}, "c2": {"t": [2, 3]}}


def test_racks_that_are_known_of_some_partitions_only() -> None:
    cluster = Cluster({"t": 4}, {"t": [frozenset("b")]})
    group = {"c1": member("t", rack="a"), "c2": member("t", rack="b")}

    assert assigned(cluster, group) == {"c1": {"t": [1, 2]}, "c2": {"t": [0, 3]}}


def test_more_members_than_partitions() -> None:
    group = {f"c{number}": member("t") for number in range(4)}

    assert assigned(Cluster({"t": 2}), group) == {"c0": {"t": [0]}, "c1": {"t": [1]}, "c2": {}, "c3": {}}


def test_a_topic_that_the_leader_does_not_read_is_shared_out_all_the_same() -> None:
    # librdkafka issue 4533: a leader's own subscription says nothing about what others need
    group = {"leader": member("t1"), "other": member("t2")}

    assert assigned(Cluster({"t1": 1, "t2": 2}), group) == {"leader": {"t1": [0]}, "other": {"t2": [0, 1]}}
