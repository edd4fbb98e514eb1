"""Listeners: their addresses, advertised addresses, and security protocols."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Final

from holdfast.broker.config.schema import ConfigError, split_list

_ENDPOINT = re.compile(
    r"(?:(?P<name>[A-Za-z0-9_-]+)://)?(?:\[(?P<ipv6>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<host>[^\s:/\[\]]*)):(?P<port>\d{1,5})"
)
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True)
class Listener:
    #: Empty for every interface of the machine.
    host: str
    port: int
    name: str = "PLAINTEXT"
    protocol: str = "PLAINTEXT"

    @property
    def is_wildcard(self) -> bool:
        return self.host in ("", "0.0.0.0", "::")  # noqa: S104 - recognized here, not bound

    @property
    def is_loopback(self) -> bool:
        try:
            return ip_address(self.host.partition("%")[0]).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"

    @property
    def is_encrypted(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def requires_sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_listener(config: str, text: str) -> Listener:
    """One `PLAINTEXT://host:port`, or `host:port`, with an IPv6 address in brackets."""
    match = _ENDPOINT.fullmatch(text.strip())
    if match is None or int(match["port"]) > 65535:
        raise ConfigError(
            f"Invalid value {text} for configuration {config}: expected PLAINTEXT://host:port "
            "with a port from 0 to 65535 and an IPv6 address in brackets"
        )
    return Listener(match["ipv6"] or match["host"], int(match["port"]), (match["name"] or "PLAINTEXT").upper())


def client_listeners(config: str, values: Mapping[str, str]) -> tuple[Listener, ...]:
    """The client listeners of `listeners` or `advertised.listeners`.

    A file written for Kafka may also contain the controllers' listener. Holdfast has no separate controller.
    """
    controllers = {name.upper() for name in split_list(values.get("controller.listener.names", ""))}
    protocols = _protocols(values.get("listener.security.protocol.map", ""))
    listeners = []
    for text in split_list(values[config]):
        listener = parse_listener(config, text)
        if listener.name not in controllers:
            listeners.append(replace(listener, protocol=_protocol(config, listener, protocols)))
    if not listeners:
        raise ConfigError(f"Invalid value {values[config]} for configuration {config}: no client could connect")
    for name, times in Counter(listener.name for listener in listeners).items():
        if times > 1:
            raise ConfigError(
                f"Invalid value {values[config]} for configuration {config}: "
                f"each listener must have a different name, and {name} is there {times} times"
            )
    return tuple(listeners)


def advertised_listeners(values: Mapping[str, str], listeners: tuple[Listener, ...]) -> dict[str, Listener]:
    """The advertised address of each listener that has one, by listener name."""
    if not values.get("advertised.listeners"):
        return {}
    advertised = {listener.name: listener for listener in client_listeners("advertised.listeners", values)}
    names = {listener.name for listener in listeners}
    for name, listener in advertised.items():
        if name not in names:
            raise _invalid(listener, f"there is no listener {name}")
        if listener.is_wildcard or listener.port == 0:
            raise _invalid(listener, "no client can connect to a wildcard address or to port 0")
    return advertised


def _invalid(listener: Listener, reason: str) -> ConfigError:
    return ConfigError(f"Invalid value {listener} for configuration advertised.listeners: {reason}")


def _protocols(protocol_map: str) -> dict[str, str]:
    protocols = {}
    for entry in split_list(protocol_map):
        name, colon, protocol = entry.partition(":")
        if not colon:
            raise ConfigError(
                f"Invalid value {protocol_map} for configuration listener.security.protocol.map: "
                "expected a list of NAME:PROTOCOL"
            )
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def _protocol(config: str, listener: Listener, protocols: Mapping[str, str]) -> str:
    # A listener with an unknown protocol must not start without security, because the operator may have intended some.
    protocol = protocols.get(listener.name, listener.name)
    if protocol not in PROTOCOLS:
        raise ConfigError(
            f"Invalid value {listener} for configuration {config}: listener.security.protocol.map must say "
            f"which of {', '.join(PROTOCOLS)} {listener.name} is"
        )
    return protocol
