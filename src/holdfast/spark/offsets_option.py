"""The options that say where a read begins and ends: by offset, or by the timestamps of the records.

As in Spark's own Kafka source, one timestamp for all partitions takes precedence over a timestamp for each partition,
and both over offsets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.config import one_of, whole_number
from holdfast.client.errors import ConfigError
from holdfast.client.offsets import EARLIEST, LATEST, list_offsets
from holdfast.types import TopicPartition

STRATEGY: Final = "startingOffsetsByTimestampStrategy"
STARTING: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
"""By precedence."""
ENDING: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_MAX_TIMESTAMP: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class OffsetsOption:
    """Start or end offsets, or timestamps: the same for all partitions (EARLIEST or LATEST, if it is an offset), or one
    for each."""

    name: str
    """The option that applies."""
    all_partitions: int | None = None
    by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)
    is_timestamp: bool = False
    latest_without_match: bool = False
    """Whether a partition without a record at or after its timestamp is read from (or to) its end."""

    def of(self, where: TopicPartition) -> int:
        if self.all_partitions is not None:
            return self.all_partitions
        if where in self.by_partition:
            return self.by_partition[where]
        if self.is_timestamp:
            raise ConfigError(
                f"{self.name} has no timestamp for {where[0]}-{where[1]}: name every partition of the topic"
            )
        raise ConfigError(
            f"{self.name} has no offset for {where[0]}-{where[1]}: name every partition of the topic, "
            "-2 for its beginning and -1 for its end"
        )

    def look_up(
        self, network: ClusterClient, partitions: Iterable[TopicPartition], deadline: float, *, read_committed: bool
    ) -> dict[TopicPartition, int]:
        """The offset of each partition, or EARLIEST or LATEST."""
        wanted = {where: self.of(where) for where in partitions}
        if not self.is_timestamp:
            return wanted
        found = list_offsets(network, wanted, deadline, read_committed=read_committed)
        self._check_matches(found)
        return {where: LATEST if offset < 0 else offset for where, offset in found.items()}

    def resolve(
        self, network: ClusterClient, partitions: Iterable[TopicPartition], deadline: float, *, read_committed: bool
    ) -> dict[TopicPartition, int]:
        """The offset of each partition."""
        offsets = self.look_up(network, partitions, deadline, read_committed=read_committed)
        return offsets | list_ends(network, offsets, deadline, read_committed=read_committed)

    def _check_matches(self, found: Mapping[TopicPartition, int]) -> None:
        if self.latest_without_match:
            return
        for where in sorted(where for where, offset in found.items() if offset < 0):
            raise ConfigError(
                f"{self.name} has {_readable(self.of(where))} for {where[0]}-{where[1]}, which has no record at or "
                f"after that time: give an earlier time, or set {STRATEGY}=latest to begin at the end of such "
                "partitions"
            )


def list_ends(
    network: ClusterClient, offsets: Mapping[TopicPartition, int], deadline: float, *, read_committed: bool
) -> dict[TopicPartition, int]:
    """The offsets for which EARLIEST or LATEST is given."""
    ends = {where: offset for where, offset in offsets.items() if offset < 0}
    return list_offsets(network, ends, deadline, read_committed=read_committed)


def starting_option(own: Mapping[str, str], default: str) -> OffsetsOption:
    """Of the options that are given, the one that takes precedence."""
    strategy = {STRATEGY: own[STRATEGY].strip().lower()} if STRATEGY in own else {}
    latest = one_of(strategy, STRATEGY, "error", ("error", "latest")) == "latest"
    return _option(own, STARTING, default, latest)


def ending_option(own: Mapping[str, str]) -> OffsetsOption:
    # A partition without later records is read to its end, whatever the strategy is: as in Spark's own source.
    return _option(own, ENDING, "latest", True)


def _option(own: Mapping[str, str], names: tuple[str, str, str], default: str, latest: bool) -> OffsetsOption:
    timestamp, by_timestamp, offsets = names
    if timestamp in own:
        text = {timestamp: own[timestamp].strip()}
        try:
            when = whole_number(text, timestamp, 0, 0, _MAX_TIMESTAMP)
        except ConfigError as error:
            raise ConfigError(
                f"option {timestamp} is {own[timestamp]!r}; it is one time for all partitions, in milliseconds since "
                "1970, such as 1700000000000"
            ) from error
        return OffsetsOption(timestamp, when, is_timestamp=True, latest_without_match=latest)
    if by_timestamp in own:
        each = _by_partition(by_timestamp, own[by_timestamp], 'like {"orders": {"0": 1700000000000}}')
        for (topic, partition), when in each.items():
            if when < 0:
                raise ConfigError(
                    f"option {by_timestamp} has {when} for {topic}-{partition}; it is a time in milliseconds since 1970"
                )
        return OffsetsOption(by_timestamp, None, each, is_timestamp=True, latest_without_match=latest)
    text_of_offsets = own.get(offsets, default)
    if text_of_offsets.strip().lower() in ("earliest", "latest"):
        return OffsetsOption(offsets, EARLIEST if text_of_offsets.strip().lower() == "earliest" else LATEST)
    each = _by_partition(offsets, text_of_offsets, 'earliest, latest, or like {"orders": {"0": 23, "1": -2}}')
    for (topic, partition), offset in each.items():
        if offset < EARLIEST:
            raise ConfigError(f"option {offsets} has {offset} for {topic}-{partition}; -2 is its beginning, -1 its end")
    return OffsetsOption(offsets, None, each)


def _by_partition(option: str, text: str, form: str) -> dict[TopicPartition, int]:
    try:
        return {
            (str(topic), int(partition)): int(value)
            for topic, of in json.loads(text).items()
            for partition, value in of.items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"option {option} is {text!r}; it can be {form}") from error


def _readable(when_ms: int) -> str:
    try:
        return f"{when_ms} ({datetime.fromtimestamp(when_ms / 1000, UTC).isoformat(timespec='seconds')})"
    except (ValueError, OverflowError, OSError):  # a year with five digits, for example of nanoseconds
        return str(when_ms)
