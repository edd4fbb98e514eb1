"""The reactions of a `Consumer` to changes of its partitions: it starts or stops reading them, and runs the callbacks
that the application passed to `subscribe`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import confluent_kafka

from holdfast.client.confluent_types import confluent_partitions
from holdfast.client.consumer_progress import ConsumerProgress
from holdfast.client.fetcher import RecordFetcher
from holdfast.types import TopicPartition

OnPartitions = Callable[[Any, list[Any]], None]
"""Gets the consumer and confluent-kafka's partitions."""
BeforeRevoke = Callable[[Collection[TopicPartition], int], None]


class RebalanceCallbacks:
    """The `RebalanceListener` of a consumer; called within its poll."""

    def __init__(
        self, consumer: Any, fetcher: RecordFetcher, progress: ConsumerProgress, before_revoke: BeforeRevoke
    ) -> None:
        self.on_assign: OnPartitions | None = None
        self.on_revoke: OnPartitions | None = None
        self.on_lost: OnPartitions | None = None
        self.start_offsets: Mapping[TopicPartition, int] | None = None
        """Within `on_assign`, the offsets at which the new partitions start."""
        self._consumer = consumer
        self._fetcher = fetcher
        self._progress = progress
        self._before_revoke = before_revoke

    def before_rejoin(self, staying: Collection[TopicPartition], within_ms: int) -> None:
        """As in Java's consumer, partitions that are kept in a rebalance are committed, too."""
        self._before_revoke(staying, within_ms)

    def before_revoke(self, partitions: Collection[TopicPartition], within_ms: int) -> None:
        self._before_revoke(partitions, within_ms)

    def revoked(self, partitions: list[TopicPartition]) -> None:
        self._remove(partitions, self.on_revoke)

    def lost(self, partitions: list[TopicPartition]) -> None:
        self._remove(partitions, self.on_lost or self.on_revoke)

    def assigned(self, offsets: Mapping[TopicPartition, int]) -> None:
        assigned = self._fetcher.assigned  # some of them already, if this was interrupted before
        self._fetcher.add({where: offset for where, offset in offsets.items() if where not in assigned})
        if self.on_assign is None:
            return
        self.start_offsets = dict(offsets)
        try:
            self.on_assign(self._consumer, confluent_partitions(offsets))
        finally:
            self.start_offsets = None

    def _remove(self, partitions: list[TopicPartition], callback: OnPartitions | None) -> None:
        try:
            if callback is not None:
                found = self._fetcher.positions(partitions)
                positions = {where: found.get(where, confluent_kafka.OFFSET_INVALID) for where in partitions}
                callback(self._consumer, confluent_partitions(positions))
        finally:
            self._fetcher.remove(partitions)
            self._progress.forget(partitions)
