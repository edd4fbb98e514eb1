"""What a config name means: its type, its default, the values it takes.

The tables beside this file hold the facts (`broker_configs.txt`, `topic_configs.txt`); here they become keys that
read a value and refuse a bad one. Texts of refusals reach Kafka clients, so they have the form a Kafka user knows.
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
    """A config that cannot be taken; `str()` is one sentence for the person who set it."""


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


@dataclass(frozen=True, slots=True)
class ConfigKey:
    name: str
    type: ConfigType
    default: str | None
    check: str = ""
    internal: bool = False
    #: Of a broker config: it can be altered while the broker runs.
    dynamic: bool = False
    #: The broker config that a topic config falls back on.
    server_synonym: str | None = None
    documentation: str = ""

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> Value:
        """The typed value of `text`; `ConfigError` if this config does not take it."""
        value = self._typed(text.strip() if self.type is not ConfigType.PASSWORD else text)
        reason = _complaint(self.check, value)
        if reason:
            raise self.refuse(text, reason)
        return value

    def refuse(self, text: str, reason: str) -> ConfigError:
        shown = "[hidden]" if self.sensitive else text
        return ConfigError(f"Invalid value {shown} for configuration {self.name}: {reason}")

    def _typed(self, text: str) -> Value:
        if self.type is ConfigType.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise self.refuse(text, "Expected value to be either true or false")
            return text.lower() == "true"
        if self.type is ConfigType.LIST:
            return self._list(text)
        if self.type is ConfigType.DOUBLE:
            try:
                return float(text)
            except ValueError:
                raise self.refuse(text, "Not a number of type DOUBLE") from None
        bits = _WHOLE_NUMBER_BITS.get(self.type)
        return text if bits is None else self._whole_number(text, bits)

    def _list(self, text: str) -> tuple[str, ...]:
        parts = split_list(text)
        if "" in parts:
            raise ConfigError(f"Configuration '{self.name}' values must not be empty.")
        # KIP-1161: what is named twice counts once.
        return tuple(dict.fromkeys(parts))

    def _whole_number(self, text: str, bits: int) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", text):
            raise self.refuse(text, f"Not a number of type {self.type.name}")
        number = int(text)
        if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
            raise self.refuse(text, f"Not a number of type {self.type.name}")
        return number


def split_list(text: str) -> tuple[str, ...]:
    """The elements of a comma-separated list; the empty text is the empty list."""
    return tuple(part.strip() for part in text.split(",")) if text.strip() else ()


def _complaint(check: str, value: Value) -> str | None:
    """What is wrong with `value` by a check in Kafka's notation: a range, a choice, or a word about emptiness."""
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
    least, most, exception = bounds.groups()
    if exception is not None and most is not None:
        fits = value == int(exception) or int(least) <= value <= float(most)
        return None if fits else f"Value must be between {least} and {most} or equal to {exception}"
    # Written so that NaN fails both.
    if not value >= int(least):
        return f"Value must be at least {least}"
    if most is not None and not value <= float(most):
        return f"Value must be no more than {most}"
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
