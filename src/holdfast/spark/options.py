"""The options of `format("holdfast")`, by the names of Spark's own Kafka source.

Spark ignores their case. Options that begin with `kafka.` are settings of the client.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from holdfast.client.config import boolean, one_of, whole_number
from holdfast.client.consumer_config import ConsumerConfig
from holdfast.client.errors import ConfigError
from holdfast.client.group_servers import GROUP_BOOTSTRAP, without_group_servers
from holdfast.client.membership_config import instance_ids
from holdfast.client.offsets import EARLIEST, LATEST
from holdfast.client.subscription import Subscription
from holdfast.spark.offsets_option import ENDING, STARTING, STRATEGY, OffsetsOption, ending_option, starting_option
from holdfast.types import TopicPartition

KAFKA: Final = "kafka."
SERVERS: Final = "kafka.bootstrap.servers"
GROUP_SERVERS: Final = f"{KAFKA}{GROUP_BOOTSTRAP}"
GROUP: Final = "kafka.group.id"
INSTANCE: Final = "kafka.group.instance.id"

_TOPICS: Final = ("subscribe", "subscribePattern", "assign")
NEW_CHECKPOINT: Final = "newCheckpoint"
_READ: Final = (
    *_TOPICS,
    *STARTING,
    STRATEGY,
    *ENDING,
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "members",
    "revokeTimeout",
    NEW_CHECKPOINT,
)
REPLAY_DIRECTORY: Final = "_replayDirectory"
"""Internal: where the planner writes its decision about a repeated batch, for a pipeline (`holdfast.spark.replay`)."""
_ONLY_STREAM: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "members",
    "revokeTimeout",
    NEW_CHECKPOINT,
    REPLAY_DIRECTORY,
)
_ONLY_BATCH: Final = ENDING
_IGNORED: Final = {
    "kafkaConsumer.pollTimeoutMs": "an executor waits for records for kafka.default.api.timeout.ms",
    "fetchOffset.numRetries": "offsets are requested again until kafka.default.api.timeout.ms has passed",
    "fetchOffset.retryIntervalMs": "the time between two requests is kafka.retry.backoff.ms",
}
"""Options of Spark's own source that change no row, and why they have no effect."""
_REFUSED: Final = {
    "groupIdPrefix": f"a streaming query is a member of the group that {GROUP} names, and a batch uses no group",
}
"""Options of Spark's own source without a meaning here."""
_SUGGESTED: Final = (SERVERS, GROUP_SERVERS, GROUP, INSTANCE, "kafka.session.timeout.ms", "kafka.security.protocol")

_STRATEGY: Final = "cooperative-sticky,range"
"""Partitions that stay are never revoked; range is for groups whose other members support nothing else."""
_SESSION_TIMEOUT_MS: Final = 60_000
"""A restarted driver was measured to join after 13 to 24 seconds, on an idle machine."""
_METADATA_MAX_AGE_MS: Final = 30_000
REVOKE_TIMEOUT: Final = "10s"
MAX_TRIGGER_DELAY: Final = "15m"
"""The default of Spark's own source."""
_UNITS_S: Final = {"us": 1e-6, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}

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


class NewCheckpoint(StrEnum):
    """Where a query with a new checkpoint begins, if its group has committed offsets."""

    GROUP = "group"
    """At the offsets of the group."""
    STARTING_OFFSETS = "startingOffsets"
    """At `startingOffsets`, if the offsets of the group are higher."""
    FAIL = "fail"
    """The query fails if the offsets of the group are higher than `startingOffsets`."""


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
    min_offsets_per_trigger: int | None
    max_trigger_delay_s: float
    min_partitions: int | None
    max_records_per_partition: int | None
    fail_on_data_loss: bool
    include_headers: bool
    members: int
    revoke_timeout_s: float
    new_checkpoint: NewCheckpoint | None
    """None if the option is not given: as GROUP, with a warning if records are skipped."""
    replay_directory: Path | None
    ignored: Mapping[str, str]
    """The given options that have no effect, with the reason."""

    @property
    def servers(self) -> str:
        return str(self.kafka["bootstrap.servers"])

    @property
    def record_settings(self) -> dict[str, Any]:
        """The settings of a client that only reads records, as on the executors."""
        return without_group_servers(self.kafka)

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
    if GROUP_BOOTSTRAP in read.kafka and not read.group_id:
        raise ConfigError(f"option {GROUP_SERVERS} needs {GROUP}: without a group, the query uses no server of groups")
    if read.group_id:
        read.consumer_configs()
    _check_trigger_limits(read)
    _check_new_checkpoint(read, options)
    return read


def _check_trigger_limits(read: ReadOptions) -> None:
    least, most = read.min_offsets_per_trigger, read.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise ConfigError(f"minOffsetsPerTrigger is {least}, and maxOffsetsPerTrigger {most}: no batch can have both")


def _check_new_checkpoint(read: ReadOptions, options: Mapping[str, str]) -> None:
    if read.new_checkpoint is None:
        return
    if not read.group_id:
        raise ConfigError(
            f"option {NEW_CHECKPOINT} needs {GROUP}: without a group, a query with a new checkpoint always begins at "
            "startingOffsets"
        )
    given = {name.lower() for name in dict(options)}
    if read.new_checkpoint is not NewCheckpoint.GROUP and given.isdisjoint(map(str.lower, STARTING)):
        raise ConfigError(
            f"option {NEW_CHECKPOINT} is {read.new_checkpoint}, but none of {', '.join(STARTING)} is given: their "
            "default is latest, which reads no record again; give startingOffsets=earliest, for example"
        )


def batch_options(options: Mapping[str, str]) -> ReadOptions:
    read = _read_options(options, _ONLY_STREAM, "a batch", default_start="earliest")
    if read.starting.all_partitions == LATEST:
        raise ConfigError("startingOffsets is latest: a batch that begins at the end has nothing to read")
    if read.ending.all_partitions == EARLIEST or EARLIEST in read.ending.by_partition.values():
        raise ConfigError("endingOffsets cannot be earliest: a batch that ends at the beginning has nothing to read")
    return read


def _read_options(options: Mapping[str, str], elsewhere: Collection[str], what: str, default_start: str) -> ReadOptions:
    own, kafka = split(options, (*_READ, *_IGNORED, REPLAY_DIRECTORY))
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
        starting=starting_option(own, default_start),
        ending=ending_option(own),
        max_offsets_per_trigger=_optional(own, "maxOffsetsPerTrigger"),
        min_offsets_per_trigger=_optional(own, "minOffsetsPerTrigger"),
        max_trigger_delay_s=_seconds(own, "maxTriggerDelay", MAX_TRIGGER_DELAY, without_unit="ms"),
        min_partitions=_optional(own, "minPartitions"),
        max_records_per_partition=_optional(own, "maxRecordsPerPartition"),
        fail_on_data_loss=boolean(own, "failOnDataLoss", True),
        include_headers=boolean(own, "includeHeaders", False),
        members=members,
        revoke_timeout_s=_seconds(own, "revokeTimeout", REVOKE_TIMEOUT),
        new_checkpoint=_new_checkpoint(own),
        replay_directory=Path(own[REPLAY_DIRECTORY]) if REPLAY_DIRECTORY in own else None,
        ignored={name: why for name, why in _IGNORED.items() if name in own},
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
    refused = {name.lower(): why for name, why in _REFUSED.items()}
    public = sorted(name for name in known if name != REPLAY_DIRECTORY and name not in _IGNORED)
    own: dict[str, str] = {}
    kafka: dict[str, Any] = {}
    for given, value in dict(options).items():
        lower = given.lower()
        if lower.startswith(KAFKA):
            kafka[lower.removeprefix(KAFKA)] = value
        elif lower in by_lower:
            own[by_lower[lower]] = value
        elif lower in refused:
            raise ConfigError(f"option {given} is not supported: {refused[lower]}; remove it")
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


def _optional(own: Mapping[str, str], name: str) -> int | None:
    return whole_number(own, name, 0, 1, 2**63 - 1) if name in own else None


def _new_checkpoint(own: Mapping[str, str]) -> NewCheckpoint | None:
    if NEW_CHECKPOINT not in own:
        return None
    by_lower = {choice.lower(): choice.value for choice in NewCheckpoint}
    given = own[NEW_CHECKPOINT].strip()
    exact = {NEW_CHECKPOINT: by_lower.get(given.lower(), given)}
    return NewCheckpoint(one_of(exact, NEW_CHECKPOINT, "", list(NewCheckpoint)))


def _seconds(own: Mapping[str, str], name: str, default: str, *, without_unit: str | None = None) -> float:
    text = own.get(name, default)
    read = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|s|m|min|h|d)?\s*", text)
    unit = None if read is None else read[2] or without_unit
    if read is None or unit is None:
        raise ConfigError(f"option {name} is {text!r}; it is a time with its unit, like 500ms, 10s or 1m")
    return float(read[1]) * _UNITS_S[unit]
