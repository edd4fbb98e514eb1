"""The settings of a consumer: those that Holdfast uses, and those that it passes to librdkafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Final
from weakref import WeakValueDictionary

from holdfast.assignors import Assignor, UnknownAssignor, assignor
from holdfast.client import group_servers, membership_config
from holdfast.client.config import boolean, callback, one_of, read_config, whole_number
from holdfast.client.errors import ConfigError
from holdfast.client.membership_config import membership_settings
from holdfast.client.settings import NAMES as NETWORK_NAMES
from holdfast.client.settings import NetworkSettings
from holdfast.membership.settings import MembershipSettings
from holdfast.wire.consumer_protocol import PROTOCOL_TYPE

DEFAULT_STRATEGY: Final = "range,cooperative-sticky"
"""Java's default. All clients support range, so a mixed group has a strategy in common."""

_OWN_SETTINGS: Final = membership_config.NAMES | {
    "partition.assignment.strategy",
    "enable.auto.commit",
    "auto.commit.interval.ms",
    "enable.auto.offset.store",
    "auto.offset.reset",
    "isolation.level",
    "client.rack",
    "metadata.max.age.ms",
    "topic.metadata.refresh.interval.ms",
    "metadata.rebalance.min.interval.ms",
    "default.api.timeout.ms",
    "group.protocol",
    "on_commit",
}
_RESETS: Final = {
    "earliest": "earliest",
    "smallest": "earliest",
    "beginning": "earliest",
    "latest": "latest",
    "largest": "latest",
    "end": "latest",
    "error": "error",
    "none": "error",
}
_NOT_FOR_LIBRDKAFKA: Final = group_servers.NAMES | {
    "group.instance.id",
    "partition.assignment.strategy",
    "group.protocol",
    "static.membership.fallback",
    "metadata.rebalance.min.interval.ms",
    "default.api.timeout.ms",
    "request.timeout.ms",
    "on_commit",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "auto.commit.interval.ms",
    "retry.backoff.ms",
    "retry.backoff.max.ms",
    "sasl.mechanism",
    "metadata.max.age.ms",
}


@cache
def known_settings() -> frozenset[str]:
    """All names that a consumer accepts."""
    listed = files("holdfast.client").joinpath("record_settings.txt").read_text("utf-8").splitlines()
    return _OWN_SETTINGS | NETWORK_NAMES | {line for line in listed if line and not line.startswith("#")}


@cache
def librdkafka_settings() -> frozenset[str]:
    """The names that Holdfast only passes to librdkafka."""
    return known_settings() - _OWN_SETTINGS - NETWORK_NAMES


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    network: NetworkSettings
    """Of the brokers that have the records."""
    group_network: NetworkSettings
    """Of the servers of the groups; the same object without group.bootstrap.servers."""
    membership: MembershipSettings
    assignors: tuple[Assignor, ...]
    rack: str | None
    auto_commit: bool
    auto_commit_interval_ms: int
    auto_offset_store: bool
    reset: str
    """Where to start without a committed offset: earliest, latest or error."""
    read_committed: bool
    metadata_max_age_ms: int
    metadata_rebalance_min_interval_ms: int
    api_timeout_ms: int
    on_commit: Any
    librdkafka: dict[str, Any] = field(repr=False)  # with its secrets

    @classmethod
    def read(cls, config: Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> ConsumerConfig:
        settings = read_config(config, keywords, known_settings())
        one_of(settings, "group.protocol", "classic", ("classic",))
        reset = one_of(settings, "auto.offset.reset", "latest", _RESETS)
        isolation = one_of(settings, "isolation.level", "read_committed", ("read_committed", "read_uncommitted"))
        age_name = "metadata.max.age.ms" if "metadata.max.age.ms" in settings else "topic.metadata.refresh.interval.ms"
        network = NetworkSettings.from_config(settings)
        return cls(
            network=network,
            group_network=NetworkSettings.of_groups(settings, network),
            membership=membership_settings(settings, PROTOCOL_TYPE),
            assignors=tuple(_assignors(settings.get("partition.assignment.strategy", DEFAULT_STRATEGY))),
            rack=settings.get("client.rack") or None,
            auto_commit=boolean(settings, "enable.auto.commit", True),
            auto_commit_interval_ms=whole_number(settings, "auto.commit.interval.ms", 5_000, 1),
            auto_offset_store=boolean(settings, "enable.auto.offset.store", True),
            reset=_RESETS[reset],
            read_committed=isolation == "read_committed",
            metadata_max_age_ms=whole_number(settings, age_name, 300_000, 1),
            metadata_rebalance_min_interval_ms=whole_number(settings, "metadata.rebalance.min.interval.ms", 5_000),
            api_timeout_ms=whole_number(settings, "default.api.timeout.ms", 60_000, 1),
            on_commit=callback(settings, "on_commit"),
            librdkafka=_librdkafka_settings(settings),
        )


_IN_USE: Final[WeakValueDictionary[int, Assignor]] = WeakValueDictionary()
"""The assignors of all open consumers, by their identity."""


def claim(assignors: Iterable[Assignor]) -> None:
    """Each member needs its own assignor. With a shared one, two members would claim the same partitions."""
    for one in assignors:
        if id(one) in _IN_USE:
            raise ConfigError(
                f"partition.assignment.strategy has an instance of {type(one).__name__} that another consumer uses: "
                "make one for each consumer"
            )
        _IN_USE[id(one)] = one


def release(assignors: Iterable[Assignor]) -> None:
    for one in assignors:
        _IN_USE.pop(id(one), None)


def _assignors(strategy: Any) -> Iterable[Assignor]:
    """Short names in one string, as in librdkafka, or a list of names and assignors. The first is preferred."""
    given = strategy.split(",") if isinstance(strategy, str) else strategy
    wanted = list(given) if isinstance(given, Iterable) else [given]
    found: dict[str, Assignor] = {}
    for one in wanted:
        if isinstance(one, Assignor):
            made = one
        elif isinstance(one, str):
            try:
                made = assignor(one.strip())
            except UnknownAssignor as error:
                raise ConfigError(f"partition.assignment.strategy: {error}") from error
        else:
            raise ConfigError(
                f"partition.assignment.strategy has {one!r}; it takes names and instances of holdfast.Assignor"
            )
        if made.name in found:
            raise ConfigError(f"partition.assignment.strategy names {made.name!r} twice")
        found[made.name] = made
    if not found:
        raise ConfigError("partition.assignment.strategy is empty: give at least one strategy")
    return found.values()


def _librdkafka_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings for librdkafka, which fetches the assigned partitions and neither joins nor commits."""
    passed = {name: value for name, value in settings.items() if name not in _NOT_FOR_LIBRDKAFKA}
    if "sasl.mechanism" in settings:
        passed["sasl.mechanisms"] = settings["sasl.mechanism"]
    passed["enable.auto.commit"] = False
    passed["enable.auto.offset.store"] = False
    return passed
