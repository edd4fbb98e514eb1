"""Both servers with the same settings, and the one line that the run ends with."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.wire.apis.describe_groups import DescribeGroupsRequest
from holdfast.wire.apis.find_coordinator import FindCoordinatorRequest
from holdfast.wire.apis.metadata import MetadataRequest
from tests.broker.wire_client import WireClient
from tests.conformance.comparing import Outcome, Stage
from tests.conformance.scene import Server
from tests.support.apache_kafka import ApacheKafka
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.kafka_distribution import KafkaDistribution

SETTINGS = {
    "group.initial.rebalance.delay.ms": "200",
    "group.min.session.timeout.ms": "100",
    "group.max.size": "4",
}
TOPICS = {"orders": 3, "payments": 2}
NO_SUCH_TOPIC = {"no-such-topic": bytes(range(16))}
OUTCOMES = pytest.StashKey[list[Outcome]]()


@pytest.fixture(scope="session")
def stage(apache_kafka_distribution: KafkaDistribution) -> Iterator[Stage]:
    # One partition of the offsets topic: Kafka then loads one, and the first group is not slower than the others.
    with (
        ApacheKafka(SETTINGS | {"offsets.topic.num.partitions": "1"}) as kafka,
        HoldfastBroker(SETTINGS) as holdfast,
        ThreadPoolExecutor(20) as workers,
    ):
        yield Stage(prepared(kafka.address), prepared(holdfast.address), workers)


def prepared(address: tuple[str, int]) -> Server:
    """The topics are there, and the coordinator has loaded its groups."""
    with WireClient(address) as client:
        for name, partitions in TOPICS.items():
            client.create_topic(name, partitions)
        eventually(lambda: TOPICS.keys() <= topic_ids(client).keys(), "the topics are known")
        eventually(
            lambda: client.ask(FindCoordinatorRequest(coordinator_keys=["any"]), 4).coordinators[0].error_code == 0,
            "there is a coordinator",
        )
        eventually(
            lambda: client.ask(DescribeGroupsRequest(["any"]), 5).groups[0].error_code == 0,
            "the coordinator has loaded its groups",
        )
        return Server(address, topic_ids(client) | NO_SUCH_TOPIC)


def topic_ids(client: WireClient) -> dict[str, bytes]:
    return {topic.name: topic.topic_id for topic in client.ask(MetadataRequest(None), 12).topics}


@pytest.fixture(scope="session")
def outcomes(request: pytest.FixtureRequest) -> list[Outcome]:
    """Every outcome of the run so far."""
    return request.config.stash.setdefault(OUTCOMES, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    outcomes = config.stash.get(OUTCOMES, [])
    if outcomes:
        terminalreporter.write_line(summary(outcomes))


def summary(outcomes: list[Outcome]) -> str:
    names = {outcome.scenario.name for outcome in outcomes}
    unlisted = sum(bool(outcome.unlisted) for outcome in outcomes)
    listed = sum(bool(outcome.seen) and not outcome.unlisted for outcome in outcomes)
    equal = len(outcomes) - unlisted - listed
    numbers = sorted({difference.number for outcome in outcomes for difference in outcome.seen})
    return (
        f"conformance: {len(names)} scenarios run in {len(outcomes)} plays, {equal} equal, "
        f"{listed} listed differences {numbers}, unlisted = {unlisted} "
        f"({sum(outcome.again for outcome in outcomes)} played twice)"
    )
