"""How each listener is guarded, from configs with Kafka's names.

Kafka reads keys and certificates from Java's stores or from PEM files; here they are PEM files. A config may be said
for one listener alone, with `listener.name.<name>.` in front of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, cast

from holdfast.broker.config_keys import ConfigError, ConfigKey, ConfigType, split_list
from holdfast.broker.listener import Listener
from holdfast.broker.security.scram import SCRAM_MECHANISMS

ClientAuth = Literal["none", "requested", "required"]

MECHANISMS: Final = ("PLAIN", *SCRAM_MECHANISMS)
_TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
"""What `ssl.enabled.protocols` may name. Older ones are broken, and no client of these years needs them."""

OWN_KEYS: Final = tuple(
    ConfigKey(*key)
    for key in (
        # Kafka keeps users and ACLs in its metadata; Holdfast in a file.
        ("users.file", ConfigType.STRING, None),
        ("super.users", ConfigType.STRING, ""),
        ("allow.everyone.if.no.acl.found", ConfigType.BOOLEAN, "false"),
        # As librdkafka calls them: certificate and key often are two files.
        ("ssl.certificate.location", ConfigType.STRING, None),
        ("ssl.key.location", ConfigType.STRING, None),
        # A stranger must not keep a place for ever, nor all of them.
        ("authentication.timeout.ms", ConfigType.INT, "10000", "[1,...]"),
        ("max.unauthenticated.connections", ConfigType.INT, "1000", "[1,...]"),
    )
)
"""Names that Kafka's brokers do not describe."""

TLS_NAMES: Final = frozenset(
    {
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.truststore.location",
        "ssl.truststore.type",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.cipher.suites",
    }
)
SASL_NAMES: Final = frozenset(
    {"sasl.enabled.mechanisms", "sasl.server.max.receive.size", "connection.failed.authentication.delay.ms"}
)
ACL_NAMES: Final = frozenset({"users.file", "super.users", "allow.everyone.if.no.acl.found", "authorizer.class.name"})
_OF_ONE_LISTENER: Final = re.compile(r"listener\.name\.([^.]+)\.(.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    certificate: Path
    """The certificate, and those that lead from it to an authority. The key, too, if it has no file of its own."""
    key: Path | None = None
    key_password: str | None = field(default=None, repr=False)
    authorities: Path | None = None
    """Who may sign a client's certificate."""
    client_auth: ClientAuth = "none"
    versions: tuple[str, ...] = _TLS_VERSIONS
    cipher_suites: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(path for path in (self.certificate, self.key, self.authorities) if path is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorSettings:
    """What one listener asks of those who come."""

    tls: TlsSettings | None = None
    mechanisms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    doors: Mapping[str, DoorSettings] = field(default_factory=lambda: MappingProxyType({}))
    """By the listener's name."""
    users_file: Path | None = None
    super_users: tuple[str, ...] = ()
    allow_everyone_if_no_acl_found: bool = False


def security_settings(listeners: tuple[Listener, ...], values: Mapping[str, str]) -> SecuritySettings:
    """`ConfigError` where a listener promises what cannot be kept."""
    users_file = values.get("users.file", "").strip()
    doors = {listener.name: _door(listener, values) for listener in listeners}
    if any(door.mechanisms for door in doors.values()) and not users_file:
        raise ConfigError(
            "a listener with SASL needs users.file, the file with the users; `holdfast users add` makes it"
        )
    if values.get("authorizer.class.name", "").strip() and not users_file:
        raise ConfigError(
            "authorizer.class.name asks for authorization, which needs users.file, the file with the ACLs"
        )
    everyone = values.get("allow.everyone.if.no.acl.found", "false").strip().lower() == "true"
    return SecuritySettings(
        doors=MappingProxyType(doors),
        users_file=Path(users_file) if users_file else None,
        super_users=_super_users(values.get("super.users", "")),
        allow_everyone_if_no_acl_found=everyone,
    )


def without_effect(name: str, listeners: tuple[Listener, ...], values: Mapping[str, str]) -> bool:
    """Whether a setting that is meant to protect the broker does nothing."""
    of_one = _OF_ONE_LISTENER.fullmatch(name)
    if of_one is not None:
        listeners = tuple(one for one in listeners if one.name.lower() == of_one[1].lower())
        name = of_one[2]
        if name in ACL_NAMES:
            return True
    if name in TLS_NAMES:
        return not any(listener.is_encrypted for listener in listeners)
    if name in SASL_NAMES:
        return not any(listener.asks_for_password for listener in listeners)
    return name not in ACL_NAMES or not values.get("users.file", "").strip()


def _super_users(text: str) -> tuple[str, ...]:
    """As Kafka has it: separated by semicolons, since the name in a certificate has commas."""
    principals = tuple(part.strip() for part in text.split(";") if part.strip())
    for principal in principals:
        if not principal.startswith("User:"):
            raise ConfigError(f"Invalid value {text} for configuration super.users: expected User:name;User:other")
    return principals


def _door(listener: Listener, values: Mapping[str, str]) -> DoorSettings:
    of_listener = {
        found[2]: text
        for name, text in values.items()
        if (found := _OF_ONE_LISTENER.fullmatch(name)) and found[1].lower() == listener.name.lower()
    }
    said = {**values, **of_listener}
    return DoorSettings(
        tls=_tls(listener, said) if listener.is_encrypted else None,
        mechanisms=_mechanisms(said) if listener.asks_for_password else (),
    )


def _mechanisms(said: Mapping[str, str]) -> tuple[str, ...]:
    named = split_list(said.get("sasl.enabled.mechanisms", ",".join(SCRAM_MECHANISMS)))
    unknown = [name for name in named if name not in MECHANISMS]
    if unknown or not named:
        raise ConfigError(
            f"Invalid value {','.join(named)} for configuration sasl.enabled.mechanisms: "
            f"Holdfast has {', '.join(MECHANISMS)}"
        )
    return tuple(dict.fromkeys(named))


def _tls(listener: Listener, said: Mapping[str, str]) -> TlsSettings:
    for name in ("ssl.keystore.type", "ssl.truststore.type"):
        if said.get(name, "PEM").strip().upper() != "PEM":
            raise ConfigError(f"Invalid value {said[name]} for configuration {name}: Holdfast reads PEM files only")
    certificate = said.get("ssl.certificate.location") or said.get("ssl.keystore.location")
    if not certificate:
        raise ConfigError(
            f"{listener} needs a certificate: set ssl.certificate.location and ssl.key.location, "
            "or ssl.keystore.location for both in one file, as PEM"
        )
    key, authorities = said.get("ssl.key.location"), said.get("ssl.truststore.location")
    client_auth = said.get("ssl.client.auth", "none").strip().lower()
    if client_auth not in ("none", "requested", "required"):
        raise ConfigError(
            f"Invalid value {client_auth} for configuration ssl.client.auth: "
            "String must be one of: required, requested, none"
        )
    if client_auth != "none" and not authorities:
        raise ConfigError(
            f"{listener} asks for clients' certificates (ssl.client.auth={client_auth}) and needs to know who may sign "
            "them: set ssl.truststore.location, as PEM"
        )
    return TlsSettings(
        certificate=Path(certificate),
        key=Path(key) if key else None,
        key_password=said.get("ssl.key.password"),
        authorities=Path(authorities) if authorities else None,
        client_auth=cast("ClientAuth", client_auth),
        versions=_versions(said.get("ssl.enabled.protocols", ",".join(_TLS_VERSIONS))),
        cipher_suites=split_list(said.get("ssl.cipher.suites", "")),
    )


def _versions(text: str) -> tuple[str, ...]:
    named = split_list(text)
    if not named or any(name not in _TLS_VERSIONS for name in named):
        raise ConfigError(
            f"Invalid value {text} for configuration ssl.enabled.protocols: "
            f"Holdfast speaks {' and '.join(_TLS_VERSIONS)}"
        )
    return tuple(name for name in _TLS_VERSIONS if name in named)
