"""Range: each topic by itself, in runs of neighbouring partitions (KIP-881 where racks are known).

The first members get the larger runs of every topic. In return topics with the same number of partitions and the same
subscribers are co-partitioned: partition i of each goes to the same member.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.assignors.interface import Assignor, Cluster, MemberAssignment, MemberSubscription
from holdfast.assignors.ordering import subscribers
from holdfast.assignors.range_racks import assign_by_rack, racks_matter


class RangeAssignor(Assignor):
    """Kafka's `range`: partition for partition what Java's client gives."""

    name = "range"

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, MemberAssignment]:
        topics = subscribers(cluster, subscriptions)
        shares: dict[str, dict[str, list[int]]] = {member: {} for member in subscriptions}
        if racks_matter(cluster, subscriptions, topics):
            assign_by_rack(cluster, subscriptions, topics, shares)
        else:
            for topic, members in topics.items():
                _assign_runs(topic, cluster.partitions[topic], members, shares)
        return {member: MemberAssignment(share) for member, share in shares.items()}


def _assign_runs(topic: str, count: int, members: list[str], shares: dict[str, dict[str, list[int]]]) -> None:
    each, with_one_more = divmod(count, len(members))
    numbers = list(range(count))
    start = 0
    for index, member in enumerate(members[:count]):
        stop = start + each + (index < with_one_more)
        shares[member][topic] = numbers[start:stop]
        start = stop
