"""An Apache Kafka with a listener for every way to guard one."""

from collections.abc import Mapping
from pathlib import Path

from tests.support.apache_kafka import HOST, ApacheKafka
from tests.support.certificates import Authority, Certificate

USER, PASSWORD = "alice", "alice-secret, with=signs"
REAUTHENTICATE_MS = 6_000
"""A client renews it in the last tenth or so, and a busy machine must leave it the time."""

PROTOCOLS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "SASL": "SASL_PLAINTEXT",
    "BOTH": "SASL_SSL",
    "EXPIRING": "SASL_PLAINTEXT",
    "PLAINONLY": "SASL_PLAINTEXT",
}
"""Listeners beside the plain one: with TLS, with certificates of clients too, with SASL, with both, with SASL sessions
that end, with only one mechanism."""

_PACKAGE = "org.apache.kafka.common.security"
_SCRAM = f"{_PACKAGE}.scram.ScramLoginModule required;"
_MODULES = {
    "PLAIN": f'{_PACKAGE}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
    "SCRAM-SHA-256": _SCRAM,
    "SCRAM-SHA-512": _SCRAM,
    "OAUTHBEARER": f'{_PACKAGE}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{USER}";',
}


class SecuredApacheKafka(ApacheKafka):
    def __init__(self, authority: Authority, certificate: Certificate, settings: Mapping[str, str]) -> None:
        super().__init__(settings)
        keystore = certificate.key.with_suffix(".keystore.pem")
        keystore.write_text(certificate.key.read_text() + certificate.certificate.read_text())
        self._keystore = keystore
        self._truststore: Path = authority.certificate
        self._secured: dict[str, int] = {}

    def secured(self, listener: str, host: str = HOST) -> str:
        """What clients call ``bootstrap.servers``."""
        return f"{host}:{self._secured[listener]}"

    def _write_properties(self) -> None:
        port, controller_port = self._ports or (0, 0)
        self._secured = dict(zip(PROTOCOLS, self._further_ports(len(PROTOCOLS)), strict=True))
        guarded = [f"{name}://{HOST}:{number}" for name, number in self._secured.items()]
        open_listener = f"PLAINTEXT://{HOST}:{port}"
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"} | PROTOCOLS
        self._overrides |= {
            "listeners": ",".join([open_listener, f"CONTROLLER://{HOST}:{controller_port}", *guarded]),
            "advertised.listeners": ",".join([open_listener, *guarded]),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items()),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._truststore),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.expiring.plain.connections.max.reauth.ms": str(REAUTHENTICATE_MS),
        }
        for name in ("sasl", "both"):
            self._overrides |= _sasl(f"listener.name.{name}", *_MODULES)
        for name in ("expiring", "plainonly"):
            self._overrides |= _sasl(f"listener.name.{name}", "PLAIN")
        super()._write_properties()


def _sasl(listener: str, *mechanisms: str) -> dict[str, str]:
    configs = {f"{listener}.{name.lower()}.sasl.jaas.config": _MODULES[name] for name in mechanisms}
    return configs | {f"{listener}.sasl.enabled.mechanisms": ",".join(mechanisms)}
