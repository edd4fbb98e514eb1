"""Brokers that form groups quickly, the clients, and names that no other test uses."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.wire.apis.list_groups import ListGroupsRequest
from tests.broker.wire_client import WireClient
from tests.client_compat.servers import ALL_GATEWAY_TESTS, Server
from tests.groups.consumer_process import ConsumerConfig
from tests.groups.members import (
    AIOKAFKA,
    CONFLUENT,
    JAVA,
    KAFKA_PYTHON,
    GoConsumer,
    GroupClient,
    Member,
    go_members_path,
    kafkajs_path,
)
from tests.support.eventually import eventually
from tests.support.fixtures import missing
from tests.support.gateway_process import GatewayProcess
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.kafka_apps import kafka_apps
from tests.support.kafka_distribution import KafkaUnavailable
from tests.support.quick_brokers import BOTH_SERVERS, QUICK, own_broker, server

REAL = [pytest.mark.real, pytest.mark.timeout(300)]
"""Of a client that needs more than Python."""

__all__ = ["BOTH_SERVERS", "QUICK", "server"]


if ALL_GATEWAY_TESTS:

    @pytest.fixture(scope="module")
    def quick_holdfast(request: pytest.FixtureRequest) -> Iterator[HoldfastBroker]:
        with GatewayProcess(request.getfixturevalue("kafka_cluster"), QUICK) as gateway:
            await_loaded(gateway)
            yield gateway


def await_loaded(gateway: GatewayProcess) -> None:
    """A broker reads its groups before it listens, a gateway afterwards."""
    with WireClient(gateway.address) as client:
        eventually(lambda: client.ask(ListGroupsRequest(), 4).error_code == 0, "the gateway has read its groups")


@pytest.fixture
def disposable_holdfast(request: pytest.FixtureRequest) -> Iterator[HoldfastBroker]:
    if ALL_GATEWAY_TESTS:
        # Not on the cluster of `quick_holdfast`, which would lose its groups to this one.
        with GatewayProcess(request.getfixturevalue("one_kafka"), QUICK) as gateway:
            await_loaded(gateway)
            yield gateway
    else:
        with HoldfastBroker(QUICK) as broker:
            yield broker


@pytest.fixture(params=BOTH_SERVERS)
def disposable_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A broker for one test alone, which may end it."""
    if request.param == "holdfast":
        yield request.getfixturevalue("disposable_holdfast")
    else:
        with own_broker(request) as broker:
            yield broker


@pytest.fixture(params=[CONFLUENT, KAFKA_PYTHON, AIOKAFKA], ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> GroupClient:
    return available(request)


def available(request: pytest.FixtureRequest) -> GroupClient:
    """The client that a fixture was asked for, if what it needs is there."""
    found: GroupClient = request.param
    if found is JAVA:
        request.getfixturevalue("apache_kafka_distribution")
    if isinstance(found, GoConsumer):
        request.getfixturevalue("needs_go")
    return found


@pytest.fixture(scope="session")
def needs_go() -> None:
    try:
        go_members_path()
    except KafkaUnavailable as unavailable:
        missing(f"needs the group members of Go's clients: {unavailable}")


@pytest.fixture
def needs_kafkajs() -> None:
    try:
        kafkajs_path()
    except KafkaUnavailable as unavailable:
        missing(f"needs kafkajs: {unavailable}")


@pytest.fixture(scope="session")
def needs_kafka_apps() -> None:
    try:
        kafka_apps()
    except KafkaUnavailable as unavailable:
        missing(f"needs Kafka Connect and Streams: {unavailable}")


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def topic_name() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def start_member(group: str, topic_name: str, tmp_path: Path) -> Iterator[Any]:
    """Starts consumers of this test's group on this test's topic; whatever still runs at the end is killed."""
    started: list[Member] = []

    def start(client: GroupClient, bootstrap: str, **settings: Any) -> Member:
        directory = tmp_path / f"member-{len(started)}"
        directory.mkdir()
        common: dict[str, Any] = {"bootstrap": bootstrap, "topic": topic_name, "group": group}
        config = ConsumerConfig(**(common | settings))
        started.append(Member(client, config, directory))
        return started[-1]

    yield start
    for member in started:
        member.kill()
