"""Reads records of given partitions through confluent-kafka.

librdkafka is the fastest way to read records in Python. It gets explicit partitions and offsets and is not a member of
the group. All calls are made in the application's own thread: while one thread polls a consumer of librdkafka, another
thread that uses it may wait for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import confluent_kafka

from holdfast.client.clock import Clock
from holdfast.client.errors import ConfigError, HoldfastError
from holdfast.types import TopicPartition

METADATA_PREFETCH_S: Final = 0.5
"""The maximum wait until librdkafka has the metadata of new topics, before they are assigned."""


class RecordFetcher:
    def __init__(self, config: Mapping[str, Any], clock: Clock) -> None:
        self._clock = clock
        try:
            self._consumer = confluent_kafka.Consumer(dict(config))
        except (confluent_kafka.KafkaException, ValueError, TypeError) as error:
            raise ConfigError(f"librdkafka rejects its settings: {_error_text(error)}") from error
        self._start: dict[TopicPartition, int] = {}
        self._checkpoints: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._known_topics: set[str] = set()

    @property
    def assigned(self) -> Collection[TopicPartition]:
        return self._start.keys()

    # -- reading -------------------------------------------------------------------------------------------------------

    def poll(self, timeout_s: float) -> Any:
        return self._consumer.poll(timeout_s)

    def consume(self, max_messages: int, timeout_s: float) -> list[Any]:
        messages: list[Any] = self._consumer.consume(max_messages, timeout_s)
        return messages

    def positions(self, partitions: Collection[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """The offset of the next record for the application: after the last one read, or the start."""
        asked = [where for where in (self._start if partitions is None else partitions) if where in self._start]
        found = self._consumer.position([confluent_kafka.TopicPartition(*where) for where in asked])
        return {
            where: at.offset if at.offset >= 0 else self._start[where] for where, at in zip(asked, found, strict=True)
        }

    def checkpoint(self) -> None:
        """Call this when the application has all records before the current positions."""
        self._checkpoints = self.positions()

    def rewind(self) -> None:
        """Rewinds to the last checkpoint."""
        for where, offset in self.positions().items():
            noted = self._checkpoints.get(where, self._start[where])
            if noted < offset:
                self.seek(where, noted)

    # -- assigned partitions -------------------------------------------------------------------------------------------

    def add(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Also read these partitions, from these offsets on."""
        if not offsets:
            return
        self._prefetch_metadata({topic for topic, _ in offsets})
        self._invoke("incremental_assign", [_partition(where, offset) for where, offset in offsets.items()])
        self._start.update(offsets)

    def _prefetch_metadata(self, topics: Collection[str]) -> None:
        """Have librdkafka fetch the metadata of these topics. Otherwise, or if this fails, it fetches them up to a
        second after the assignment."""
        deadline = self._clock.now() + METADATA_PREFETCH_S
        for topic in sorted(set(topics) - self._known_topics):
            try:
                self._consumer.list_topics(topic, timeout=max(0.0, deadline - self._clock.now()))
            except confluent_kafka.KafkaException:
                return
            self._known_topics.add(topic)

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading these partitions. Records that librdkafka has fetched and not returned are dropped."""
        going = [where for where in partitions if where in self._start]
        if not going:
            return
        self._invoke("incremental_unassign", [_partition(where) for where in going])
        for where in going:
            del self._start[where]
            self._checkpoints.pop(where, None)
        self._paused.difference_update(going)

    def seek(self, where: TopicPartition, offset: int) -> None:
        """Restarts at the offset. librdkafka's own seek fails if fetching has not started."""
        paused = where in self._paused
        self.remove([where])
        self.add({where: offset})
        if paused:
            self.pause([where])

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self._invoke("pause", [_partition(where) for where in partitions])
        self._paused.update(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self._invoke("resume", [_partition(where) for where in partitions])
        self._paused.difference_update(partitions)

    def close(self) -> None:
        self._consumer.close()

    def _invoke(self, name: str, partitions: list[Any]) -> None:
        try:
            getattr(self._consumer, name)(partitions)
        except confluent_kafka.KafkaException as error:
            raise HoldfastError(f"librdkafka fails to {name.replace('_', ' ')}: {_error_text(error)}") from error


def _partition(where: TopicPartition, offset: int = confluent_kafka.OFFSET_INVALID) -> Any:
    return confluent_kafka.TopicPartition(where[0], where[1], offset)


def _error_text(error: BaseException) -> str:
    detail = error.args[0] if error.args else error
    return str(detail.str()) if isinstance(detail, confluent_kafka.KafkaError) else str(detail)
