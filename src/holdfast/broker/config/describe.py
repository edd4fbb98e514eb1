"""Configs as DescribeConfigs and CreateTopics return them: value, source, and synonyms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Final

from holdfast.broker.config.broker import BROKER_KEYS, EFFECTIVE_NAMES, BrokerConfig
from holdfast.broker.config.schema import ConfigKey, ConfigType
from holdfast.broker.config.topic import TOPIC_KEYS, text_of


class ConfigSource(IntEnum):
    """The numbers DescribeConfigs uses."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    #: None if it is unset or sensitive.
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    type: ConfigType
    #: The sources of the value. The first one is in force; the others are used if it is unset.
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str


#: Names of one config in different units, in order of precedence.
_FAMILIES: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
)
_FAMILY_OF: Final = {name: family for family in _FAMILIES for name in family}

_Layers = tuple[tuple[ConfigSource, Mapping[str, str]], ...]


def broker_entries(config: BrokerConfig) -> Iterator[ConfigEntry]:
    """Every broker config."""
    layers = _layers(config)
    for name, key in sorted(BROKER_KEYS.items()):
        if key.internal:
            continue
        synonyms = _broker_synonyms(layers, name)
        yield ConfigEntry(
            name=name,
            value=synonyms[0].value if synonyms else _formatted_default(name),
            source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
            read_only=not key.dynamic,
            sensitive=key.sensitive,
            type=key.type,
            synonyms=synonyms,
            documentation="" if name in EFFECTIVE_NAMES else "Accepted; without effect in Holdfast.",
        )


def cluster_default_entries(config: BrokerConfig) -> Iterator[ConfigEntry]:
    """The cluster-wide defaults."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    for name, text in sorted(config.cluster_defaults.items()):
        key = BROKER_KEYS[name]
        value = _formatted(key, text)
        yield ConfigEntry(
            name=name,
            value=value,
            source=source,
            read_only=not key.dynamic,
            sensitive=key.sensitive,
            type=key.type,
            synonyms=(ConfigSynonym(name, value, source),),
            documentation="" if name in EFFECTIVE_NAMES else "Accepted; without effect in Holdfast.",
        )


def topic_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """Every config of a topic, by name."""
    layers = _layers(config)
    for name, key in sorted(TOPIC_KEYS.items()):
        if key.internal and name not in overrides:
            continue
        synonyms: tuple[ConfigSynonym, ...] = ()
        if name in overrides:
            synonyms = (ConfigSynonym(name, _formatted(key, overrides[name]), ConfigSource.TOPIC),)
        if key.server_synonym is not None:
            synonyms += _broker_synonyms(layers, key.server_synonym)
        yield ConfigEntry(
            name=name,
            value=_formatted(key, text_of(config, overrides, name)),
            source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
            read_only=False,
            sensitive=key.sensitive,
            type=key.type,
            synonyms=synonyms,
            documentation=key.documentation,
        )


def _layers(config: BrokerConfig) -> _Layers:
    """The sources of a broker config, in order of precedence."""
    return (
        (ConfigSource.DYNAMIC_BROKER, config.dynamic_configs),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, config.cluster_defaults),
        (ConfigSource.STATIC_BROKER, _with_both_node_ids(config.static_configs)),
    )


def _broker_synonyms(layers: _Layers, name: str) -> tuple[ConfigSynonym, ...]:
    """The values that are set, then the defaults, of all names of one family; as in Kafka, from `name` itself on."""
    family = [BROKER_KEYS[member] for member in _FAMILY_OF.get(name, (name,))]
    found = [
        ConfigSynonym(key.name, _formatted(key, layer[key.name]), source)
        for source, layer in layers
        for key in family
        if key.name in layer
    ]
    found += [
        ConfigSynonym(key.name, _formatted_default(key.name), ConfigSource.DEFAULT)
        for key in family
        if key.default is not None
    ]
    while found and found[0].name != name:
        del found[0]
    return tuple(found)


def _with_both_node_ids(given: Mapping[str, str]) -> Mapping[str, str]:
    node_id = given.get("node.id", given.get("broker.id"))
    return given if node_id is None else {**given, "node.id": node_id, "broker.id": node_id}


@cache
def _formatted_default(name: str) -> str | None:
    """Cached: most of the many broker configs are never set, and describing all of them must not block the loop."""
    return _formatted(BROKER_KEYS[name], BROKER_KEYS[name].default)


def _formatted(key: ConfigKey, text: str | None) -> str | None:
    """The value as Kafka prints it."""
    if text is None or key.sensitive:
        return None
    if key.name in ("log.dir", "log.dirs"):
        return text  # the one path of `--data`, even with a comma in it
    value = key.parse(text)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return repr(value).replace("e+", "E").replace("e-", "E-")
    return str(value)
