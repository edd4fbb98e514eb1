"""A listener's certificate and TLS settings. They are reloaded when the files change, because certificates expire."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any, Final

from holdfast.broker.config.schema import ConfigError
from holdfast.broker.config.security import TlsSettings
from holdfast.broker.util.file_watcher import FileWatcher

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


class TlsContext:
    """The SSL context for new connections. Existing ones keep the context they started with."""

    def __init__(self, settings: TlsSettings) -> None:
        """Raises `ConfigError` for unusable files."""
        self._settings = settings
        self._watcher = FileWatcher(settings.files)
        self.ssl_context = make_ssl_context(settings)

    @property
    def requires_client_certificate(self) -> bool:
        """Clients must present a certificate."""
        return self._settings.client_auth == "required"

    @property
    def changed(self) -> bool:
        return self._watcher.changed

    def reload(self) -> None:
        """Reloads the files, or keeps the old ones if they are unusable. Do not call this on the event loop."""
        self._watcher.refresh()
        try:
            self.ssl_context = make_ssl_context(self._settings)
        except ConfigError as error:
            logger.error("%s; the certificate that was read before stays in use", error)
        else:
            logger.info("the certificate in %s is in use for new connections", self._settings.certificate)


def make_ssl_context(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.versions[0]]
    context.maximum_version = _VERSIONS[settings.versions[-1]]
    # A client that renegotiates repeatedly would keep the CPU busy at little cost of its own.
    context.options |= ssl.OP_NO_RENEGOTIATION
    # The cipher suites of TLS 1.3 are always enabled. OpenSSL has a separate list for them, and none of them is weak.
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
        # Without this, OpenSSL would prompt on the terminal.
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
        return ConfigError(f"cannot use {what} in {where}: {error_reason(error)}")
    return ConfigError(f"cannot read {what} in {where}: {error.strerror}")


def error_reason(error: ssl.SSLError) -> str:
    if error.reason is None:
        return "not valid PEM" if "PEM" in str(error) else str(error.strerror or error)
    said = error.reason.replace("_", " ").lower()
    return f"{said} ({error.verify_message})" if isinstance(error, ssl.SSLCertVerificationError) else said


def principal_of(certificate: Any) -> str | None:
    """The name in a client's certificate as Java writes it (RFC 2253), which ACLs written for Kafka use."""
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
