"""The definition of each config: its type, its default and its valid values.

The definitions are in the tables `broker_configs.txt` and `topic_configs.txt` beside this file. This module reads them
and validates values. Kafka clients see the error messages, so these have Kafka's form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType

Value = bool | int | float | str | tuple[str, ...]


class ConfigError(Exception):
    """An invalid config; `str()` is one sentence for the person who set it."""


class ConfigType(IntEnum):
    """The numbers DescribeConfigs uses."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_WHOLE_NUMBER_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
_RANGE = re.compile(r"\[(-?\d+),\.\.\.(?:,(-?[\d.]+))?\](?: or (-?\d+))?")
_CHOICES = re.compile(r"(\(case insensitive\) )?\[([^\[\]]+)\]")
_THROTTLED_REPLICAS = "[partitionId]:[brokerId]"


class ConfigResourceType(IntEnum):
    """The types of resources that have configs; the numbers are Kafka's."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@dataclass(frozen=True, slots=True)
class ConfigKey:
    name: str
    type: ConfigType
    default: str | None
    check: str = ""
    internal: bool = False
    #: Whether a broker config can be altered while the broker runs.
    dynamic: bool = False
    #: The broker config that a topic config falls back on.
    server_synonym: str | None = None
    documentation: str = ""

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> Value:
        """The typed value of `text`; `ConfigError` if it is invalid."""
        value = self._typed(text.strip() if self.type is not ConfigType.PASSWORD else text)
        reason = _violation(self.check, value)
        if reason:
            raise self.invalid_value(text, reason)
        return value

    def invalid_value(self, text: str, reason: str) -> ConfigError:
        shown = "[hidden]" if self.sensitive else text
        return ConfigError(f"Invalid value {shown} for configuration {self.name}: {reason}")

    def _typed(self, text: str) -> Value:
        if self.type is ConfigType.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise self.invalid_value(text, "Expected value to be either true or false")
            return text.lower() == "true"
        if self.type is ConfigType.LIST:
            return self._list(text)
        if self.type is ConfigType.DOUBLE:
            try:
                return float(text)
            except ValueError:
                raise self.invalid_value(text, "Not a number of type DOUBLE") from None
        bits = _WHOLE_NUMBER_BITS.get(self.type)
        return text if bits is None else self._whole_number(text, bits)

    def _list(self, text: str) -> tuple[str, ...]:
        parts = split_list(text)
        if "" in parts:
            raise ConfigError(f"Configuration '{self.name}' values must not be empty.")
        # KIP-1161: duplicates are removed.
        return tuple(dict.fromkeys(parts))

    def _whole_number(self, text: str, bits: int) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", text):
            raise self.invalid_value(text, f"Not a number of type {self.type.name}")
        number = int(text)
        if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
            raise self.invalid_value(text, f"Not a number of type {self.type.name}")
        return number


def split_list(text: str) -> tuple[str, ...]:
    """The elements of a comma-separated list; the empty text is the empty list."""
    return tuple(part.strip() for part in text.split(",")) if text.strip() else ()


def _violation(check: str, value: Value) -> str | None:
    """Why `value` violates a check in Kafka's notation: a range, a set of values, or non-empty."""
    if isinstance(value, (int, float)):
        return _out_of_range(check, value)
    if check.startswith(_THROTTLED_REPLICAS):
        return _not_throttled_replicas(value)
    if check == "non-empty string" and not value:
        return "String must be non-empty"
    parts = value if isinstance(value, tuple) else (value,)
    choices = _CHOICES.fullmatch(check)
    return _not_among(choices, parts) if choices else None


def _out_of_range(check: str, value: float) -> str | None:
    bounds = _RANGE.fullmatch(check)
    if bounds is None:
        return None
    minimum, maximum, exception = bounds.groups()
    if exception is not None and maximum is not None:
        fits = value == int(exception) or int(minimum) <= value <= float(maximum)
        return None if fits else f"Value must be between {minimum} and {maximum} or equal to {exception}"
    # Written so that NaN fails both.
    if not value >= int(minimum):
        return f"Value must be at least {minimum}"
    if maximum is not None and not value <= float(maximum):
        return f"Value must be no more than {maximum}"
    return None


def _not_among(choices: re.Match[str], parts: tuple[str, ...]) -> str | None:
    fold = str.lower if choices[1] else str
    names = [name.strip() for name in choices[2].split(",")]
    allowed = {fold(name) for name in names}
    if all(fold(part) in allowed for part in parts):
        return None
    return f"String must be one of: {', '.join(names)}"


def _not_throttled_replicas(value: Value) -> str | None:
    parts = value if isinstance(value, tuple) else (str(value),)
    if parts in ((), ("*",)) or all(re.fullmatch(r"\d+:\d+", part) for part in parts):
        return None
    return "expected * or a list of [partitionId]:[brokerId]"


def _rows(table: str) -> Iterator[list[str]]:
    text = Path(__file__).with_name(table).read_text(encoding="utf-8")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            yield [cell.strip() for cell in line.split("|")] + [""] * 5


def read_keys(table: str) -> Mapping[str, ConfigKey]:
    """The keys of one of the tables beside this file, by name."""
    keys = {}
    for name, kind, default, check, synonym, documentation, *_ in _rows(table):
        type_name, *marks = kind.split()
        keys[name] = ConfigKey(
            name=name,
            type=ConfigType[type_name],
            default=None if default == "null" else default,
            check=check,
            internal="internal" in marks,
            dynamic="dynamic" in marks,
            server_synonym=synonym or None,
            documentation=documentation,
        )
    return MappingProxyType(keys)
