"""Round robin: assigns all partitions of all topics in turn to all members."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.assignors.interface import Assignor, Cluster, MemberAssignment, MemberSubscription
from holdfast.assignors.java_order import subscribers
from holdfast.assignors.roundrobin_cursor import Assignments, RoundRobinCursor, distribute


class RoundRobinAssignor(Assignor):
    """Kafka's `roundrobin`: partition by partition the same as Java's client.

    If all members have the same topics, their totals differ by one at most. Otherwise members that are not subscribed
    are skipped, and totals may differ more.
    """

    name = "roundrobin"

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, MemberAssignment]:
        assignments: Assignments = {member: {} for member in subscriptions}
        cursor = RoundRobinCursor(subscriptions)
        for topic, members in subscribers(cluster, subscriptions).items():
            around = cursor.rotate(members)
            distribute(topic, cluster.partitions[topic], around, assignments)
            cursor.advance_past(around[(cluster.partitions[topic] - 1) % len(around)])
        return {member: MemberAssignment(partitions) for member, partitions in assignments.items()}
