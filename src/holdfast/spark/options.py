"""The options of `format("holdfast")`, by the names of Spark's own Kafka source.

Spark ignores their case. Options that begin with `kafka.` are settings of the client.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.client.config import boolean, whole_number
from holdfast.client.consumer_config import ConsumerConfig
from holdfast.client.errors import ConfigError
from holdfast.client.membership_config import instance_ids
from holdfast.client.offsets import EARLIEST, LATEST
from holdfast.client.subscription import Subscription
from holdfast.types import TopicPartition

KAFKA: Final = "kafka."
SERVERS: Final = "kafka.bootstrap.servers"
GROUP: Final = "kafka.group.id"
INSTANCE: Final = "kafka.group.instance.id"

_TOPICS: Final = ("subscribe", "subscribePattern", "assign")
_READ: Final = (
    *_TOPICS,
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "includeHeaders",
    "members",
    "revokeTimeout",
)
REPLAY_DIRECTORY: Final = "_replayDirectory"
"""Internal: where the planner writes its decision about a repeated batch, for a pipeline (`holdfast.spark.replay`)."""
_ONLY_STREAM: Final = ("maxOffsetsPerTrigger", "members", "revokeTimeout", REPLAY_DIRECTORY)
_ONLY_BATCH: Final = ("endingOffsets",)
_SUGGESTED: Final = (SERVERS, GROUP, INSTANCE, "kafka.session.timeout.ms", "kafka.security.protocol")

_STRATEGY: Final = "cooperative-sticky,range"
"""Partitions that stay are never revoked; range is for groups whose other members support nothing else."""
_SESSION_TIMEOUT_MS: Final = 60_000
"""A restarted driver was measured to join after 13 to 24 seconds, on an idle machine."""
_METADATA_MAX_AGE_MS: Final = 30_000
REVOKE_TIMEOUT: Final = "10s"
_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0}

_RESERVED_SETTINGS: Final = {
    "auto.offset.reset": "startingOffsets says where a group without offsets begins",
    "enable.auto.commit": "a batch is committed when Spark has finished it",
    "enable.auto.offset.store": "a batch is committed when Spark has finished it",
    "auto.commit.interval.ms": "a batch is committed when Spark has finished it",
    "key.deserializer": "the column key is binary; cast it",
    "value.deserializer": "the column value is binary; cast it",
    "interceptor.classes": "there is no Java in this source",
    "on_commit": "a batch is committed when Spark has finished it",
}


@dataclass(frozen=True, slots=True)
class OffsetsOption:
    """Start or end offsets: the same for all partitions (EARLIEST or LATEST), or one for each."""

    all_partitions: int | None = None
    by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)

    def of(self, where: TopicPartition, option: str) -> int:
        if self.all_partitions is not None:
            return self.all_partitions
        if where not in self.by_partition:
            raise ConfigError(
                f"{option} has no offset for {where[0]}-{where[1]}: name every partition of the topic, "
                "-2 for its beginning and -1 for its end"
            )
        return self.by_partition[where]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    kafka: dict[str, Any] = field(repr=False)  # with its secrets
    """The settings of the client, without the prefix."""
    topics: Subscription | None
    """None if `partitions` are given."""
    partitions: tuple[TopicPartition, ...]
    starting: OffsetsOption
    ending: OffsetsOption
    max_offsets_per_trigger: int | None
    min_partitions: int | None
    fail_on_data_loss: bool
    include_headers: bool
    members: int
    revoke_timeout_s: float
    replay_directory: Path | None

    @property
    def servers(self) -> str:
        return str(self.kafka["bootstrap.servers"])

    @property
    def group_id(self) -> str | None:
        return self.kafka.get("group.id")

    @property
    def instance_ids(self) -> list[str]:
        """The instance ids of the query's members; empty if they are dynamic."""
        instance_id = self.kafka.get("group.instance.id")
        if not instance_id:
            return []
        return [instance_id] if self.members == 1 else instance_ids(instance_id, self.members)

    def consumer_configs(self) -> list[ConsumerConfig]:
        """The settings of each member. Raises ConfigError, which names the option."""
        ids: list[str | None] = [*self.instance_ids] or [None] * self.members
        client_id = self.kafka.get("client.id", "holdfast-spark")
        defaults = {
            "partition.assignment.strategy": _STRATEGY,
            "session.timeout.ms": _SESSION_TIMEOUT_MS,
            "metadata.max.age.ms": _METADATA_MAX_AGE_MS,
        }
        configs = []
        for number, instance_id in enumerate(ids, 1):
            own = {
                **defaults,
                **self.kafka,
                "client.id": client_id if len(ids) == 1 else f"{client_id}-{number}",
            }
            if instance_id is not None:
                own["group.instance.id"] = instance_id
            configs.append(_consumer_config(own))
        return configs


def _consumer_config(settings: Mapping[str, Any]) -> ConsumerConfig:
    try:
        return ConsumerConfig.read(settings, {})
    except ConfigError as error:
        raise ConfigError(f"options that begin with {KAFKA!r}: {error}") from error


def stream_options(options: Mapping[str, str]) -> ReadOptions:
    read = _read_options(options, _ONLY_BATCH, "a streaming query", default_start="latest")
    if read.topics is not None and not read.group_id:
        raise ConfigError(
            f"option {GROUP} is missing: the query is a member of a group, so that it can divide the topics with "
            "others; give the name of the group (or `assign`, to read fixed partitions without one)"
        )
    if read.topics is None and read.kafka.get("group.instance.id"):
        raise ConfigError(f"option {INSTANCE} needs `subscribe`: with `assign` the query is not a member of a group")
    if read.group_id:
        read.consumer_configs()
    return read


def batch_options(options: Mapping[str, str]) -> ReadOptions:
    read = _read_options(options, _ONLY_STREAM, "a batch", default_start="earliest")
    if read.starting.all_partitions == LATEST:
        raise ConfigError("startingOffsets is latest: a batch that begins at the end has nothing to read")
    if read.ending.all_partitions == EARLIEST or EARLIEST in read.ending.by_partition.values():
        raise ConfigError("endingOffsets cannot be earliest: a batch that ends at the beginning has nothing to read")
    return read


def _read_options(options: Mapping[str, str], elsewhere: Collection[str], what: str, default_start: str) -> ReadOptions:
    own, kafka = split(options, (*_READ, REPLAY_DIRECTORY))
    for name in elsewhere:
        if name in own:
            raise ConfigError(f"option {name} is not for {what}")
    for name in kafka:
        if name in _RESERVED_SETTINGS:
            raise ConfigError(f"option {KAFKA}{name} cannot be set: {_RESERVED_SETTINGS[name]}")
    _consumer_config({**kafka, "group.id": kafka.get("group.id") or "none"})
    topics, partitions = _subscription(own)
    members = whole_number(own, "members", 1, 1, 1000)
    if members > 1 and topics is None:
        raise ConfigError("option members needs `subscribe`: with `assign` the query is not a member of a group")
    return ReadOptions(
        kafka=kafka,
        topics=topics,
        partitions=partitions,
        starting=_offsets_option(own, "startingOffsets", default_start),
        ending=_offsets_option(own, "endingOffsets", "latest"),
        max_offsets_per_trigger=_optional(own, "maxOffsetsPerTrigger"),
        min_partitions=_optional(own, "minPartitions"),
        fail_on_data_loss=boolean(own, "failOnDataLoss", True),
        include_headers=boolean(own, "includeHeaders", False),
        members=members,
        revoke_timeout_s=_seconds(own, "revokeTimeout", REVOKE_TIMEOUT),
        replay_directory=Path(own[REPLAY_DIRECTORY]) if REPLAY_DIRECTORY in own else None,
    )


def looks_like_stream(options: Mapping[str, str]) -> bool:
    """Whether there is an option that only streaming queries use."""
    return _any_given(options, (*_ONLY_STREAM, GROUP, INSTANCE))


def looks_like_batch(options: Mapping[str, str]) -> bool:
    """Whether there is an option that only batches use."""
    return _any_given(options, _ONLY_BATCH)


def _any_given(options: Mapping[str, str], names: Collection[str]) -> bool:
    return not {name.lower() for name in options}.isdisjoint(name.lower() for name in names)


def split(options: Mapping[str, str], known: Collection[str]) -> tuple[dict[str, str], dict[str, Any]]:
    """Holdfast's options by their exact names, and the client's without their prefix. Unknown ones are rejected."""
    by_lower = {name.lower(): name for name in known}
    public = sorted(name for name in known if name != REPLAY_DIRECTORY)
    own: dict[str, str] = {}
    kafka: dict[str, Any] = {}
    for given, value in dict(options).items():
        lower = given.lower()
        if lower.startswith(KAFKA):
            kafka[lower.removeprefix(KAFKA)] = value
        elif lower in by_lower:
            own[by_lower[lower]] = value
        else:
            nearest = difflib.get_close_matches(lower, [*map(str.lower, public), *_SUGGESTED], 1, 0.6)
            known_as = by_lower.get(nearest[0], nearest[0]) if nearest else None
            advice = f"did you mean {known_as!r}?" if known_as else f"there are {', '.join(public)} and kafka.*"
            raise ConfigError(f"unknown option {given!r}: {advice}")
    if not kafka.get("bootstrap.servers"):
        raise ConfigError(f"option {SERVERS} is missing: give host:port of a broker, several separated by commas")
    return own, kafka


def _subscription(own: Mapping[str, str]) -> tuple[Subscription | None, tuple[TopicPartition, ...]]:
    given = [name for name in _TOPICS if name in own]
    if len(given) != 1:
        count = " and ".join(given) + " are given" if given else "none is given"
        raise ConfigError(f"exactly one of the options {', '.join(_TOPICS)} must be given; {count}")
    text = own[given[0]]
    if given[0] == "subscribe":
        names = [name.strip() for name in text.split(",") if name.strip()]
        if not names:
            raise ConfigError("option subscribe is empty: give the names of topics, separated by commas")
        return Subscription.parse(names), ()
    if given[0] == "subscribePattern":
        # Java's pattern must match the whole name.
        return Subscription.parse([f"^(?:{text})$"]), ()
    return None, tuple(_partitions(text))


def _partitions(text: str) -> list[TopicPartition]:
    try:
        parsed = json.loads(text)
        found = sorted({(str(topic), int(number)) for topic, numbers in parsed.items() for number in numbers})
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f'option assign is {text!r}; it looks like {{"orders": [0, 1]}}') from error
    if not found:
        raise ConfigError("option assign names no partition")
    for topic, number in found:
        if number < 0:
            raise ConfigError(f"option assign has partition {number} of {topic!r}; they are numbered from 0")
    return found


def _offsets_option(own: Mapping[str, str], option: str, default: str) -> OffsetsOption:
    text = own.get(option, default)
    if text.strip().lower() in ("earliest", "latest"):
        return OffsetsOption(EARLIEST if text.strip().lower() == "earliest" else LATEST)
    try:
        parsed = json.loads(text)
        each = {
            (str(topic), int(partition)): int(offset)
            for topic, of in parsed.items()
            for partition, offset in of.items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(
            f'option {option} is {text!r}; it can be earliest, latest, or like {{"orders": {{"0": 23, "1": -2}}}}'
        ) from error
    for (topic, partition), offset in each.items():
        if offset < EARLIEST:
            raise ConfigError(f"option {option} has {offset} for {topic}-{partition}; -2 is its beginning, -1 its end")
    return OffsetsOption(by_partition=each)


def _optional(own: Mapping[str, str], name: str) -> int | None:
    return whole_number(own, name, 0, 1, 2**63 - 1) if name in own else None


def _seconds(own: Mapping[str, str], name: str, default: str) -> float:
    text = own.get(name, default)
    read = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min)\s*", text)
    if read is None:
        raise ConfigError(f"option {name} is {text!r}; it is a time with its unit, like 500ms, 10s or 1m")
    return float(read[1]) * _UNITS_S[read[2]]
