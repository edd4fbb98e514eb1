"""A batch: what there is between two offsets of each partition. The group has no part in it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from holdfast.client.errors import ConfigError
from holdfast.client.network import Network
from holdfast.client.offsets import EARLIEST, LATEST, list_offsets
from holdfast.spark.complaints import in_one_sentence
from holdfast.spark.log_ends import DataLoss
from holdfast.spark.offsets import OffsetRange, Where
from holdfast.spark.options import ReadOptions
from holdfast.spark.planning import into_tasks
from holdfast.spark.range_consumers import consumer_config
from holdfast.spark.reading import Ranges

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("holdfast.spark")


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    @in_one_sentence
    def partitions(self) -> list[InputPartition]:
        """In the process that plans the query."""
        return [Ranges(task) for task in into_tasks(self._ranges(), self._options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor."""
        # Not needed where the query is planned, and slow to load.
        from holdfast.spark.fetching import read_ranges

        return read_ranges(
            partition.ranges if isinstance(partition, Ranges) else (),  # Spark's own, where nothing is to be read
            self._options.kafka,
            include_headers=self._options.include_headers,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )

    def _ranges(self) -> list[OffsetRange]:
        config = consumer_config(self._options.kafka)
        deadline = time.monotonic() + config.api_timeout_ms / 1000
        with Network(config.network) as network:
            wanted = self._wanted(network, deadline)
            self._check_named(wanted)
            first = list_offsets(network, dict.fromkeys(wanted, EARLIEST), deadline)
            end = list_offsets(network, dict.fromkeys(wanted, LATEST), deadline, read_committed=config.read_committed)
        return [self._range(where, first[where], end[where]) for where in wanted]

    def _wanted(self, network: Network, deadline: float) -> list[Where]:
        topics = self._options.topics
        if topics is None:
            return list(self._options.partitions)
        found = network.metadata(None if topics.patterns else topics.names, deadline)
        matched = [found.topic(name) for name in sorted(topics.matched(found))]
        return [(topic.name, number) for topic in matched for number in range(topic.partitions)]

    def _check_named(self, wanted: Iterable[Where]) -> None:
        for option, given in (("startingOffsets", self._options.starting), ("endingOffsets", self._options.ending)):
            for topic, partition in sorted(given.each.keys() - set(wanted)):
                raise ConfigError(
                    f"{option} names {topic}-{partition}, which is not read: there is no such partition, or the topic "
                    "is not among those that subscribe, subscribePattern or assign say"
                )

    def _range(self, where: Where, first: int, end: int) -> OffsetRange:
        places: Mapping[int, int] = {EARLIEST: first, LATEST: end}
        starting = self._options.starting.of(where, "startingOffsets")
        ending = self._options.ending.of(where, "endingOffsets")
        begin, until = places.get(starting, starting), places.get(ending, ending)
        if 0 <= ending < starting:
            raise ConfigError(f"endingOffsets has {ending} for {where[0]}-{where[1]}, and startingOffsets {starting}")
        if not first <= begin <= until <= end:
            self._not_all_there(
                f"{where[0]}-{where[1]} has the offsets {first} to {end}, and it was asked for {begin} to {until} by "
                "startingOffsets and endingOffsets"
            )
        begin = min(max(begin, first), end)
        return OffsetRange(*where, begin, min(max(until, begin), end))

    def _not_all_there(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{what}: ask for what is there, or read what is left by the option failOnDataLoss=false")
        logger.warning("%s: reading what is left (failOnDataLoss=false)", what)
