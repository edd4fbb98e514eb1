"""The configs of a group (Kafka's GROUP resource): names, defaults, valid values, and documentation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.broker.config.describe import ConfigEntry, ConfigSource, ConfigSynonym
from holdfast.broker.config.schema import ConfigError, ConfigType
from holdfast.coordinator.group_extensions import BY_SESSION, CONFIG_NAMES, NO_TARGET, Extensions

MAX_VALUE: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class GroupKey:
    name: str
    field: str
    """Of `Extensions`."""
    default: int
    minimum: int
    documentation: str

    def read(self, extensions: Extensions) -> int:
        return int(getattr(extensions, self.field))

    def parse(self, text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ConfigError(f"Invalid value {text} for configuration {self.name}: Not a number of type INT") from None
        if value != self.default and not self.minimum <= value <= MAX_VALUE:
            raise ConfigError(
                f"Invalid value {value} for configuration {self.name}: Value must be {self.default} or at least "
                f"{self.minimum}, and at most {MAX_VALUE}"
            )
        return value


GROUP_KEYS: Final = {
    key.name: key
    for key in (
        GroupKey(
            CONFIG_NAMES["standby_takeover_ms"],
            "standby_takeover_ms",
            BY_SESSION,
            1,
            "How long after its connection closed a member's assignment is given to a standby. -1: when its session "
            "ends. A restart closes the connection too: if it takes longer than this, a standby takes over.",
        ),
        GroupKey(
            CONFIG_NAMES["target_size"],
            "target_size",
            NO_TARGET,
            1,
            "How many members get an assignment. The others are standbys: one of them takes over, without a rebalance, "
            "when an active member leaves. 0: every member gets an assignment.",
        ),
    )
}


def overrides(extensions: Extensions) -> dict[str, str]:
    """The configs that are set."""
    found = {name: key.read(extensions) for name, key in GROUP_KEYS.items()}
    return {name: str(value) for name, value in found.items() if value != GROUP_KEYS[name].default}


def changes(extensions: Extensions, wanted: Mapping[str, str]) -> dict[str, int]:
    """The fields of `Extensions` to change so that exactly these configs are set."""
    for name in wanted:
        if name not in GROUP_KEYS:
            raise ConfigError(f"Unknown group config name: {name}")
    values = {key: key.parse(wanted[name]) if name in wanted else key.default for name, key in GROUP_KEYS.items()}
    return {key.field: value for key, value in values.items() if value != key.read(extensions)}


def group_entries(extensions: Extensions) -> Iterator[ConfigEntry]:
    for name, key in GROUP_KEYS.items():
        value = key.read(extensions)
        default = ConfigSynonym(name, str(key.default), ConfigSource.DEFAULT)
        is_set = value != key.default
        synonyms = (ConfigSynonym(name, str(value), ConfigSource.GROUP), default) if is_set else (default,)
        yield ConfigEntry(
            name=name,
            value=str(value),
            source=synonyms[0].source,
            read_only=False,
            sensitive=False,
            type=ConfigType.INT,
            synonyms=synonyms,
            documentation=key.documentation,
        )
