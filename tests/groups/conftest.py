"""Brokers that form groups quickly, the clients, and names that no other test uses."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.servers import Server
from tests.groups.consumer_process import ConsumerConfig
from tests.groups.members import AIOKAFKA, CONFLUENT, KAFKA_PYTHON, GroupClient, Member, kafkajs_path
from tests.support.apache_kafka import ApacheKafka
from tests.support.fixtures import missing
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.kafka_distribution import KafkaUnavailable

QUICK = {"group.initial.rebalance.delay.ms": "200", "group.min.session.timeout.ms": "500"}
"""Groups that form at once, and members that may be missed after a second."""

BOTH_SERVERS = ["holdfast", pytest.param("kafka", marks=[pytest.mark.real, pytest.mark.timeout(300)])]


@pytest.fixture(scope="session")
def quick_holdfast() -> Iterator[HoldfastBroker]:
    """One broker for the whole run, as `holdfast`, with groups that form at once."""
    with HoldfastBroker(QUICK) as broker:
        yield broker


@pytest.fixture(scope="session")
def quick_kafka(apache_kafka_distribution: object) -> Iterator[ApacheKafka]:
    with ApacheKafka(QUICK) as broker:
        yield broker


@pytest.fixture(params=BOTH_SERVERS)
def server(request: pytest.FixtureRequest) -> Server:
    """The broker that the whole run shares."""
    found: Server = request.getfixturevalue(f"quick_{request.param}")
    return found


@pytest.fixture(params=BOTH_SERVERS)
def disposable_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A broker for one test alone, which may end it."""
    if request.param == "holdfast":
        with HoldfastBroker(QUICK) as holdfast:
            yield holdfast
    else:
        request.getfixturevalue("apache_kafka_distribution")  # skips, or fails in CI, where there is no Kafka
        with ApacheKafka(QUICK) as kafka:
            yield kafka


@pytest.fixture
def disposable_holdfast() -> Iterator[HoldfastBroker]:
    with HoldfastBroker(QUICK) as broker:
        yield broker


@pytest.fixture(params=[CONFLUENT, KAFKA_PYTHON, AIOKAFKA], ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> GroupClient:
    found: GroupClient = request.param
    return found


@pytest.fixture
def needs_kafkajs() -> None:
    try:
        kafkajs_path()
    except KafkaUnavailable as unavailable:
        missing(f"needs kafkajs: {unavailable}")


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
        config = ConsumerConfig(**({"bootstrap": bootstrap, "topic": topic_name, "group": group} | settings))
        started.append(Member(client, config, directory))
        return started[-1]

    yield start
    for member in started:
        member.kill()
