"""The leader's eye on the topics: when what was assigned is no longer what there is, the group must rebalance.

Changes are collected for a while before they are acted on: whoever creates twenty topics in a row means one change, and
it should cost one rebalance.
"""

from __future__ import annotations

from holdfast.assignors.interface import Cluster


class TopicWatch:
    def __init__(self, min_interval_ms: int) -> None:
        self._min_interval_ms = min_interval_ms
        self._assigned: Cluster | None = None
        self._act_at: int | None = None

    @property
    def is_on(self) -> bool:
        return self._assigned is not None

    @property
    def act_at(self) -> int | None:
        """When to look again whether a rebalance is due."""
        return self._act_at

    def start(self, assigned: Cluster) -> None:
        """This is what the assignment was made for."""
        self._assigned = assigned
        self._act_at = None

    def stop(self) -> None:
        """Somebody else leads."""
        self._assigned = None
        self._act_at = None

    def seen(self, current: Cluster, now: int) -> bool:
        """Whether it is time to rebalance, now that the topics look like this."""
        if self._assigned is None or not self._differs(current):
            self._act_at = None
            return False
        return self.changed(now)

    def changed(self, now: int) -> bool:
        """Something has changed: whether it is time to act on it, and on what else has changed since the first."""
        if self._act_at is None:
            self._act_at = now + self._min_interval_ms
        return now >= self._act_at

    def only_grew(self, current: Cluster) -> bool:
        """Whether every topic is still there, and all that has come is partitions at their ends."""
        assigned = self._assigned
        if assigned is None or assigned.partitions.keys() != current.partitions.keys():
            return False
        counts = assigned.partitions
        if any(current.partitions[topic] < count for topic, count in counts.items()):
            return False
        return all(
            list(current.racks.get(topic, ()))[:count] == list(assigned.racks.get(topic, ()))
            for topic, count in counts.items()
        )

    def _differs(self, current: Cluster) -> bool:
        assigned = self._assigned
        assert assigned is not None
        return dict(assigned.partitions) != dict(current.partitions) or dict(assigned.racks) != dict(current.racks)
