"""Round robin: all partitions of all topics, one after the other, dealt around all members."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.assignors.dealing import Shares, Table, deal
from holdfast.assignors.interface import Assignor, Cluster, MemberAssignment, MemberSubscription
from holdfast.assignors.ordering import subscribers


class RoundRobinAssignor(Assignor):
    """Kafka's `roundrobin`: partition for partition what Java's client gives.

    Where all members have the same topics their totals differ by one at most. Where they have not, who is not
    subscribed is passed over, and totals may differ by much.
    """

    name = "roundrobin"

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, MemberAssignment]:
        shares: Shares = {member: {} for member in subscriptions}
        table = Table(subscriptions)
        for topic, members in subscribers(cluster, subscriptions).items():
            around = table.around(members)
            deal(topic, cluster.partitions[topic], around, shares)
            table.last_was(around[(cluster.partitions[topic] - 1) % len(around)])
        return {member: MemberAssignment(share) for member, share in shares.items()}
