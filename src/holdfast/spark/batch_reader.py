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
        options = self._options
        for name, why in options.ignored.items():
            logger.warning("option %s has no effect: %s", name, why)
        tasks = split_into_tasks(self._ranges(), options.min_partitions, options.max_records_per_partition)
        return [OffsetRanges(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Called on an executor."""
        # Slow to load, and not needed for planning.
        from holdfast.spark.fetching import read_ranges

        return read_ranges(
            partition.ranges
            if isinstance(partition, OffsetRanges)
            else (),  # Spark passes its own if there is nothing to read
            self._options.record_settings,
            include_headers=self._options.include_headers,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )

    def _ranges(self) -> list[OffsetRange]:
        config = consumer_config(self._options.record_settings)
        committed = config.read_committed
        with ClusterClient(config.network, runtime=SYSTEM) as network:
            reach_a_broker(network, self._options.kafka)
            deadline = time.monotonic() + config.api_timeout_ms / 1000
            wanted = self._partitions_to_read(network, deadline)
            self._check_named_partitions(wanted)
            starting = self._options.starting.look_up(network, wanted, deadline, read_committed=committed)
            ending = self._options.ending.look_up(network, wanted, deadline, read_committed=committed)
            first = list_offsets(network, dict.fromkeys(wanted, EARLIEST), deadline)
            end = list_offsets(network, dict.fromkeys(wanted, LATEST), deadline, read_committed=committed)
        return [self._range(where, starting[where], ending[where], first[where], end[where]) for where in wanted]

    def _partitions_to_read(self, network: ClusterClient, deadline: float) -> list[TopicPartition]:
        topics = self._options.topics
        if topics is None:
            return list(self._options.partitions)
        found = network.metadata(None if topics.patterns else topics.names, deadline)
        matched = [found.topic(name) for name in sorted(topics.resolve(found))]
        return [(topic.name, number) for topic in matched for number in range(topic.partitions)]

    def _check_named_partitions(self, wanted: Iterable[TopicPartition]) -> None:
        for given in (self._options.starting, self._options.ending):
            for topic, partition in sorted(given.by_partition.keys() - set(wanted)):
                raise ConfigError(
                    f"{given.name} names {topic}-{partition}, which is not read: there is no such partition, or the "
                    "topic is not selected by subscribe, subscribePattern or assign"
                )

    def _range(self, where: TopicPartition, starting: int, ending: int, first: int, end: int) -> OffsetRange:
        """`starting` and `ending` can be EARLIEST and LATEST."""
        places: Mapping[int, int] = {EARLIEST: first, LATEST: end}
        begin, until = places.get(starting, starting), places.get(ending, ending)
        by, to = self._options.starting, self._options.ending
        if until < begin and (0 <= ending < starting or by.is_timestamp or to.is_timestamp):
            raise ConfigError(
                f"{to.name} is at offset {until} of {where[0]}-{where[1]}, and {by.name} is after it, at {begin}: "
                "a batch ends after its start"
            )
        if not first <= begin <= until <= end:
            self._report_data_loss(
                f"{where[0]}-{where[1]} has the offsets {first} to {end}, and it was asked for {begin} to {until} by "
                f"{by.name} and {to.name}"
            )
        begin = min(max(begin, first), end)
        return OffsetRange(*where, begin, min(max(until, begin), end))

    def _report_data_loss(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(
                f"{what}: change the offsets, or set the option failOnDataLoss=false to read the records that are left"
            )
        logger.warning("%s: reading the records that are left (failOnDataLoss=false)", what)
