"""The leader monitors the topics. If they differ from the assigned ones, the group must rebalance.

Changes are first collected for a while, because twenty topics that are created in a row should cause one rebalance.
"""

from __future__ import annotations

from holdfast.assignors.interface import Cluster


class TopicMonitor:
    def __init__(self, min_interval_ms: int) -> None:
        self._min_interval_ms = min_interval_ms
        self._assigned: Cluster | None = None
        self._check_at: int | None = None

    @property
    def is_active(self) -> bool:
        return self._assigned is not None

    @property
    def check_at(self) -> int | None:
        """When to check again whether a rebalance is due."""
        return self._check_at

    def start(self, assigned: Cluster) -> None:
        """The assignment was made for these topics."""
        self._assigned = assigned
        self._check_at = None

    def stop(self) -> None:
        """Another member leads."""
        self._assigned = None
        self._check_at = None

    def rebalance_due(self, current: Cluster, now: int) -> bool:
        """Whether the current topics require a rebalance now."""
        if self._assigned is None or not self._differs(current):
            self._check_at = None
            return False
        return self.change_due(now)

    def change_due(self, now: int) -> bool:
        """The topics have changed. Returns whether to handle this and later changes now."""
        if self._check_at is None:
            self._check_at = now + self._min_interval_ms
        return now >= self._check_at

    def only_grew(self, current: Cluster) -> bool:
        """Whether all topics still exist and only partitions were added."""
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
