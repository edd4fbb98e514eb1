"""The security settings of each listener, from configs with Kafka's names.

Kafka reads keys and certificates from Java key stores or from PEM files; Holdfast reads PEM files. A config may be set
for one listener alone, with the prefix `listener.name.<name>.`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, cast

from holdfast.broker.config.listeners import Listener
from holdfast.broker.config.schema import ConfigError, ConfigKey, ConfigType, split_list

ClientAuth = Literal["none", "requested", "required"]

SCRAM_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = ("PLAIN", *SCRAM_MECHANISMS)
_TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
"""The values of `ssl.enabled.protocols`. Older protocols are insecure, and no current client needs them."""

OWN_KEYS: Final = tuple(
    ConfigKey(*key)
    for key in (
        # Kafka keeps users and ACLs in its metadata; Holdfast in a file.
        ("users.file", ConfigType.STRING, None),
        ("super.users", ConfigType.STRING, ""),
        ("allow.everyone.if.no.acl.found", ConfigType.BOOLEAN, "false"),
        # With librdkafka's names, because the certificate and the key are often two files.
        ("ssl.certificate.location", ConfigType.STRING, None),
        ("ssl.key.location", ConfigType.STRING, None),
        # Unauthenticated clients must not keep connections for ever, and must not use up all connections.
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
_LISTENER_CONFIG: Final = re.compile(r"listener\.name\.([^.]+)\.(.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    certificate: Path
    """The certificate chain, and the key if it has no file of its own."""
    key: Path | None = None
    key_password: str | None = field(default=None, repr=False)
    authorities: Path | None = None
    """The certificate authorities for clients' certificates."""
    client_auth: ClientAuth = "none"
    versions: tuple[str, ...] = _TLS_VERSIONS
    cipher_suites: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(path for path in (self.certificate, self.key, self.authorities) if path is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSecurity:
    """The security settings of one listener."""

    tls: TlsSettings | None = None
    mechanisms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    listeners: Mapping[str, ListenerSecurity] = field(default_factory=lambda: MappingProxyType({}))
    """By the listener's name."""
    users_file: Path | None = None
    super_users: tuple[str, ...] = ()
    allow_everyone_if_no_acl_found: bool = False


def security_settings(listeners: tuple[Listener, ...], values: Mapping[str, str]) -> SecuritySettings:
    """`ConfigError` if a listener lacks what its protocol needs."""
    users_file = values.get("users.file", "").strip()
    by_listener = {listener.name: _listener_security(listener, values) for listener in listeners}
    if any(one.mechanisms for one in by_listener.values()) and not users_file:
        raise ConfigError(
            "a listener with SASL needs users.file, the file with the users; `holdfast users add` makes it"
        )
    if values.get("authorizer.class.name", "").strip() and not users_file:
        raise ConfigError(
            "authorizer.class.name asks for authorization, which needs users.file, the file with the ACLs"
        )
    everyone = values.get("allow.everyone.if.no.acl.found", "false").strip().lower() == "true"
    return SecuritySettings(
        listeners=MappingProxyType(by_listener),
        users_file=Path(users_file) if users_file else None,
        super_users=_super_users(values.get("super.users", "")),
        allow_everyone_if_no_acl_found=everyone,
    )


def without_effect(name: str, listeners: tuple[Listener, ...], values: Mapping[str, str]) -> bool:
    """Whether a security config has no effect."""
    of_one = _LISTENER_CONFIG.fullmatch(name)
    if of_one is not None:
        listeners = tuple(one for one in listeners if one.name.lower() == of_one[1].lower())
        name = of_one[2]
        if name in ACL_NAMES:
            return True
    if name in TLS_NAMES:
        return not any(listener.is_encrypted for listener in listeners)
    if name in SASL_NAMES:
        return not any(listener.requires_sasl for listener in listeners)
    return name not in ACL_NAMES or not values.get("users.file", "").strip()


def _super_users(text: str) -> tuple[str, ...]:
    """Separated by semicolons, as in Kafka, because the names in certificates contain commas."""
    principals = tuple(part.strip() for part in text.split(";") if part.strip())
    for principal in principals:
        if not principal.startswith("User:"):
            raise ConfigError(f"Invalid value {text} for configuration super.users: expected User:name;User:other")
    return principals


def _listener_security(listener: Listener, values: Mapping[str, str]) -> ListenerSecurity:
    of_listener = {
        found[2]: text
        for name, text in values.items()
        if (found := _LISTENER_CONFIG.fullmatch(name)) and found[1].lower() == listener.name.lower()
    }
    configs = {**values, **of_listener}
    return ListenerSecurity(
        tls=_tls(listener, configs) if listener.is_encrypted else None,
        mechanisms=_mechanisms(configs) if listener.requires_sasl else (),
    )


def _mechanisms(configs: Mapping[str, str]) -> tuple[str, ...]:
    named = split_list(configs.get("sasl.enabled.mechanisms", ",".join(SCRAM_MECHANISMS)))
    unknown = [name for name in named if name not in MECHANISMS]
    if unknown or not named:
        raise ConfigError(
            f"Invalid value {','.join(named)} for configuration sasl.enabled.mechanisms: "
            f"Holdfast has {', '.join(MECHANISMS)}"
        )
    return tuple(dict.fromkeys(named))


def _tls(listener: Listener, configs: Mapping[str, str]) -> TlsSettings:
    for name in ("ssl.keystore.type", "ssl.truststore.type"):
        if configs.get(name, "PEM").strip().upper() != "PEM":
            raise ConfigError(f"Invalid value {configs[name]} for configuration {name}: Holdfast reads PEM files only")
    certificate = configs.get("ssl.certificate.location") or configs.get("ssl.keystore.location")
    if not certificate:
        raise ConfigError(
            f"{listener} needs a certificate: set ssl.certificate.location and ssl.key.location, "
            "or ssl.keystore.location for both in one file, as PEM"
        )
    key, authorities = configs.get("ssl.key.location"), configs.get("ssl.truststore.location")
    client_auth = configs.get("ssl.client.auth", "none").strip().lower()
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
        key_password=configs.get("ssl.key.password"),
        authorities=Path(authorities) if authorities else None,
        client_auth=cast("ClientAuth", client_auth),
        versions=_versions(configs.get("ssl.enabled.protocols", ",".join(_TLS_VERSIONS))),
        cipher_suites=split_list(configs.get("ssl.cipher.suites", "")),
    )


def _versions(text: str) -> tuple[str, ...]:
    named = split_list(text)
    if not named or any(name not in _TLS_VERSIONS for name in named):
        raise ConfigError(
            f"Invalid value {text} for configuration ssl.enabled.protocols: "
            f"Holdfast speaks {' and '.join(_TLS_VERSIONS)}"
        )
    return tuple(name for name in _TLS_VERSIONS if name in named)
