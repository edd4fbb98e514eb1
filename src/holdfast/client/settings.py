"""The settings of the network, by librdkafka's names and within its limits."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.client import group_servers, security
from holdfast.client.addresses import Address, parse_bootstrap
from holdfast.client.connection import MAX_RESPONSE_BYTES, REQUEST_TIMEOUT_S
from holdfast.client.errors import ConfigError
from holdfast.client.group_servers import BOOTSTRAP, GROUP_BOOTSTRAP, group_config
from holdfast.client.security import Security

_MAX_INT32: Final = (1 << 31) - 1
_LIMITS: Final = {
    "socket.connection.setup.timeout.ms": (1000, _MAX_INT32),
    "socket.timeout.ms": (10, 300_000),
    "request.timeout.ms": (1, 900_000),
    "reconnect.backoff.ms": (0, 3_600_000),
    "reconnect.backoff.max.ms": (0, 3_600_000),
    "retry.backoff.ms": (1, 300_000),
    "receive.message.max.bytes": (1000, _MAX_INT32),
}
_FAMILIES: Final = {"any": socket.AF_UNSPEC, "v4": socket.AF_INET, "v6": socket.AF_INET6}

NAMES: Final = (
    security.NAMES
    | group_servers.NAMES
    | {
        *_LIMITS,
        BOOTSTRAP,
        "metadata.broker.list",
        "client.id",
        "broker.address.family",
    }
)
"""The network settings, including those of security."""


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    bootstrap: tuple[Address, ...]
    client_id: str = "holdfast"
    security: Security = field(default_factory=Security)
    connection_setup_timeout_s: float = 30.0
    request_timeout_s: float = REQUEST_TIMEOUT_S
    reconnect_backoff_s: float = 0.1
    reconnect_backoff_max_s: float = 10.0
    retry_backoff_s: float = 0.1
    max_response_bytes: int = MAX_RESPONSE_BYTES
    family: int = socket.AF_UNSPEC
    bootstrap_setting: str = BOOTSTRAP
    """The name of the setting with the bootstrap servers, for error messages."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> NetworkSettings:
        """From the network settings; other settings are ignored. Raises ConfigError, which names the setting."""
        return cls._read(config, Security.from_config(config), BOOTSTRAP)

    @classmethod
    def of_groups(cls, config: Mapping[str, Any], default: NetworkSettings | None = None) -> NetworkSettings:
        """For the servers of the groups (group.bootstrap.servers). Without this setting, the `default`, or else as
        `from_config`."""
        own = group_config(config)
        if own is None:
            return cls.from_config(config) if default is None else default
        try:
            guarded = Security.from_config(own)
        except ConfigError as error:
            raise ConfigError(f"{GROUP_BOOTSTRAP}: {error}") from error
        return cls._read(own, guarded, GROUP_BOOTSTRAP)

    @classmethod
    def _read(cls, config: Mapping[str, Any], guarded: Security, setting: str) -> NetworkSettings:
        servers = config.get(BOOTSTRAP, config.get("metadata.broker.list"))
        if not isinstance(servers, str):
            raise ConfigError(f"{setting} is missing: give host:port, several separated by commas")
        least_s = _number(config, "reconnect.backoff.ms", 100) / 1000
        most_s = _number(config, "reconnect.backoff.max.ms", 10_000) / 1000
        if least_s > most_s:
            raise ConfigError("reconnect.backoff.max.ms must not be below reconnect.backoff.ms")
        family = str(config.get("broker.address.family", "any"))
        if family not in _FAMILIES:
            raise ConfigError(f"broker.address.family is {family!r}; it can be any, v4 or v6")
        timeout = "socket.timeout.ms" if "request.timeout.ms" not in config else "request.timeout.ms"
        return cls(
            bootstrap=parse_bootstrap(servers, guarded.protocol, setting),
            client_id=str(config.get("client.id", "holdfast")),
            security=guarded,
            connection_setup_timeout_s=_number(config, "socket.connection.setup.timeout.ms", 30_000) / 1000,
            request_timeout_s=_number(config, timeout, int(REQUEST_TIMEOUT_S * 1000)) / 1000,
            reconnect_backoff_s=least_s,
            reconnect_backoff_max_s=most_s,
            retry_backoff_s=_number(config, "retry.backoff.ms", 100) / 1000,
            max_response_bytes=_number(config, "receive.message.max.bytes", MAX_RESPONSE_BYTES),
            family=_FAMILIES[family],
            bootstrap_setting=setting,
        )


def _number(config: Mapping[str, Any], name: str, default: int) -> int:
    value = config.get(name, default)
    lowest, highest = _LIMITS[name]
    try:
        number = int(value) if isinstance(value, str | int) and not isinstance(value, bool) else None
    except ValueError:
        number = None
    if number is None or not lowest <= number <= highest:
        raise ConfigError(f"{name} is {value!r}; it must be a whole number from {lowest} to {highest}")
    return number
