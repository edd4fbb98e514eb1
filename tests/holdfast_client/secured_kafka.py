"""A guarded Apache Kafka with everything that a client needs to be let in, and what keeps it out."""

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it has them, without saying so to mypy
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.holdfast_client.conftest import QUICK
from tests.holdfast_client.connections import PATIENCE_S
from tests.holdfast_client.secured_apache_kafka import PASSWORD, USER, SecuredApacheKafka
from tests.support.certificates import Certificate, make_authority

SCRAM = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}


@dataclass(frozen=True)
class SecuredKafka:
    kafka: SecuredApacheKafka
    authority: Path
    untrusted: Path
    """An authority that signed nothing of the broker's."""
    client: Certificate

    def config(self, listener: str, **settings: Any) -> dict[str, Any]:
        return {"bootstrap.servers": self.kafka.secured(listener)} | settings


@contextmanager
def secured_kafka(directory: Path) -> Iterator[SecuredKafka]:
    authority = make_authority(directory)
    unknown = make_authority(directory, "unknown")
    broker, client = authority.sign("broker", "IP:127.0.0.1"), authority.sign("client", "DNS:client")
    with SecuredApacheKafka(authority, broker, QUICK) as kafka:
        add_scram_user(kafka.bootstrap)
        yield SecuredKafka(kafka, authority.certificate, unknown.certificate, client)


def add_scram_user(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for mechanism in SCRAM.values():
        wanted = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 8192), PASSWORD.encode())
        for done in admin.alter_user_scram_credentials([wanted]).values():
            done.result(timeout=PATIENCE_S)


def credentials(mechanism: str) -> dict[str, Any]:
    if mechanism == "OAUTHBEARER":
        return {"sasl.mechanism": mechanism, "oauth_cb": unsecured_token}
    return {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": PASSWORD}


def unsecured_token(_: str, issued_in_s: int = 0) -> tuple[str, float]:
    """A token that only a test's broker takes: signed by nobody."""
    # Whole seconds, rounded down: Kafka compares with its clock in whole milliseconds, and refuses a token that was
    # issued within the current one as issued in the future.
    issued = int(time.time()) + issued_in_s
    expiry = issued + 300

    def part(claims: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part({'sub': USER, 'iat': issued, 'exp': expiry})}.", expiry
