"""Broker configs that are altered while the broker runs, on top of those it was started with.

They are kept in one file of the data directory, replaced whole before anybody is told: in two layers, for all brokers
and for this one, as Kafka keeps them. What can be altered is what Kafka lets be altered, except for what guards the
doors (listeners, TLS, SASL): that is read at the start.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from holdfast.broker.config import BROKER_KEYS, BrokerConfig
from holdfast.broker.config_keys import ConfigError, ConfigType
from holdfast.log import DataDirectoryError, StorageError, disk

BROKER_CONFIGS_FILE: Final = "broker-configs.json"

#: Configs in other units that one of them rests on as well.
_SAME_THING: Final = (
    "flush", "log.roll.hours", "log.retention.minutes", "log.retention.hours", "log.flush.scheduler.interval.ms",
)  # fmt: skip
#: What becomes of several names; the other fields are one config each.
_COMBINED_FIELDS: Final = ("log_roll_ms", "log_retention_ms", "flush", "log_flush_interval_ms")
_DYNAMIC_NAMES: Final = frozenset(name for name, key in BROKER_KEYS.items() if key.dynamic)
_DYNAMIC_FIELDS: Final = tuple(
    setting.name
    for setting in fields(BrokerConfig)
    if setting.metadata.get("name") in _DYNAMIC_NAMES or setting.name in _COMBINED_FIELDS
)


class NotDynamic(ConfigError):
    """Configs that are only read at the start."""


def altered(config: BrokerConfig, for_all: Mapping[str, str], own: Mapping[str, str]) -> BrokerConfig:
    """The configuration with these alterations instead of those it has; `ConfigError` if they cannot be."""
    unknown = [name for name in {**for_all, **own} if name not in BROKER_KEYS]
    if unknown:
        raise ConfigError(f'"{unknown[0]}" is not a broker config')
    fixed = sorted(name for name in {**for_all, **own} if not BROKER_KEYS[name].dynamic)
    if fixed:
        raise NotDynamic(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    relevant = {name: text for name, text in config.given.items() if name in _DYNAMIC_NAMES or name in _SAME_THING}
    resolved = BrokerConfig.of({**relevant, **for_all, **own})
    changes: dict[str, Any] = {name: getattr(resolved, name) for name in _DYNAMIC_FIELDS}
    return replace(
        config, altered_for_all=MappingProxyType(dict(for_all)), altered=MappingProxyType(dict(own)), **changes
    )


def is_list(name: str) -> bool:
    return name in BROKER_KEYS and BROKER_KEYS[name].type is ConfigType.LIST


def with_stored(config: BrokerConfig, directory: Path) -> BrokerConfig:
    """The configuration with what was altered when the broker last ran in `directory`."""
    path = directory / BROKER_CONFIGS_FILE
    try:
        content = json.loads(path.read_text())
        return altered(config, dict(content["for_all"]), dict(content["own"]))
    except FileNotFoundError:
        return config
    except (ValueError, KeyError, TypeError, ConfigError) as error:
        raise DataDirectoryError(
            f"{path} is damaged ({error}); restore it, or remove it to go by the configs of the start alone"
        ) from None


async def store(config: BrokerConfig, directory: Path) -> None:
    path = directory / BROKER_CONFIGS_FILE
    content = {"version": 1, "for_all": dict(config.altered_for_all), "own": dict(config.altered)}
    try:
        await asyncio.to_thread(disk.replace_file, path, json.dumps(content, indent=1).encode())
    except OSError as error:
        raise StorageError("write", path, error) from error
