"""Broker addresses: `bootstrap.servers` in the form of Kafka's clients."""

from __future__ import annotations

from typing import Final, NamedTuple

from holdfast.client.errors import ConfigError

DEFAULT_PORT: Final = 9092


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(
    servers: str, protocol: str = "PLAINTEXT", setting: str = "bootstrap.servers"
) -> tuple[Address, ...]:
    """The addresses of "host:port,host:port", in order and without duplicates.

    As in librdkafka, the default port is 9092, and an address may include its protocol ("SASL_SSL://host:port"). An
    IPv6 address is in brackets: "[::1]:9092". `setting` is the name of the setting in error messages.
    """
    found = [_parse(one.strip(), protocol, setting) for one in servers.split(",") if one.strip()]
    if not found:
        raise ConfigError(f"{setting} names no broker: give host:port, several separated by commas")
    return tuple(dict.fromkeys(found))


def _parse(text: str, protocol: str, setting: str) -> Address:
    said, _, rest = text.rpartition("://")
    if said and said.upper() != protocol:
        raise ConfigError(
            f"{setting} has {text!r}, but security.protocol is {protocol}: make them agree, or leave {said}:// out"
        )
    host, port = _split(rest, text, setting)
    if not host or any(character.isspace() or character in "/[]" for character in host):
        raise _illegal(text, f"{host!r} is no host", setting)
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise _illegal(text, f"{port!r} is no port", setting)
    return Address(host, int(port))


def _split(rest: str, text: str, setting: str) -> tuple[str, str]:
    if rest.startswith("["):
        host, bracket, port = rest[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise _illegal(text, "an IPv6 address is written [::1]:9092", setting)
        return host, port[1:] if port else str(DEFAULT_PORT)
    if rest.count(":") > 1:
        raise _illegal(text, "an IPv6 address is written [::1]:9092", setting)
    host, colon, port = rest.partition(":")
    return host, port if colon else str(DEFAULT_PORT)


def _illegal(text: str, why: str, setting: str) -> ConfigError:
    return ConfigError(f"{setting} has {text!r}, which is not host:port: {why}")
