"""Range: each topic separately, in runs of consecutive partitions (KIP-881 if racks are known).

The first members get the larger runs of every topic. Topics with the same number of partitions and the same subscribers
are therefore co-partitioned: partition i of each is assigned to the same member.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.assignors.interface import Assignor, Cluster, MemberAssignment, MemberSubscription
from holdfast.assignors.java_order import subscribers
from holdfast.assignors.range_racks import assign_by_rack, racks_matter


class RangeAssignor(Assignor):
    """Kafka's `range`: partition for partition the same as Java's client."""

    name = "range"

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, MemberAssignment]:
        topics = subscribers(cluster, subscriptions)
        assignments: dict[str, dict[str, list[int]]] = {member: {} for member in subscriptions}
        if racks_matter(cluster, subscriptions, topics):
            assign_by_rack(cluster, subscriptions, topics, assignments)
        else:
            for topic, members in topics.items():
                _assign_runs(topic, cluster.partitions[topic], members, assignments)
        return {member: MemberAssignment(partitions) for member, partitions in assignments.items()}


def _assign_runs(topic: str, count: int, members: list[str], assignments: dict[str, dict[str, list[int]]]) -> None:
    each, with_one_more = divmod(count, len(members))
    numbers = list(range(count))
    start = 0
    for index, member in enumerate(members[:count]):
        stop = start + each + (index < with_one_more)
        assignments[member][topic] = numbers[start:stop]
        start = stop
