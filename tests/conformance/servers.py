"""The pairs of servers, ready for a run, and how one of them is killed and started again."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from holdfast.wire.apis.describe_groups import DescribeGroupsRequest
from holdfast.wire.apis.find_coordinator import FindCoordinatorRequest
from holdfast.wire.apis.metadata import MetadataRequest
from tests.broker.wire_client import WireClient
from tests.client_compat.servers import ALL_GATEWAY_TESTS, OneBrokerGateway
from tests.conformance.comparing import ServerPair
from tests.conformance.server import Restart, Server
from tests.support.apache_kafka import ApacheKafka
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.kafka_cluster import KafkaCluster

SETTINGS = {
    "group.initial.rebalance.delay.ms": "200",
    "group.min.session.timeout.ms": "100",
    "group.max.size": "4",
    # Never: a sweep deletes empty groups, and then Holdfast's new ones begin above them (difference 22).
    "offsets.retention.check.interval.ms": "86400000",
}
# Where the initial delay is not what a run is about, nobody need hurry.
RESTARTED = SETTINGS | {"group.initial.rebalance.delay.ms": "800"}
SHORT_RETENTION = RESTARTED | {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "500"}
# One partition of the offsets topic: Kafka then loads one, and the first group is not slower than the others.
# A killed Kafka waits out its own session with the controller before it is admitted again.
KAFKA_ONLY = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
}
TOPICS = {"orders": 3, "payments": 2}
NO_SUCH_TOPIC = {"no-such-topic": bytes(range(16))}


class RestartableKafka(ApacheKafka):
    def restart_killed(self, down_s: float, settings: Mapping[str, str]) -> None:
        """The settings hold until it is killed again."""
        self.kill()
        own = self._overrides
        self._overrides = {**own, **settings}
        self._write_properties()
        self._overrides = own
        time.sleep(down_s)
        self.start()
        await_coordinator(self.address)


class RestartableHoldfast(HoldfastBroker):
    def restart_killed(self, down_s: float, settings: Mapping[str, str]) -> None:
        """The settings hold until it is killed again."""
        self.kill()
        own = self._settings
        self._settings = {**own, **settings}
        time.sleep(down_s)
        self.start()
        self._settings = own
        await_coordinator(self.address)


class RestartableGateway(OneBrokerGateway, RestartableHoldfast):
    """In the place of Holdfast."""


@contextmanager
def pair_of_servers(
    settings: Mapping[str, str], plays_at_once: int = 20, *, on_gateway: bool = ALL_GATEWAY_TESTS
) -> Iterator[ServerPair]:
    """Both with the same settings; they can be killed and started again. With `on_gateway`, Holdfast's groups are those
    of a gateway in front of another Kafka."""
    with ExitStack() as entered:
        # The workers first: a server that one of them restarted dies with it.
        workers = entered.enter_context(ThreadPoolExecutor(plays_at_once))
        kafka = entered.enter_context(RestartableKafka({**KAFKA_ONLY, **settings}))
        holdfast: RestartableHoldfast
        if on_gateway:
            cluster = entered.enter_context(KafkaCluster(1, KAFKA_ONLY))
            holdfast = entered.enter_context(RestartableGateway(cluster, settings))
        else:
            holdfast = entered.enter_context(RestartableHoldfast(settings))
        yield ServerPair(
            prepared(kafka.address, kafka.restart_killed), prepared(holdfast.address, holdfast.restart_killed), workers
        )


def prepared(address: tuple[str, int], restart: Restart) -> Server:
    """The topics are there, and the coordinator has loaded its groups."""
    with WireClient(address) as client:
        for name, partitions in TOPICS.items():
            client.create_topic(name, partitions)
        eventually(lambda: TOPICS.keys() <= topic_ids(client).keys(), "the topics are known")
        topics = topic_ids(client) | NO_SUCH_TOPIC
    await_coordinator(address)
    return Server(address, topics, restart)


def await_coordinator(address: tuple[str, int], group: str = "any") -> None:
    """Each partition of the offsets topic is loaded on its own: with several, name the group that is used."""
    with WireClient(address) as client:
        eventually(
            lambda: client.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4).coordinators[0].error_code == 0,
            f"there is a coordinator of {group}",
        )
        eventually(
            lambda: client.ask(DescribeGroupsRequest([group]), 5).groups[0].error_code == 0,
            f"the coordinator of {group} has loaded its groups",
        )


def topic_ids(client: WireClient) -> dict[str, bytes]:
    return {topic.name: topic.topic_id for topic in client.ask(MetadataRequest(None), 12).topics}
