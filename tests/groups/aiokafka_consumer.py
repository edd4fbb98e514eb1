"""An aiokafka consumer in a group; see `consumer_process`."""

import asyncio
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import CommitFailedError

from examples.demo.stop_signal import StopSignal
from tests.groups.consumer_process import (
    POLL_S,
    config_from_arguments,
    next_offsets,
    report,
    report_committed,
    report_consumed,
    report_partitions,
)

ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka does not type it
    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        report_partitions("partitions_revoked", revoked)

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        report_partitions("partitions_assigned", assigned)


async def main() -> None:
    asked_to_stop = StopSignal()
    config = config_from_arguments()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=config.bootstrap,
        group_id=config.group,
        group_instance_id=config.instance_id,
        partition_assignment_strategy=[ASSIGNORS[config.assignor]],
        session_timeout_ms=config.session_timeout_ms,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        metadata_max_age_ms=config.metadata_max_age_ms,
        request_timeout_ms=config.request_timeout_ms,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    consumer.subscribe([config.topic], listener=Listener())
    await consumer.start()
    report("startup_complete")
    try:
        while not asked_to_stop.is_set():
            await consume(consumer, await consumer.getmany(timeout_ms=round(POLL_S * 1000)))
    finally:
        await consumer.stop()
    report("shutdown_complete")


async def consume(consumer: AIOKafkaConsumer, polled: dict[TopicPartition, list[Any]]) -> None:
    seen = {(tp.topic, tp.partition): [record.offset for record in records] for tp, records in polled.items()}
    if not seen:
        return
    report_consumed(seen)
    offsets = next_offsets(seen)
    try:
        await consumer.commit({TopicPartition(*at): offset for at, offset in offsets.items()})
    except CommitFailedError as error:
        report_committed(offsets, error)
        return
    report_committed(offsets)


if __name__ == "__main__":
    asyncio.run(main())
