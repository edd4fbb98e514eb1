"""The two brokers, the four clients, and names that no other test uses."""

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest

from tests.clients.aiokafka_client import AiokafkaClient
from tests.clients.client import Client, LibraryClient
from tests.clients.confluent_client import ConfluentClient
from tests.clients.kafka_python_client import KafkaPythonClient
from tests.clients.kcat_client import KcatClient, KcatUnavailable, kcat_path
from tests.clients.servers import Server
from tests.support.apache_kafka import ApacheKafka
from tests.support.fixtures import missing
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.tcp_proxy import TcpProxy

BOTH_SERVERS = ["holdfast", pytest.param("kafka", marks=[pytest.mark.real, pytest.mark.timeout(300)])]
LIBRARIES: list[LibraryClient] = [ConfluentClient(), KafkaPythonClient(), AiokafkaClient()]
CLIENTS: list[Client] = [*LIBRARIES, KcatClient()]


@pytest.fixture(params=BOTH_SERVERS)
def server(request: pytest.FixtureRequest) -> Server:
    """The broker that the whole run shares."""
    name = {"holdfast": "holdfast", "kafka": "apache_kafka"}[request.param]
    found: Server = request.getfixturevalue(name)
    return found


@pytest.fixture(params=BOTH_SERVERS)
def disposable_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A broker for one test alone, which may end it."""
    with own_broker(request) as broker:
        yield broker


@dataclass
class Proxied:
    proxy: TcpProxy

    @property
    def bootstrap(self) -> str:
        return self.proxy.bootstrap


@pytest.fixture(scope="session", params=BOTH_SERVERS)
def proxied_server(request: pytest.FixtureRequest) -> Iterator[Proxied]:
    """A broker whose clients all come through a proxy."""
    with TcpProxy() as proxy, own_broker(request, {"advertised.listeners": f"PLAINTEXT://{proxy.bootstrap}"}) as broker:
        proxy.forward_to(broker.address)
        yield Proxied(proxy)


def own_broker(request: pytest.FixtureRequest, settings: dict[str, str] | None = None) -> HoldfastBroker | ApacheKafka:
    if request.param == "holdfast":
        return HoldfastBroker(settings)
    request.getfixturevalue("apache_kafka_distribution")  # skips, or fails in CI, where there is no Kafka
    return ApacheKafka(settings)


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> Client:
    found: Client = request.param
    if isinstance(found, KcatClient):
        request.getfixturevalue("needs_kcat")
    return found


@pytest.fixture(params=LIBRARIES, ids=lambda client: client.name)
def library(request: pytest.FixtureRequest) -> LibraryClient:
    found: LibraryClient = request.param
    return found


@pytest.fixture
def clients() -> list[Client]:
    """All of them at once; kcat too where it is installed, as it must be in CI."""
    return CLIENTS if why_no_kcat() is None or in_ci() else [*LIBRARIES]


@pytest.fixture
def needs_kcat() -> None:
    reason = why_no_kcat()
    if reason is not None:
        missing(f"needs kcat: {reason}")


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


@cache
def why_no_kcat() -> str | None:
    try:
        kcat_path()
    except KcatUnavailable as unavailable:
        return str(unavailable)
    return None


def in_ci() -> bool:
    return os.environ.get("CI") == "true"
