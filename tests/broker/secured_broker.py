"""A Holdfast with a listener for every way to guard one, and clients that say exactly what a test wants said."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.broker.authorization.acls import Acl, Operation, PatternType, Permission, ResourceType
from holdfast.broker.authorization.users_file import Users, write_users
from holdfast.client.sasl import Sasl
from holdfast.wire.apis.describe_acls import DescribeAclsRequest
from holdfast.wire.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from holdfast.wire.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.broker.wire_client import WireClient
from tests.support.certificates import Authority, Certificate, make_authority
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HOST, HoldfastBroker
from tests.support.quick_brokers import QUICK

PASSWORDS = {"admin": "admins-secret", "alice": "alices-secret, with=signs", "bob": "bobs-secret"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LISTENERS = {
    "OPEN": "PLAINTEXT",
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "SASL": "SASL_PLAINTEXT",
    "BOTH": "SASL_SSL",
    "SCRAMONLY": "SASL_PLAINTEXT",
}
FEW_ITERATIONS = 4096
"""Enough for a test."""

_ANY = 1
_LISTENING = re.compile(r"^holdfast listening on (\S+):(\d+)(?: \((\w+)\))?$", re.MULTILINE)


def user_acl(
    user: str,
    operation: Operation,
    *,
    topic: str | None = None,
    group: str | None = None,
    prefixed: bool = False,
    deny: bool = False,
) -> Acl:
    kind, name = (ResourceType.TOPIC, topic) if topic is not None else (ResourceType.GROUP, group)
    if name is None:
        kind, name = ResourceType.CLUSTER, "kafka-cluster"
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return Acl(f"User:{user}", kind, name, operation, pattern, Permission.DENY if deny else Permission.ALLOW)


class SecuredBroker(HoldfastBroker):
    """`admin` may do everything; `alice` and `bob` what a test grants them; and nobody else anything."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.authority = make_authority(directory)
        self.untrusted_authority = make_authority(directory, "unknown")
        self.certificate = self.authority.sign("broker", "IP:127.0.0.1,DNS:localhost")
        self.users_file = directory / "users.json"
        users = Users(super_users=frozenset({"User:admin"}))
        for name, password in PASSWORDS.items():
            users = users.with_user(name, password, FEW_ITERATIONS)
        self.write(users)
        super().__init__(
            QUICK
            | {
                "listeners": ",".join(f"{name}://{HOST}:0" for name in LISTENERS),
                "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in LISTENERS.items()),
                "ssl.certificate.location": str(self.certificate.certificate),
                "ssl.key.location": str(self.certificate.key),
                "ssl.truststore.location": str(self.authority.certificate),
                "listener.name.mutual.ssl.client.auth": "required",
                "sasl.enabled.mechanisms": ",".join(MECHANISMS),
                "listener.name.scramonly.sasl.enabled.mechanisms": "SCRAM-SHA-256",
                "users.file": str(self.users_file),
                "auto.create.topics.enable": "false",
            }
            | dict(settings or {}),
            directory,
        )

    def write(self, users: Users) -> None:
        self.users = users
        write_users(self.users_file, users)

    def grant(self, *acls: Acl) -> None:
        """In the file; the broker notices within a second."""
        self.write(Users(self.users.credentials, self.users.super_users, self.users.acls | set(acls), b"0" * 32))

    def grant_now(self, *acls: Acl) -> None:
        """The same to a running broker; it has noticed when this ends."""
        self.grant(*acls)
        with self.connect_as("admin") as admin:

            def in_force() -> int:
                resources = admin.ask(DescribeAclsRequest(_ANY, None, _ANY, None, None, _ANY, _ANY), 3).resources
                return sum(len(one.acls) for one in resources)

            eventually(lambda: in_force() == len(self.users.acls), "the rights are in force")

    def port(self, listener: str) -> int:
        found = {name or next(iter(LISTENERS)): int(port) for _, port, name in _LISTENING.findall(self.log_text())}
        return found[listener]

    def at(self, listener: str) -> str:
        """What clients call ``bootstrap.servers``."""
        return f"{HOST}:{self.port(listener)}"

    # -- certificates --------------------------------------------------------------------------------------------------

    @contextmanager
    def showing(self, certificate: Certificate) -> Iterator[None]:
        """Any client that comes meanwhile is shown this certificate; in the end it is the broker's own again."""
        own = self.certificate.certificate.read_text(), self.certificate.key.read_text()
        try:
            self._show(certificate.certificate.read_text(), certificate.key.read_text())
            yield
        finally:
            self._show(*own)

    def _show(self, certificate: str, key: str) -> None:
        self.certificate.key.write_text(key)
        self.certificate.certificate.write_text(certificate)
        wanted = ssl.PEM_cert_to_DER_cert(certificate)
        at = (HOST, self.port("TLS"))
        eventually(lambda: ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(at)) == wanted, "it is shown")

    # -- clients -------------------------------------------------------------------------------------------------------

    def settings(self, user: str, mechanism: str = "SCRAM-SHA-512", listener: str = "BOTH") -> dict[str, Any]:
        """For librdkafka, and for our own client."""
        return {
            "bootstrap.servers": self.at(listener),
            "security.protocol": LISTENERS[listener],
            "ssl.ca.location": str(self.authority.certificate),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": PASSWORDS.get(user, "whatever"),
        }

    def connect(self, listener: str = "SASL") -> WireClient:
        return WireClient((HOST, self.port(listener)))

    def connect_as(self, user: str, mechanism: str = "SCRAM-SHA-256", listener: str = "SASL") -> WireClient:
        client = self.connect(listener)
        answer = authenticate(client, user, PASSWORDS[user], mechanism)
        assert answer.error_code == 0, answer
        return client


def handshake(client: WireClient, mechanism: str, version: int = 1) -> SaslHandshakeResponse:
    response: SaslHandshakeResponse = client.ask(SaslHandshakeRequest(mechanism), version)
    return response


def token(client: WireClient, data: bytes, version: int = 2) -> SaslAuthenticateResponse:
    response: SaslAuthenticateResponse = client.ask(SaslAuthenticateRequest(data), version)
    return response


def authenticate(client: WireClient, user: str, password: str, mechanism: str) -> SaslAuthenticateResponse:
    """The whole exchange by our own client's half; the last answer."""
    assert handshake(client, mechanism).error_code == 0
    exchange = Sasl(mechanism, user, password).begin()
    said = next(exchange)
    while True:
        answer = token(client, said)
        if answer.error_code:
            return answer
        try:
            said = exchange.send(answer.auth_bytes)
        except StopIteration:
            return answer


def client_tls(authority: Authority, certificate: Certificate | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if certificate is not None:
        context.load_cert_chain(certificate.certificate, certificate.key)
    return context
