"""A batch read: the records between two offsets of each partition. It does not use the group."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.errors import ConfigError
from holdfast.client.offsets import EARLIEST, LATEST, list_offsets
from holdfast.client.runtime import SYSTEM
from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.executor_consumers import consumer_config
from holdfast.spark.first_contact import reach_a_broker
from holdfast.spark.options import ReadOptions
from holdfast.spark.planning import OffsetRanges, split_into_tasks
from holdfast.spark.user_errors import user_facing
from holdfast.spark.watermarks import DataLoss
from holdfast.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("holdfast.spark")


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    @user_facing
    def partitions(self) -> list[InputPartition]:
        """Called in the process that plans the query."""
        return [OffsetRanges(task) for task in split_into_tasks(self._ranges(), self._options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Called on an executor."""
        # Slow to load, and not needed for planning.
        from holdfast.spark.fetching import read_ranges

        return read_ranges(
            partition.ranges
            if isinstance(partition, OffsetRanges)
            else (),  # Spark passes its own if there is nothing to read
            self._options.kafka,
            include_headers=self._options.include_headers,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )

    def _ranges(self) -> list[OffsetRange]:
        config = consumer_config(self._options.kafka)
        with ClusterClient(config.network, runtime=SYSTEM) as network:
            reach_a_broker(network, self._options.kafka)
            deadline = time.monotonic() + config.api_timeout_ms / 1000
            wanted = self._partitions_to_read(network, deadline)
            self._check_named_partitions(wanted)
            first = list_offsets(network, dict.fromkeys(wanted, EARLIEST), deadline)
            end = list_offsets(network, dict.fromkeys(wanted, LATEST), deadline, read_committed=config.read_committed)
        return [self._range(where, first[where], end[where]) for where in wanted]

    def _partitions_to_read(self, network: ClusterClient, deadline: float) -> list[TopicPartition]:
        topics = self._options.topics
        if topics is None:
            return list(self._options.partitions)
        found = network.metadata(None if topics.patterns else topics.names, deadline)
        matched = [found.topic(name) for name in sorted(topics.resolve(found))]
        return [(topic.name, number) for topic in matched for number in range(topic.partitions)]

    def _check_named_partitions(self, wanted: Iterable[TopicPartition]) -> None:
        for option, given in (("startingOffsets", self._options.starting), ("endingOffsets", self._options.ending)):
            for topic, partition in sorted(given.by_partition.keys() - set(wanted)):
                raise ConfigError(
                    f"{option} names {topic}-{partition}, which is not read: there is no such partition, or the topic "
                    "is not selected by subscribe, subscribePattern or assign"
                )

    def _range(self, where: TopicPartition, first: int, end: int) -> OffsetRange:
        places: Mapping[int, int] = {EARLIEST: first, LATEST: end}
        starting = self._options.starting.of(where, "startingOffsets")
        ending = self._options.ending.of(where, "endingOffsets")
        begin, until = places.get(starting, starting), places.get(ending, ending)
        if 0 <= ending < starting:
            raise ConfigError(f"endingOffsets has {ending} for {where[0]}-{where[1]}, and startingOffsets {starting}")
        if not first <= begin <= until <= end:
            self._report_data_loss(
                f"{where[0]}-{where[1]} has the offsets {first} to {end}, and it was asked for {begin} to {until} by "
                "startingOffsets and endingOffsets"
            )
        begin = min(max(begin, first), end)
        return OffsetRange(*where, begin, min(max(until, begin), end))

    def _report_data_loss(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(
                f"{what}: change the offsets, or set the option failOnDataLoss=false to read the records that are left"
            )
        logger.warning("%s: reading the records that are left (failOnDataLoss=false)", what)
