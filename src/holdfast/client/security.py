"""TLS and SASL by librdkafka's names.

confluent-kafka gets the same settings for the records, so names and values are exactly those that librdkafka accepts. A
value that only librdkafka supports is rejected, because membership and records must have the same security.
"""

from __future__ import annotations

import difflib
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.client.errors import ConfigError
from holdfast.client.sasl import MECHANISMS, Sasl

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
NAMES: Final = frozenset(
    {
        "security.protocol",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.cipher.suites",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "sasl.oauthbearer.config",
        "oauth_cb",
    }
)
"""The settings that this module reads."""
SECRETS: Final = frozenset({"sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.config"})
"""Their values are omitted when a configuration is displayed."""

_INSTEAD: Final = {
    "ssl.keystore.location": "give ssl.certificate.location and ssl.key.location, as PEM",
    "ssl.keystore.password": "give ssl.key.password",
    "ssl.truststore.location": "give ssl.ca.location, as PEM",
    "sasl.jaas.config": "give sasl.username and sasl.password",
    "sasl.oauthbearer.method": "give oauth_cb, which may ask any provider for the token",
    "enable.sasl.oauthbearer.unsecure.jwt": "give oauth_cb",
}
_TRUE: Final = ("true", "t", "1")
_FALSE: Final = ("false", "f", "0")


@dataclass(frozen=True, slots=True)
class Security:
    """The security of connections. Certificates and keys are read once, when the object is created."""

    protocol: str = "PLAINTEXT"
    tls: ssl.SSLContext | None = field(default=None, repr=False, compare=False)
    sasl: Sasl | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Security:
        """From the security settings; other settings are ignored. Raises ConfigError, which names the setting."""
        _refuse_unknown(config)
        protocol = _choice(config, "security.protocol", PROTOCOLS, "PLAINTEXT")
        return cls(
            protocol,
            tls=_tls_context(config) if protocol.endswith("SSL") else None,
            sasl=_sasl(config) if protocol.startswith("SASL") else None,
        )


def _refuse_unknown(config: Mapping[str, Any]) -> None:
    for name in config:
        concerns_us = name.startswith(("ssl.", "sasl.", "security.")) or name in _INSTEAD
        if not concerns_us or name in NAMES:
            continue
        nearest = difflib.get_close_matches(name, NAMES, 1, 0.8)
        advice = _INSTEAD.get(name) or (f"did you mean {nearest[0]}?" if nearest else "leave it out")
        raise ConfigError(f"{name} is not supported: {advice}")


# -- SASL --------------------------------------------------------------------------------------------------------------


def _sasl(config: Mapping[str, Any]) -> Sasl:
    name = "sasl.mechanism" if "sasl.mechanism" in config else "sasl.mechanisms"
    if not config.get(name):
        raise ConfigError(f"sasl.mechanism is missing: security.protocol asks for SASL; give {_listed(MECHANISMS)}")
    mechanism = str(config[name])
    if mechanism not in MECHANISMS:
        raise ConfigError(f"{name} is {mechanism!r}; supported are {_listed(MECHANISMS)}")
    if mechanism == "OAUTHBEARER":
        callback = config.get("oauth_cb")
        if not callable(callback):
            raise ConfigError("oauth_cb is missing: OAUTHBEARER needs a function that returns (token, expiry)")
        return Sasl(mechanism, oauth_cb=callback, oauth_config=_text(config, "sasl.oauthbearer.config") or "")
    username, password = _text(config, "sasl.username"), _text(config, "sasl.password")
    for setting, value in (("sasl.username", username), ("sasl.password", password)):
        if not value:
            raise ConfigError(f"{setting} is missing: {mechanism} needs sasl.username and sasl.password")
        if "\0" in value:
            raise ConfigError(f"{setting} has a null character, which {mechanism} cannot carry")
    return Sasl(mechanism, username or "", password or "")


# -- TLS ---------------------------------------------------------------------------------------------------------------


def _tls_context(config: Mapping[str, Any]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    identification = _choice(config, "ssl.endpoint.identification.algorithm", ("https", "none"), "https")
    verification = _boolean(config, "enable.ssl.certificate.verification", default=True)
    context.check_hostname = verification and identification == "https"
    context.verify_mode = ssl.CERT_REQUIRED if verification else ssl.CERT_NONE
    if suites := _text(config, "ssl.cipher.suites"):
        try:
            context.set_ciphers(suites)
        except ssl.SSLError as failure:
            raise ConfigError(f"ssl.cipher.suites has no cipher that this OpenSSL knows: {suites!r}") from failure
    _load_authorities(context, config)
    _load_certificate(context, config)
    return context


def _load_authorities(context: ssl.SSLContext, config: Mapping[str, Any]) -> None:
    location, pem = _text(config, "ssl.ca.location"), _text(config, "ssl.ca.pem")
    if pem:
        try:
            context.load_verify_locations(cadata=pem)
        except (ssl.SSLError, ValueError) as failure:
            raise ConfigError(f"ssl.ca.pem has no certificates in PEM: {_why(failure)}") from failure
    if location and location != "probe":
        path = Path(location)
        try:
            if path.is_dir():
                context.load_verify_locations(capath=path)
            else:
                context.load_verify_locations(cafile=path)
        except OSError as failure:
            raise ConfigError(
                f"ssl.ca.location: cannot read certificates in {location!r}: {_why(failure)}"
            ) from failure
    if location == "probe" or not (location or pem):
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)


def _load_certificate(context: ssl.SSLContext, config: Mapping[str, Any]) -> None:
    certificate, certificate_from = _pem(config, "ssl.certificate")
    key, key_from = _pem(config, "ssl.key")
    if certificate is None and key is None:
        return
    if certificate is None or key is None:
        missing = "ssl.certificate.location" if certificate is None else "ssl.key.location"
        raise ConfigError(f"{missing} is missing: a client certificate needs both the certificate and its key")
    password = _text(config, "ssl.key.password")

    def ask_password() -> str:
        # Without this, OpenSSL would prompt on the terminal.
        if password is None:
            raise ConfigError(f"ssl.key.password is missing: the key in {key_from} is encrypted")
        return password

    with _file_of(certificate + b"\n" + key) as path:
        try:
            context.load_cert_chain(path, password=ask_password)
        except ssl.SSLError as failure:
            what = "ssl.key.password does not open" if password is not None else "cannot use"
            raise ConfigError(
                f"{what} the key in {key_from}, or it does not belong to the certificate in {certificate_from}: "
                f"{_why(failure)}"
            ) from failure


def _pem(config: Mapping[str, Any], name: str) -> tuple[bytes | None, str]:
    """The PEM text of `name`.pem or `name`.location, and the name of the setting it comes from."""
    if pem := _text(config, f"{name}.pem"):
        return pem.encode(), f"{name}.pem"
    location = _text(config, f"{name}.location")
    if not location:
        return None, f"{name}.location"
    try:
        return Path(location).read_bytes(), f"{name}.location"
    except OSError as failure:
        raise ConfigError(f"{name}.location: cannot read {location!r}: {failure.strerror}") from failure


@contextmanager
def _file_of(content: bytes) -> Iterator[str]:
    """A file for OpenSSL, which reads keys only from files. If possible, the file is in memory only."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("holdfast-key", os.MFD_CLOEXEC)
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        yield file.name


# -- values ------------------------------------------------------------------------------------------------------------


def _text(config: Mapping[str, Any], name: str) -> str | None:
    value = config.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        # The message does not contain the value, which may be a secret of another type.
        raise ConfigError(f"{name} must be text, not {type(value).__name__}")
    return value


def _choice(config: Mapping[str, Any], name: str, choices: tuple[str, ...], default: str) -> str:
    value = _text(config, name)
    if value is None:
        return default
    for choice in choices:
        if value.lower() == choice.lower():
            return choice
    raise ConfigError(f"{name} is {value!r}; it can be {_listed(choices)}")


def _boolean(config: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = config.get(name, default)
    text = str(value).lower()
    if text not in _TRUE + _FALSE:
        raise ConfigError(f"{name} is {value!r}; it can be true or false")
    return text in _TRUE


def _listed(choices: tuple[str, ...]) -> str:
    return ", ".join(choices[:-1]) + " or " + choices[-1]


def _why(failure: Exception) -> str:
    if isinstance(failure, ssl.SSLError) and failure.reason:
        return failure.reason.replace("_", " ").lower()
    return getattr(failure, "strerror", None) or str(failure)
