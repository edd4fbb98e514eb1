"""The two brokers, the clients, and names that no other test uses."""

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from tests.clients.aiokafka_client import AiokafkaClient
from tests.clients.client import Client, LibraryClient
from tests.clients.confluent_client import ConfluentClient
from tests.clients.go_client import GO_CLIENTS, GoClient, go_clients_path
from tests.clients.java_client import JavaClient
from tests.clients.kafka_python_client import KafkaPythonClient
from tests.clients.kcat_client import KcatClient, KcatUnavailable, kcat_path
from tests.clients.servers import Server
from tests.support.apache_kafka import ApacheKafka
from tests.support.fixtures import KEEPS_ALL, missing
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.kafka_distribution import KafkaUnavailable
from tests.support.tcp_proxy import TcpProxy

REAL = [pytest.mark.real, pytest.mark.timeout(300)]
BOTH_SERVERS = ["holdfast", pytest.param("kafka", marks=REAL)]
LIBRARIES: list[LibraryClient] = [ConfluentClient(), KafkaPythonClient(), AiokafkaClient()]
KCAT = KcatClient()
JAVA = JavaClient()
"""It comes with Apache Kafka, and is as much of a real part."""

REAL_CLIENTS: list[Any] = [pytest.param(client, marks=REAL) for client in (JAVA, *GO_CLIENTS)]

PYTHON_AND_KCAT = "python-and-kcat"
JAVA_AND_GO_TOO = "java-and-go-too"
ALL = "all"
SERVERS_AND_CLIENTS: list[Any] = [
    ("holdfast", PYTHON_AND_KCAT),
    pytest.param("holdfast", JAVA_AND_GO_TOO, marks=REAL),
    pytest.param("kafka", ALL, marks=REAL),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """On both servers. A test of several clients at once has them without Java and Go on Holdfast, where `make test`
    runs it, and once more there for Java and Go."""
    for name in ("server", "disposable_server"):
        if name in metafunc.fixturenames and "clients" in metafunc.fixturenames:
            metafunc.parametrize((name, "clients"), SERVERS_AND_CLIENTS, indirect=True)
        elif name in metafunc.fixturenames:
            metafunc.parametrize(name, BOTH_SERVERS, indirect=True)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Server:
    """The broker that the whole run shares."""
    name = {"holdfast": "holdfast", "kafka": "apache_kafka"}[request.param]
    found: Server = request.getfixturevalue(name)
    return found


@pytest.fixture
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
        return HoldfastBroker(KEEPS_ALL | (settings or {}))
    request.getfixturevalue("apache_kafka_distribution")  # skips, or fails in CI, where there is no Kafka
    return ApacheKafka(KEEPS_ALL | (settings or {}))


def named(client: Client) -> str:
    return client.name


@pytest.fixture(params=[*LIBRARIES, KCAT, *REAL_CLIENTS], ids=named)
def client(request: pytest.FixtureRequest) -> Client:
    found: Client = request.param
    needs(found, request)
    return found


@pytest.fixture(params=[*LIBRARIES, *REAL_CLIENTS], ids=named)
def library(request: pytest.FixtureRequest) -> LibraryClient:
    found: LibraryClient = request.param
    needs(found, request)
    return found


def needs(client: Client, request: pytest.FixtureRequest) -> None:
    """Skips, or fails in CI, where the client is not there."""
    if client is KCAT:
        request.getfixturevalue("needs_kcat")
    if client is JAVA:
        request.getfixturevalue("apache_kafka_distribution")
    if isinstance(client, GoClient):
        request.getfixturevalue("needs_go_clients")


@pytest.fixture
def clients(request: pytest.FixtureRequest) -> list[Client]:
    """At once; kcat too where it is installed, as it must be in CI."""
    if request.param != PYTHON_AND_KCAT:
        request.getfixturevalue("apache_kafka_distribution")
        request.getfixturevalue("needs_go_clients")
    if request.param == JAVA_AND_GO_TOO and not {"client", "library"}.isdisjoint(request.fixturenames):
        return [JAVA, *GO_CLIENTS]  # what one client wrote the others have read already
    found: list[Client] = [*LIBRARIES]
    if why_no_kcat() is None or in_ci():
        found.append(KCAT)
    if request.param != PYTHON_AND_KCAT:
        found += [JAVA, *GO_CLIENTS]
    return found


@pytest.fixture(scope="session")
def needs_go_clients() -> None:
    try:
        go_clients_path()
    except KafkaUnavailable as unavailable:
        missing(f"needs franz-go, sarama and kafka-go: {unavailable}")


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
