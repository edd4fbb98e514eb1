"""A kafka-python consumer in a group; see `consumer_process`."""

from collections.abc import Iterable
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import CommitFailedError

from tests.groups.consumer_process import (
    POLL_S,
    config_from_arguments,
    next_offsets,
    stop_on_sigterm,
    tell,
    tell_committed,
    tell_consumed,
    tell_partitions,
)

ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python is not typed
    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        tell_partitions("partitions_revoked", revoked)

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        tell_partitions("partitions_assigned", assigned)


def main() -> None:
    asked_to_stop = stop_on_sigterm()
    config = config_from_arguments()
    consumer = KafkaConsumer(
        bootstrap_servers=config.bootstrap,
        group_id=config.group,
        group_instance_id=config.instance_id,
        partition_assignment_strategy=[ASSIGNORS[config.assignor]],
        session_timeout_ms=config.session_timeout_ms,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        metadata_max_age_ms=config.metadata_max_age_ms,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        reconnect_backoff_max_ms=500,
    )
    consumer.subscribe([config.topic], listener=Listener())
    tell("startup_complete")
    try:
        while not asked_to_stop.is_set():
            consume(consumer, consumer.poll(timeout_ms=round(POLL_S * 1000)))
    finally:
        consumer.close(autocommit=False)
    tell("shutdown_complete")


def consume(consumer: KafkaConsumer, polled: dict[TopicPartition, list[Any]]) -> None:
    seen = {(tp.topic, tp.partition): [record.offset for record in records] for tp, records in polled.items()}
    if not seen:
        return
    tell_consumed(seen)
    offsets = next_offsets(seen)
    try:
        consumer.commit({TopicPartition(*at): OffsetAndMetadata(offset, "", -1) for at, offset in offsets.items()})
    except CommitFailedError as error:
        tell_committed(offsets, error)
        return
    tell_committed(offsets)


if __name__ == "__main__":
    main()
