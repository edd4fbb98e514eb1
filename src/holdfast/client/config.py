"""Settings: Kafka's dotted names in a mapping, or the same names with underscores as keywords."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from holdfast.client.errors import ConfigError

_TRUE = frozenset({"true", "1", "t", "yes", "on"})
_FALSE = frozenset({"false", "0", "f", "no", "off"})


def read_config(
    config: Mapping[str, Any] | None, keywords: Mapping[str, Any], known: Collection[str]
) -> dict[str, Any]:
    """Both combined, by Kafka's names. Unknown names are rejected, because they would silently have no effect."""
    settings = dict(config or {})
    for keyword, value in keywords.items():
        name = keyword if keyword in known else keyword.replace("_", ".")
        if name in settings:
            raise ConfigError(f"{name} is given twice, in the mapping and as a keyword")
        settings[name] = value
    for name in settings:
        if name not in known:
            nearest = difflib.get_close_matches(str(name), known, 1, 0.6)
            advice = f"did you mean {nearest[0]!r}?" if nearest else "see the settings in docs/client.md"
            raise ConfigError(f"unknown setting {name!r}: {advice}")
    return settings


def whole_number(
    settings: Mapping[str, Any], name: str, default: int, minimum: int = 0, maximum: int = 2**31 - 1
) -> int:
    value = settings.get(name, default)
    try:
        number = int(value) if isinstance(value, str | int) and not isinstance(value, bool) else None
    except ValueError:
        number = None
    if number is None or not minimum <= number <= maximum:
        raise ConfigError(f"{name} is {value!r}; it must be a whole number from {minimum} to {maximum}")
    return number


def boolean(settings: Mapping[str, Any], name: str, default: bool) -> bool:
    value = settings.get(name, default)
    text = str(value).lower()
    if text not in _TRUE | _FALSE:
        raise ConfigError(f"{name} is {value!r}; it must be true or false")
    return text in _TRUE


def one_of(settings: Mapping[str, Any], name: str, default: str, choices: Collection[str]) -> str:
    value = str(settings.get(name, default))
    if value not in choices:
        raise ConfigError(f"{name} is {value!r}; it can be {', '.join(choices)}")
    return value


def callback(settings: Mapping[str, Any], name: str) -> Any:
    value = settings.get(name)
    if value is not None and not callable(value):
        raise ConfigError(f"{name} is {value!r}, which cannot be called")
    return value
