"""Broker configs that are altered while the broker runs. They override the configs that it was started with.

They are stored in one file of the data directory, which is replaced as a whole before a change takes effect. As in
Kafka there are two layers: cluster-wide defaults, and configs of this broker. The configs that Kafka calls dynamic can
be altered, except for those of listeners, TLS and SASL, which are read at startup.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from holdfast.broker.config.broker import BROKER_KEYS, BrokerConfig
from holdfast.broker.config.schema import ConfigError, ConfigType
from holdfast.broker.structured_log import log_event
from holdfast.log import DataDirectoryError, StorageError, disk

logger = logging.getLogger(__name__)

BROKER_CONFIGS_FILE: Final = "broker-configs.json"

#: Other names for dynamic configs, in other units.
_SYNONYMS: Final = (
    "flush", "log.roll.hours", "log.retention.minutes", "log.retention.hours", "log.flush.scheduler.interval.ms",
)  # fmt: skip
#: Fields that are made from several configs; the other fields are one config each.
_COMBINED_FIELDS: Final = ("log_roll_ms", "log_retention_ms", "flush", "log_flush_interval_ms")
_DYNAMIC_NAMES: Final = frozenset(name for name, key in BROKER_KEYS.items() if key.dynamic)
_DYNAMIC_FIELDS: Final = tuple(
    setting.name
    for setting in fields(BrokerConfig)
    if setting.metadata.get("name") in _DYNAMIC_NAMES or setting.name in _COMBINED_FIELDS
)


class NotDynamic(ConfigError):
    """Configs that are only read at startup."""


def altered(config: BrokerConfig, for_all: Mapping[str, str], own: Mapping[str, str]) -> BrokerConfig:
    """The configuration with these dynamic configs instead of the current ones; `ConfigError` if they are invalid."""
    unknown = [name for name in {**for_all, **own} if name not in BROKER_KEYS]
    if unknown:
        raise ConfigError(f'"{unknown[0]}" is not a broker config')
    fixed = sorted(name for name in {**for_all, **own} if not BROKER_KEYS[name].dynamic)
    if fixed:
        raise NotDynamic(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    relevant = {
        name: text for name, text in config.static_configs.items() if name in _DYNAMIC_NAMES or name in _SYNONYMS
    }
    resolved = BrokerConfig.of({**relevant, **for_all, **own})
    changes: dict[str, Any] = {name: getattr(resolved, name) for name in _DYNAMIC_FIELDS}
    return replace(
        config, dynamic_defaults=MappingProxyType(dict(for_all)), dynamic_configs=MappingProxyType(dict(own)), **changes
    )


def is_list(name: str) -> bool:
    return name in BROKER_KEYS and BROKER_KEYS[name].type is ConfigType.LIST


class DynamicBrokerConfig:
    """The configuration that is in force."""

    def __init__(self, config: BrokerConfig) -> None:
        self.current = config
        self.lock = asyncio.Lock()
        """Held from reading `current` to `alter`, so that no concurrent change is lost."""
        self._directory = config.data_dir
        self._listeners: list[Callable[[BrokerConfig], None]] = []

    def on_altered(self, listener: Callable[[BrokerConfig], None]) -> None:
        self._listeners.append(listener)

    def load(self, directory: Path, node_id: int) -> None:
        """Adds the dynamic configs stored in `directory`; DataDirectoryError if they are unreadable."""
        self._directory = directory
        self.current = with_stored(replace(self.current, node_id=node_id), directory)

    async def alter(self, config: BrokerConfig) -> None:
        """Stores `config` and puts it in force; StorageError if it cannot be stored."""
        await store(config, self._directory)
        self.current = config
        for listener in self._listeners:
            listener(config)
        names = {**config.dynamic_defaults, **config.dynamic_configs}
        log_event(logger, "broker configured", altered=",".join(f"{name}={names[name]}" for name in sorted(names)))


def with_stored(config: BrokerConfig, directory: Path) -> BrokerConfig:
    """The configuration with the dynamic configs stored in `directory`."""
    path = directory / BROKER_CONFIGS_FILE
    try:
        content = json.loads(path.read_text())
        return altered(config, dict(content["for_all"]), dict(content["own"]))
    except FileNotFoundError:
        return config
    except (ValueError, KeyError, TypeError, ConfigError) as error:
        raise DataDirectoryError(
            f"{path} is damaged ({error}); restore it, or remove it to use the static configs only"
        ) from None


async def store(config: BrokerConfig, directory: Path) -> None:
    path = directory / BROKER_CONFIGS_FILE
    content = {"version": 1, "for_all": dict(config.dynamic_defaults), "own": dict(config.dynamic_configs)}
    try:
        await asyncio.to_thread(disk.replace_file, path, json.dumps(content, indent=1).encode())
    except OSError as error:
        raise StorageError("write", path, error) from error
