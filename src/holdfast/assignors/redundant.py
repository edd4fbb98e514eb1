"""Redundant: assigns each partition to several members, for applications that prefer double work to waiting."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.assignors.interface import Assignor, Cluster, MemberAssignment, MemberSubscription
from holdfast.assignors.java_order import subscribers
from holdfast.assignors.roundrobin_cursor import RoundRobinCursor


class RedundantAssignor(Assignor):
    """Assigns each partition to `n` distinct members, or to all its subscribers if there are fewer.

    Partitions are assigned to the members as in round robin, `n` at a time. If all members have the same topics, their
    totals differ by one at most. The leader's `n` applies, so it can be changed by a rolling restart.

    The owners of a partition read it independently of each other, but they are one group, and a group has one offset
    per partition: the last commit wins, even if it is behind an earlier one of another owner, and no error is reported.
    Therefore do not let them commit to this group: set `enable.auto.commit` to false, and either commit nothing and
    keep the position with the results, or commit to a separate group id for each reader (`Admin.alter_offsets`). If you
    commit here anyway, a restart may repeat records, or skip some that only the other owner had processed.
    """

    name = "holdfast-redundant"
    allows_multiple_owners = True

    def __init__(self, n: int = 2) -> None:
        if n < 1:
            raise ValueError(f"a partition needs at least one owner, not {n}")
        self.n = n

    def assign(self, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, MemberAssignment]:
        assignments: dict[str, dict[str, list[int]]] = {member: {} for member in subscriptions}
        table = RoundRobinCursor(subscriptions)
        for topic, members in subscribers(cluster, subscriptions).items():
            around = table.rotate(members)
            owners = min(self.n, len(around))
            places = cluster.partitions[topic] * owners
            for place in range(places):
                # Consecutive members are distinct as long as `n` does not exceed their number.
                assignments[around[place % len(around)]].setdefault(topic, []).append(place // owners)
            table.advance_past(around[(places - 1) % len(around)])
        return {member: MemberAssignment(partitions) for member, partitions in assignments.items()}
