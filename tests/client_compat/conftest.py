"""The two brokers, the clients, and names that no other test uses."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.client_compat.aiokafka_client import AiokafkaClient
from tests.client_compat.client import Client, LibraryClient
from tests.client_compat.confluent_client import ConfluentClient
from tests.client_compat.go_client import GO_CLIENTS, GoClient, go_clients_path
from tests.client_compat.java_client import JavaClient
from tests.client_compat.kafka_python_client import KafkaPythonClient
from tests.client_compat.kcat_client import KcatClient, KcatUnavailable, kcat_path
from tests.client_compat.servers import ALL_GATEWAY_TESTS, OneBrokerGateway, Server
from tests.support.apache_kafka import ApacheKafka
from tests.support.fixtures import KEEPS_ALL, missing
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_distribution import KafkaUnavailable
from tests.support.tcp_proxy import TcpProxy

REAL = [pytest.mark.real, pytest.mark.timeout(300)]
BOTH_SERVERS = ["holdfast", pytest.param("kafka", marks=REAL)]
LIBRARIES: list[LibraryClient] = [ConfluentClient(), KafkaPythonClient(), AiokafkaClient()]
KCAT = KcatClient()
JAVA = JavaClient()
"""It comes with Apache Kafka, and is as much of a real part."""

REAL_CLIENTS: list[Any] = [pytest.param(client, marks=REAL) for client in (JAVA, *GO_CLIENTS)]

PYTHON = "python"
PROGRAMS = "programs"
ALL = "all"
SERVERS_AND_CLIENTS: list[Any] = [
    ("holdfast", PYTHON),
    pytest.param("holdfast", PROGRAMS, marks=REAL),
    pytest.param("kafka", ALL, marks=REAL),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """On both servers. A test of several clients at once has those of Python on Holdfast, where `make test` runs it,
    and once more there those that are programs of their own."""
    for name in ("server", "disposable_server"):
        if name in metafunc.fixturenames and "clients" in metafunc.fixturenames:
            metafunc.parametrize((name, "clients"), SERVERS_AND_CLIENTS, indirect=True)
        elif name in metafunc.fixturenames:
            metafunc.parametrize(name, BOTH_SERVERS, indirect=True)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Server:
    """The broker that the whole run shares."""
    holdfast = "one_broker_gateway" if ALL_GATEWAY_TESTS else "holdfast"
    name = {"holdfast": holdfast, "kafka": "apache_kafka"}[request.param]
    found: Server = request.getfixturevalue(name)
    return found


@pytest.fixture(scope="module")
def one_broker_gateway(one_kafka: KafkaCluster) -> Iterator[OneBrokerGateway]:
    """The tests expect a cluster of one broker."""
    with OneBrokerGateway(one_kafka) as gateway:
        yield gateway


@pytest.fixture
def disposable_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A broker for one test alone, which may end it."""
    if ALL_GATEWAY_TESTS and request.param == "holdfast":
        # In a file without `server`, whose gateway has the same ports.
        with OneBrokerGateway(request.getfixturevalue("one_kafka")) as gateway:
            yield gateway
    else:
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


@pytest.fixture(params=[*LIBRARIES, pytest.param(KCAT, marks=REAL), *REAL_CLIENTS], ids=named)
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
    """At once."""
    if request.param == PYTHON:
        return [*LIBRARIES]
    programs: list[Client] = [KCAT, JAVA, *GO_CLIENTS]
    for program in programs:
        needs(program, request)
    if request.param == PROGRAMS and not {"client", "library"}.isdisjoint(request.fixturenames):
        return programs  # what one client wrote the others have read already
    return [*LIBRARIES, *programs]


@pytest.fixture(scope="session")
def needs_go_clients() -> None:
    try:
        go_clients_path()
    except KafkaUnavailable as unavailable:
        missing(f"needs franz-go, sarama and kafka-go: {unavailable}")


@pytest.fixture
def needs_kcat() -> None:
    try:
        kcat_path()
    except KcatUnavailable as unavailable:
        missing(f"needs kcat: {unavailable}")


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"
