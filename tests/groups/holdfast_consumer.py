"""A consumer of Holdfast's own client in a group; see `consumer_process`."""

from collections import defaultdict

from confluent_kafka import KafkaError, TopicPartition

from examples.demo.stop_signal import StopSignal
from holdfast import Consumer
from holdfast.client.errors import HoldfastError
from tests.groups.consumer_process import (
    POLL_S,
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
    consumer = Consumer(
        {
            "bootstrap.servers": config.bootstrap,
            "group.id": config.group,
            **({} if config.instance_id is None else {"group.instance.id": config.instance_id}),
            "partition.assignment.strategy": config.assignor,
            "session.timeout.ms": config.session_timeout_ms,
            "heartbeat.interval.ms": config.heartbeat_interval_ms,
            "metadata.max.age.ms": config.metadata_max_age_ms,
            "metadata.rebalance.min.interval.ms": min(config.metadata_max_age_ms, 5_000),
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(
        [config.topic],
        on_assign=lambda _, partitions: report_partitions("partitions_assigned", partitions),
        on_revoke=lambda _, partitions: report_partitions("partitions_revoked", partitions),
        on_lost=lambda _, partitions: report_partitions("partitions_revoked", partitions),
    )
    report("startup_complete")
    try:
        while not asked_to_stop.is_set():
            consume(consumer)
    finally:
        consumer.close()
    report("shutdown_complete")


def consume(consumer: Consumer) -> None:
    seen: dict[tuple[str, int], list[int]] = defaultdict(list)
    for message in consumer.consume(500, timeout=POLL_S):
        error: KafkaError | None = message.error()
        if error is not None:
            report("error", error=str(error))
            continue
        seen[message.topic(), message.partition()].append(message.offset())
    if not seen:
        return
    report_consumed(seen)
    offsets = next_offsets(seen)
    try:
        consumer.commit(offsets=[TopicPartition(*at, offset) for at, offset in offsets.items()], asynchronous=False)
    except HoldfastError as error:
        report_committed(offsets, error)
        return
    report_committed(offsets)


if __name__ == "__main__":
    main()
