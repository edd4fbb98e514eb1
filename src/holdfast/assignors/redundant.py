"""Redundant: each partition to several members at once, for those who would rather work twice than wait."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.assignors.dealing import Table
from holdfast.assignors.interface import Assignor, Cluster, MemberAssignment, MemberSubscription
from holdfast.assignors.ordering import subscribers


class RedundantAssignor(Assignor):
    """Each partition to `n` distinct members, or to all that subscribe to it where these are fewer.

    Dealt around the members as round robin does, `n` at a time: with the same topics their totals differ by one at
    most. All of them commit offsets of the same partition, and the last commit stands: keep results apart, or make
    them the same whoever writes them. The leader's `n` counts: it can be changed by a rolling restart.
    """

    name = "holdfast-redundant"
    several_owners = True

    def __init__(self, n: int = 2) -> None:
        if n < 1:
            raise ValueError(f"a partition needs at least one owner, not {n}")
        self.n = n

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, MemberAssignment]:
        shares: dict[str, dict[str, list[int]]] = {member: {} for member in subscriptions}
        table = Table(subscriptions)
        for topic, members in subscribers(cluster, subscriptions).items():
            around = table.around(members)
            owners = min(self.n, len(around))
            places = cluster.partitions[topic] * owners
            for place in range(places):
                # Neighbours around the table are distinct members, as long as no more are asked for than sit there.
                shares[around[place % len(around)]].setdefault(topic, []).append(place // owners)
            table.last_was(around[(places - 1) % len(around)])
        return {member: MemberAssignment(share) for member, share in shares.items()}
