"""A kafka-python consumer in a group; see `consumer_process`."""

import signal
from collections.abc import Iterable
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import CommitFailedError, KafkaConnectionError

from tests.groups.consumer_process import (
    config_from_arguments,
    next_offsets,
    report,
    report_committed,
    report_consumed,
    report_partitions,
)

ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python is not typed
    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        report_partitions("partitions_revoked", revoked)

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        report_partitions("partitions_assigned", assigned)


class AskedToStop(Exception):
    """Ends a poll, however long it was to last. kafka-python has no call for that."""


class Stop:
    """Only a poll is cut off: reports and commits are completed."""

    def __init__(self) -> None:
        self._is_asked = False
        self._polls = False
        signal.signal(signal.SIGTERM, self._ask)

    def poll(self, consumer: KafkaConsumer, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        """Raises AskedToStop, now or then."""
        self._polls = True
        try:
            if self._is_asked:
                raise AskedToStop
            polled: dict[TopicPartition, list[Any]] = consumer.poll(timeout_ms=timeout_ms)
            return polled
        except KafkaConnectionError:
            return {}  # a broker that is away: librdkafka and Java go on by themselves, here the application does
        finally:
            self._polls = False

    def _ask(self, *_signal: object) -> None:
        self._is_asked = True
        if self._polls:
            raise AskedToStop


def main() -> None:
    stop = Stop()
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
    report("startup_complete")
    try:
        while True:
            consume(consumer, stop.poll(consumer, round(config.poll_s * 1000)))
    except AskedToStop:
        pass
    finally:
        consumer.close(autocommit=False)
    report("shutdown_complete")


def consume(consumer: KafkaConsumer, polled: dict[TopicPartition, list[Any]]) -> None:
    seen = {(tp.topic, tp.partition): [record.offset for record in records] for tp, records in polled.items()}
    if not seen:
        return
    report_consumed(seen)
    offsets = next_offsets(seen)
    try:
        consumer.commit({TopicPartition(*at): OffsetAndMetadata(offset, "", -1) for at, offset in offsets.items()})
    except CommitFailedError as error:
        report_committed(offsets, error)
        return
    report_committed(offsets)


if __name__ == "__main__":
    main()
