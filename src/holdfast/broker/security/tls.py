"""A listener's certificate and the rules of its TLS. Read again when its files change: certificates do not last."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any, Final

from holdfast.broker.config_keys import ConfigError
from holdfast.broker.security.settings import TlsSettings
from holdfast.broker.security.watching import WatchedFiles

logger = logging.getLogger(__name__)

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_SHORT_NAMES: Final = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_SPECIAL: Final = frozenset(',+"\\<>;')


class Tls:
    """What `ssl` needs for new connections. Those that there are go on with what they began with."""

    def __init__(self, settings: TlsSettings) -> None:
        """Raises `ConfigError` for files that cannot be used."""
        self._settings = settings
        self._watched = WatchedFiles(settings.files)
        self.context = make_context(settings)

    @property
    def knows_clients(self) -> bool:
        """Nobody comes in without a certificate."""
        return self._settings.client_auth == "required"

    @property
    def changed(self) -> bool:
        return self._watched.changed

    def reload(self) -> None:
        """Takes the files as they are now, or goes on with the old ones. Reads files: not for the event loop."""
        self._watched.look()
        try:
            self.context = make_context(self._settings)
        except ConfigError as error:
            logger.error("%s; the certificate that was read before stays in use", error)
        else:
            logger.info("the certificate in %s is in use for new connections", self._settings.certificate)


def make_context(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.versions[0]]
    context.maximum_version = _VERSIONS[settings.versions[-1]]
    # A client that renegotiates again and again would keep the processor busy at no cost of its own.
    context.options |= ssl.OP_NO_RENEGOTIATION
    # The suites of TLS 1.3 are always on: OpenSSL has them in a list of its own, and none of them is weak.
    suites = [name for name in settings.cipher_suites if not name.startswith(("TLS_AES_", "TLS_CHACHA20_"))]
    if suites:
        try:
            context.set_ciphers(":".join(suites))
        except ssl.SSLError:
            raise ConfigError(f"ssl.cipher.suites has none that this OpenSSL knows: {','.join(suites)}") from None
    _load_certificate(context, settings)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    if settings.authorities is not None:
        try:
            context.load_verify_locations(settings.authorities)
        except OSError as error:
            raise _unusable("certificates of authorities", settings.authorities, error) from None
    return context


def _load_certificate(context: ssl.SSLContext, settings: TlsSettings) -> None:
    def password() -> str:
        # Without this, OpenSSL would ask at the terminal.
        if settings.key_password is None:
            raise ConfigError(f"the key in {settings.key or settings.certificate} is encrypted: set ssl.key.password")
        return settings.key_password

    try:
        context.load_cert_chain(settings.certificate, settings.key, password)
    except OSError as error:
        where = f"{settings.certificate}" if settings.key is None else f"{settings.certificate} and {settings.key}"
        raise _unusable("a certificate and its key", where, error) from None


def _unusable(what: str, where: Path | str, error: OSError) -> ConfigError:
    if isinstance(error, ssl.SSLError):
        return ConfigError(f"cannot use {what} in {where}: {reason_of(error)}")
    return ConfigError(f"cannot read {what} in {where}: {error.strerror}")


def reason_of(error: ssl.SSLError) -> str:
    if error.reason is None:
        return "not valid PEM" if "PEM" in str(error) else str(error.strerror or error)
    said = error.reason.replace("_", " ").lower()
    return f"{said} ({error.verify_message})" if isinstance(error, ssl.SSLCertVerificationError) else said


def principal_of(certificate: Any) -> str | None:
    """The name in a client's certificate as Java writes it (RFC 2253), since ACLs for Kafka have it so."""
    if not certificate:
        return None
    parts = [
        "+".join(f"{_SHORT_NAMES.get(kind, kind)}={_escaped(value)}" for kind, value in names)
        for names in reversed(certificate["subject"])
    ]
    return f"User:{','.join(parts)}"


def _escaped(value: str) -> str:
    text = "".join(f"\\{one}" if one in _SPECIAL else one for one in value)
    if text.startswith(("#", " ")):
        text = f"\\{text}"
    return f"{text[:-1]}\\ " if len(text) > 1 and text.endswith(" ") else text
