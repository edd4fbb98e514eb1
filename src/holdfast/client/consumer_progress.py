"""The offsets that the application has processed, and those that are committed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from holdfast.client.record_reader import RecordReader
from holdfast.membership.requests import OffsetAndMetadata
from holdfast.types import TopicPartition

_NO_LEADER_EPOCH = -1


class ConsumerProgress:
    def __init__(self, reader: RecordReader, *, auto_store: bool) -> None:
        """`auto_store`: records that were read count as processed at the next poll (enable.auto.offset.store)."""
        self._reader = reader
        self._auto_store = auto_store
        self._stored: dict[TopicPartition, OffsetAndMetadata] = {}
        self._sent: dict[TopicPartition, int] = {}

    def store(self, where: TopicPartition, offset: OffsetAndMetadata) -> None:
        self._stored[where] = offset

    def processed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        self._reader.rewind_after_interrupt()
        if not self._auto_store:
            return {where: self._stored[where] for where in partitions if where in self._stored}
        return {
            where: (offset, None, _NO_LEADER_EPOCH)
            for where, offset in self._reader.positions(partitions).items()
            if offset >= 0
        }

    def uncommitted(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Processed offsets for which no commit has been sent."""
        processed = self.processed(partitions)
        return {where: offset for where, offset in processed.items() if self._sent.get(where) != offset[0]}

    def commit_sent(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._sent.update({where: offset[0] for where, offset in offsets.items()})

    def commit_failed(self, partitions: Iterable[TopicPartition]) -> None:
        for where in partitions:
            self._sent.pop(where, None)

    def seek(self, where: TopicPartition) -> None:
        self._stored.pop(where, None)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        for where in partitions:
            self._stored.pop(where, None)
            self._sent.pop(where, None)

    def clear(self) -> None:
        self._stored.clear()
        self._sent.clear()
