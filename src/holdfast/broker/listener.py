"""Where the broker listens, and what it tells clients to connect to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from holdfast.broker.config_keys import ConfigError, split_list

_ENDPOINT = re.compile(
    r"(?:(?P<name>[A-Za-z0-9_-]+)://)?(?:\[(?P<ipv6>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<host>[^\s:/\[\]]*)):(?P<port>\d{1,5})"
)
_PROTECTED = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True)
class Listener:
    #: Empty for every interface of the machine.
    host: str
    port: int
    name: str = "PLAINTEXT"

    @property
    def is_wildcard(self) -> bool:
        return self.host in ("", "0.0.0.0", "::")  # noqa: S104 - recognised here, not bound

    @property
    def is_loopback(self) -> bool:
        try:
            return ip_address(self.host.partition("%")[0]).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"

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


def only_listener(config: str, values: Mapping[str, str]) -> Listener:
    """The one listener of `listeners` or `advertised.listeners` that takes clients, without protection.

    A file written for Kafka may also name the controllers' listener; there is no controller to connect to here.
    """
    controllers = {name.upper() for name in split_list(values.get("controller.listener.names", ""))}
    protocols = _protocols(values.get("listener.security.protocol.map", ""))
    listeners = []
    for text in split_list(values[config]):
        listener = parse_listener(config, text)
        if listener.name in controllers:
            continue
        _refuse_protection(config, listener, protocols)
        listeners.append(listener)
    if len(listeners) != 1:
        found = "none" if not listeners else f"{len(listeners)}"
        raise ConfigError(
            f"Invalid value {values[config]} for configuration {config}: "
            f"Holdfast serves exactly one PLAINTEXT listener, found {found}"
        )
    return listeners[0]


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


def _refuse_protection(config: str, listener: Listener, protocols: Mapping[str, str]) -> None:
    # A listener that was meant to be encrypted or to ask for a password must not come up open.
    protocol = protocols.get(listener.name, listener.name)
    if protocol in _PROTECTED:
        raise ConfigError(
            f"Invalid value {listener} for configuration {config}: Holdfast has no {protocol} listener; only PLAINTEXT"
        )
    if protocol != "PLAINTEXT":
        raise ConfigError(
            f"Invalid value {listener} for configuration {config}: "
            f"listener.security.protocol.map does not say that {listener.name} is PLAINTEXT"
        )
