"""A confluent-kafka consumer in a group; see `consumer_process`."""

from collections import defaultdict
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from examples.demo.stop_signal import StopSignal
from tests.groups.consumer_process import (
    POLL_S,
    ConsumerConfig,
    config_from_arguments,
    next_offsets,
    report,
    report_committed,
    report_consumed,
    report_partitions,
)


def main() -> None:
    asked_to_stop = StopSignal()
    config = config_from_arguments()
    consumer = Consumer(settings(config))
    consumer.subscribe(
        [config.topic],
        on_assign=lambda _, partitions: report_partitions("partitions_assigned", partitions),
        on_revoke=lambda _, partitions: report_partitions("partitions_revoked", partitions),
        on_lost=lambda _, partitions: report_partitions("partitions_revoked", partitions),
    )
    report("startup_complete")
    try:
        while not asked_to_stop.is_set():
            consume(consumer, consumer.consume(500, timeout=POLL_S))
    finally:
        consumer.close()
    report("shutdown_complete")


def settings(config: ConsumerConfig) -> dict[str, Any]:
    found: dict[str, Any] = {
        "bootstrap.servers": config.bootstrap,
        "group.id": config.group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "topic.metadata.refresh.interval.ms": config.metadata_max_age_ms,
        "reconnect.backoff.max.ms": 500,
    }
    if config.instance_id is not None:
        found["group.instance.id"] = config.instance_id
    if config.group_protocol is not None:
        # The newer protocol takes timeouts and assignor from the broker; librdkafka refuses them here.
        return found | {"group.protocol": config.group_protocol}
    return found | {
        "partition.assignment.strategy": config.assignor,
        "session.timeout.ms": config.session_timeout_ms,
        "heartbeat.interval.ms": config.heartbeat_interval_ms,
    }


def consume(consumer: Consumer, messages: list[Message]) -> None:
    seen: dict[tuple[str, int], list[int]] = defaultdict(list)
    for message in messages:
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._FATAL:
                raise KafkaException(error)
            report("error", error=str(error))
            continue
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None and partition is not None and offset is not None
        seen[topic, partition].append(offset)
    if not seen:
        return
    report_consumed(seen)
    offsets = next_offsets(seen)
    try:
        consumer.commit(offsets=[TopicPartition(*at, offset) for at, offset in offsets.items()], asynchronous=False)
    except KafkaException as error:
        report_committed(offsets, error)
        return
    report_committed(offsets)


if __name__ == "__main__":
    main()
