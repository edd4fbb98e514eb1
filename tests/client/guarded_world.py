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

from tests.client.conftest import QUICK
from tests.client.guarded_kafka import PASSWORD, USER, GuardedKafka
from tests.client.wires import PATIENCE_S
from tests.support.certificates import Certificate, make_authority

SCRAM = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}


@dataclass(frozen=True)
class World:
    kafka: GuardedKafka
    authority: Path
    stranger: Path
    """An authority that signed nothing of the broker's."""
    client: Certificate

    def config(self, listener: str, **settings: Any) -> dict[str, Any]:
        return {"bootstrap.servers": self.kafka.guarded(listener)} | settings


@contextmanager
def guarded_world(directory: Path) -> Iterator[World]:
    authority = make_authority(directory)
    stranger = make_authority(directory, "stranger")
    broker, client = authority.sign("broker", "IP:127.0.0.1"), authority.sign("client", "DNS:client")
    with GuardedKafka(authority, broker, QUICK) as kafka:
        add_scram_user(kafka.bootstrap)
        yield World(kafka, authority.certificate, stranger.certificate, client)


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


def unsecured_token(_: str) -> tuple[str, float]:
    """A token that only a test's broker takes: signed by nobody."""
    expiry = time.time() + 300

    def part(claims: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part({'sub': USER, 'iat': time.time(), 'exp': expiry})}.", expiry
