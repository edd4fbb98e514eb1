"""A fetcher of an executor: Holdfast's own client with the options that begin with `kafka.`."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any, Final

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.config import boolean, whole_number
from holdfast.client.consumer_config import librdkafka_settings
from holdfast.client.errors import AuthenticationFailed, ConfigError, HoldfastError
from holdfast.client.offsets import EARLIEST, LATEST, list_offsets
from holdfast.client.partition_fetcher import FetchedPartition, FetchSettings, PartitionFetcher
from holdfast.client.runtime import SYSTEM
from holdfast.spark.executor_consumers import consumer_config, not_accepted
from holdfast.types import TopicPartition
from holdfast.wire.error_codes import ErrorCode

_HONOURED: Final = frozenset(
    {
        "fetch.wait.max.ms",
        "fetch.min.bytes",
        "fetch.max.bytes",
        "fetch.message.max.bytes",
        "max.partition.fetch.bytes",
        "check.crcs",
    }
)
"""librdkafka's fetch settings that have the same meaning here."""
_RACK: Final = "client.rack"
_MAX_WAIT_MS: Final = 250
"""The wait if a broker has no record. The planned records exist, so this is rare."""
_PARTITION_BYTES: Final = 2 * 1024 * 1024
"""Usually two full batches: half as many requests and calls of the decoder as with one. More gave no further gain."""
_RESPONSE_BYTES: Final = 8 * 1024 * 1024
_MAX_BYTES: Final = 1_000_000_000
"""librdkafka's limit of these settings."""


def only_of_librdkafka(kafka: Mapping[str, Any]) -> list[str]:
    """The settings that this fetcher lacks. With a rack, librdkafka reads from the nearest replica (KIP-392)."""
    foreign = (librdkafka_settings() - _HONOURED) | {_RACK}
    return sorted(name for name, value in kafka.items() if name in foreign and value != "")


class RangeFetcher:
    """Used by one thread at a time."""

    def __init__(self, kafka: Mapping[str, Any]) -> None:
        config = consumer_config(kafka)
        self.api_timeout_s: Final = config.api_timeout_ms / 1000
        self.last_error = ""
        self._read_committed = config.read_committed
        try:
            self.check_crcs: Final = boolean(kafka, "check.crcs", True)
            settings = _fetch_settings(kafka, config.read_committed)
        except ConfigError as error:
            raise ConfigError(f"options that begin with 'kafka.': {error}") from error
        self._cluster = ClusterClient(config.network, runtime=SYSTEM)
        self._fetcher = PartitionFetcher(self._cluster, settings)

    # -- records -------------------------------------------------------------------------------------------------------

    def request(self, positions: Mapping[TopicPartition, int], timeout_s: float) -> None:
        """Requests the records from these offsets on, unless they have already been requested."""
        if positions:
            try:
                self._fetcher.request(positions, time.monotonic() + timeout_s)
            except AuthenticationFailed as error:
                raise not_accepted(str(error)) from error

    def receive(self, timeout_s: float) -> list[FetchedPartition]:
        try:
            return self._fetcher.receive(time.monotonic() + timeout_s)
        except AuthenticationFailed as error:
            raise not_accepted(str(error)) from error

    def end_of(self, answer: FetchedPartition) -> int:
        """The end of the partition at the time of this response, according to the isolation level."""
        stable = answer.last_stable_offset if self._read_committed else -1
        return answer.high_watermark if stable < 0 else min(stable, answer.high_watermark)

    # -- partitions ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """The requests raise errors that are not retriable."""

    def partitions_of(self, topic: str, timeout_s: float) -> Collection[int] | None:
        try:
            found = self._cluster.metadata([topic], time.monotonic() + timeout_s)
        except HoldfastError as error:
            self._set_error_if_none(error)
            return None
        if topic in found.topics:
            return range(found.topics[topic].partitions)
        code = found.errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return ()
        self.last_error = code.name
        return None

    def bounds(self, where: TopicPartition, timeout_s: float) -> tuple[int, int] | None:
        deadline = time.monotonic() + timeout_s
        try:
            first = list_offsets(self._cluster, {where: EARLIEST}, deadline)
            end = list_offsets(self._cluster, {where: LATEST}, deadline, read_committed=self._read_committed)
        except HoldfastError as error:
            self._set_error_if_none(error)
            return None
        return first[where], end[where]

    def _set_error_if_none(self, error: HoldfastError) -> None:
        """The first error says more than errors that it caused."""
        self.last_error = self.last_error or str(error)

    # -- between tasks -------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        self._fetcher.reset()
        self.last_error = ""

    def close(self) -> None:
        self._cluster.close()


def _fetch_settings(kafka: Mapping[str, Any], read_committed: bool) -> FetchSettings:
    name = "fetch.message.max.bytes" if "fetch.message.max.bytes" in kafka else "max.partition.fetch.bytes"
    return FetchSettings(
        read_committed,
        max_wait_ms=whole_number(kafka, "fetch.wait.max.ms", _MAX_WAIT_MS, 0, 300_000),
        min_bytes=whole_number(kafka, "fetch.min.bytes", 1, 1, 100_000_000),
        max_bytes=whole_number(kafka, "fetch.max.bytes", _RESPONSE_BYTES, 0),
        partition_max_bytes=whole_number(kafka, name, _PARTITION_BYTES, 1, _MAX_BYTES),
    )
