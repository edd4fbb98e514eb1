"""Range and round robin give, partition for partition, what the assignors of Apache Kafka's own client give."""

import pytest

from holdfast.assignors.interface import Assignor, Cluster, MemberSubscription
from holdfast.assignors.range import RangeAssignor
from holdfast.assignors.roundrobin import RoundRobinAssignor
from tests.support.assignments import plain, random_group
from tests.support.java_assignors import JavaAssignors

pytestmark = pytest.mark.real

CASES = 3000


@pytest.mark.parametrize("racks", [False, True], ids=["without racks", "with racks"])
@pytest.mark.parametrize("ours", [RangeAssignor(), RoundRobinAssignor()], ids=lambda ours: str(ours.name))
def test_random_groups_are_assigned_alike(java: JavaAssignors, ours: Assignor, racks: bool) -> None:
    for seed in range(CASES):
        cluster, subscriptions = random_group(seed, racks=racks)

        assert plain(ours.assign(cluster, subscriptions)) == java.assign(ours.name, cluster, subscriptions), (
            f"random_group({seed}, racks={racks})"
        )


def test_racks_made_a_difference_to_many_of_those_groups() -> None:
    changed = 0
    for seed in range(CASES):
        cluster, subscriptions = random_group(seed, racks=True)
        without = Cluster(cluster.partitions)
        range_assignor = RangeAssignor()
        changed += range_assignor.assign(cluster, subscriptions) != range_assignor.assign(without, subscriptions)

    assert changed > CASES / 5


def test_a_larger_group_with_racks_is_assigned_alike(java: JavaAssignors) -> None:
    topics = {f"topic-{number}": 40 + 10 * (number % 2) for number in range(6)}
    racks = {
        topic: [
            frozenset({"abc"[(number + shift) % 3], "abc"[(number + shift + shift % 2) % 3]}) for number in range(count)
        ]
        for shift, (topic, count) in enumerate(topics.items())
    }
    subscriptions = {
        f"member-{number}": MemberSubscription(list(topics), rack="abcd"[number % 4]) for number in range(17)
    }
    cluster = Cluster(topics, racks)

    assert plain(RangeAssignor().assign(cluster, subscriptions)) == java.assign("range", cluster, subscriptions)
