"""Converts between confluent-kafka's types, which the application uses, and the client's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import confluent_kafka

from holdfast.client.errors import ConfigError, HoldfastError
from holdfast.membership.requests import OffsetAndMetadata
from holdfast.types import TopicPartition

NO_LEADER_EPOCH = -1


def topic_partition(partition: confluent_kafka.TopicPartition) -> TopicPartition:
    return partition.topic, partition.partition


def confluent_partition(where: TopicPartition, offset: int, metadata: str | None = None) -> Any:
    if metadata is None:
        return confluent_kafka.TopicPartition(*where, offset)
    return confluent_kafka.TopicPartition(*where, offset, metadata=metadata)


def confluent_partitions(offsets: Mapping[TopicPartition, int]) -> list[Any]:
    return [confluent_kafka.TopicPartition(*where, offset) for where, offset in offsets.items()]


def given_offsets(
    message: Any, offsets: Iterable[confluent_kafka.TopicPartition] | None
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets to commit after a message, or those of the partitions."""
    if (message is None) == (offsets is None):
        raise ConfigError("give either a message or offsets")
    if message is not None:
        if message.error() is not None:
            raise HoldfastError(f"a message with an error has no offset to commit: {message.error()}")
        epoch = message.leader_epoch()
        next_offset = message.offset() + 1
        return {
            (message.topic(), message.partition()): (next_offset, None, NO_LEADER_EPOCH if epoch is None else epoch)
        }
    return {topic_partition(one): (one.offset, one.metadata, _epoch(one)) for one in offsets or () if one.offset >= 0}


def _epoch(partition: confluent_kafka.TopicPartition) -> int:
    epoch = partition.leader_epoch
    return NO_LEADER_EPOCH if epoch is None else int(epoch)


def commit_results(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], errors: Mapping[TopicPartition, HoldfastError]
) -> list[Any]:
    """The partitions of a commit. A partition whose commit failed has an `error`."""
    results = []
    for where, (offset, metadata, _) in offsets.items():
        result = confluent_partition(where, offset, metadata)
        if where in errors:
            code = errors[where].code
            result.error = confluent_kafka.KafkaError(-1 if code is None else int(code), str(errors[where]))
        results.append(result)
    return results


def unknown_topic_message(topic: str) -> Any:
    text = f"Subscribed topic not available: {topic}: create it, or see whether it was deleted or misspelt"
    error = confluent_kafka.KafkaError(confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART, text)
    return confluent_kafka.Message(topic=topic, error=error)
