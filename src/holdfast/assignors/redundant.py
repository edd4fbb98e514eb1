"""Redundant: each partition to several members at once, for those who would rather work twice than wait."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.assignors.dealing import Table
from holdfast.assignors.interface import Assignor, Cluster, MemberAssignment, MemberSubscription
from holdfast.assignors.ordering import subscribers


class RedundantAssignor(Assignor):
    """Each partition to `n` distinct members, or to all that subscribe to it where these are fewer.

    Dealt around the members as round robin does, `n` at a time: with the same topics their totals differ by one at
    most. The leader's `n` counts: it can be changed by a rolling restart.

    The owners of a partition read it independently of each other, but they are one group, and a group has one offset
    for a partition: whoever commits last decides it, also if that is behind what another has committed, and nobody is
    told. So do not let them commit to this group: set `enable.auto.commit` to false, and either commit nothing and keep
    the position with the results, or commit to a group id of one's own for each reader (`Admin.alter_offsets`). Whoever
    does commit here must bear that a restart repeats records, or leaves out some that only the other had processed.
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
