"""The gateway's Kafka client against a real Apache Kafka: both modes, TLS and SASL, and a broker that restarts."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any

import pytest
import uvloop

from holdfast.client.addresses import Address
from holdfast.gateway.brokers import BootstrapAddress, GatewayAddresses
from holdfast.gateway.kafka import connection as connection_module
from holdfast.gateway.kafka.cluster import KafkaCluster
from holdfast.gateway.kafka.connection import connect
from holdfast.gateway.kafka.errors import KafkaRefused, KafkaSetupError, KafkaUnreachable
from holdfast.gateway.kafka.node_identity import identify
from holdfast.gateway.kafka.settings import KafkaClientSettings
from holdfast.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest
from holdfast.wire.apis.describe_groups import DescribeGroupsRequest
from holdfast.wire.apis.list_groups import ListGroupsRequest
from holdfast.wire.error_codes import ErrorCode
from tests.holdfast_client.secured_apache_kafka import REAUTHENTICATE_MS
from tests.holdfast_client.secured_kafka import SecuredKafka, credentials, secured_kafka
from tests.support.apache_kafka import NODE_ID, ApacheKafka

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("apache_kafka_distribution"),
]

GATEWAY = GatewayAddresses(Address("gateway.test", 9092))
PATIENCE_S = 120.0
PLAIN = KafkaClientSettings()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scenario, 2 * PATIENCE_S))


@contextlib.asynccontextmanager
async def started(
    address: tuple[str, int], gateway: GatewayAddresses = GATEWAY, settings: KafkaClientSettings = PLAIN
) -> AsyncIterator[KafkaCluster]:
    cluster = KafkaCluster([BootstrapAddress(None, Address(*address))], settings, gateway, refresh_s=0.5)
    try:
        await cluster.start(timeout_s=PATIENCE_S)
        yield cluster
    finally:
        await cluster.close()


async def eventually_leader(cluster: KafkaCluster, topic: str, partition: int) -> int:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await cluster.leader_of(topic, partition)
        except KafkaUnreachable:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)


async def is_answered(cluster: KafkaCluster) -> None:
    """The coordinator of a new group describes it. Kafka creates __consumer_offsets for the first one."""
    group = f"group-{uuid.uuid4()}"
    deadline = time.monotonic() + PATIENCE_S
    code = -1
    while code != ErrorCode.NONE:  # it may still be loading the partition
        node_id = await cluster.coordinator_of(group, 0, timeout_s=PATIENCE_S)
        assert node_id == NODE_ID
        response = await cluster.ask(node_id, DescribeGroupsRequest([group]), version=5)
        code = response.groups[0].error_code
        assert time.monotonic() < deadline, code
    assert response.groups[0].group_state == "Dead"


def test_a_cluster_that_advertises_itself(apache_kafka: ApacheKafka) -> None:
    async def scenario() -> None:
        async with started(apache_kafka.address) as cluster:
            assert len(cluster.cluster_id) == 22
            assert not cluster.brokers.is_transparent
            assert cluster.brokers.node_ids == (NODE_ID,)
            assert cluster.brokers.upstream(NODE_ID) == apache_kafka.address

            topic = f"topic-{uuid.uuid4()}"
            with pytest.raises(KafkaUnreachable, match="UNKNOWN_TOPIC_OR_PARTITION"):
                await cluster.leader_of(topic, 0)
            created = await cluster.ask_any(CreateTopicsRequest([CreatableTopic(topic, 3, 1)]))
            assert [one.error_code for one in created.topics] == [ErrorCode.NONE]
            assert [await eventually_leader(cluster, topic, number) for number in range(3)] == [NODE_ID] * 3
            await is_answered(cluster)

    run(scenario())


def test_only_a_broker_itself_describes_its_configs(apache_kafka: ApacheKafka) -> None:
    async def scenario() -> None:
        connection = await connect(Address(*apache_kafka.address), PLAIN)
        assert await identify(connection, [0, NODE_ID, 7], timeout_s=PATIENCE_S) == NODE_ID
        assert await identify(connection, [0, 7], timeout_s=PATIENCE_S) is None
        connection.close()

    run(scenario())


def test_a_cluster_that_advertises_the_gateway_and_restarts() -> None:
    gateway = GatewayAddresses(Address("gateway.test", 19_092))
    host, port = gateway.of(NODE_ID)

    async def scenario(kafka: ApacheKafka) -> None:
        async with started(kafka.address, gateway) as cluster:
            assert cluster.brokers.is_transparent
            assert cluster.brokers.upstream(NODE_ID) == kafka.address
            await is_answered(cluster)

            connection = await cluster.connection(NODE_ID)
            lost = asyncio.Event()
            connection.on_lost(lost.set)
            await asyncio.to_thread(kafka.kill)
            await lost.wait()
            with pytest.raises(KafkaUnreachable):
                await cluster.ask(NODE_ID, ListGroupsRequest())
            await asyncio.to_thread(kafka.start)
            await is_answered(cluster)
        wrong = KafkaCluster([BootstrapAddress(2, Address(*kafka.address))], PLAIN, gateway)
        with pytest.raises(KafkaSetupError, match="no address of broker 1"):
            await wrong.start(timeout_s=PATIENCE_S)
        await wrong.close()

    with ApacheKafka({"advertised.listeners": f"PLAINTEXT://{host}:{port}"}) as kafka:
        run(scenario(kafka))


# -- TLS and SASL ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secured(apache_kafka_distribution: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("certificates")) as found:
        yield found


def at(secured: SecuredKafka, listener: str) -> Address:
    host, _, port = secured.kafka.secured(listener).partition(":")
    return Address(host, int(port))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_sasl_over_tls(secured: SecuredKafka, mechanism: str) -> None:
    async def scenario() -> None:
        config = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(secured.authority)} | credentials(mechanism)
        async with started(at(secured, "BOTH"), settings=KafkaClientSettings.from_config(config)) as cluster:
            await is_answered(cluster)
        wrong = KafkaClientSettings.from_config(config | {"sasl.password": "wrong"})
        with pytest.raises(KafkaRefused, match="SASL_AUTHENTICATION_FAILED"):
            await connect(at(secured, "BOTH"), wrong, timeout_s=PATIENCE_S)
        with pytest.raises(KafkaSetupError, match="Kafka does not accept the gateway"):
            async with started(at(secured, "BOTH"), settings=wrong):
                pass

    run(scenario())


def test_client_certificates(secured: SecuredKafka) -> None:
    trusting = {"security.protocol": "SSL", "ssl.ca.location": str(secured.authority)}
    own = {"ssl.certificate.location": str(secured.client.certificate), "ssl.key.location": str(secured.client.key)}

    async def scenario() -> None:
        settings = KafkaClientSettings.from_config(trusting | own)
        (await connect(at(secured, "MUTUAL"), settings, timeout_s=PATIENCE_S)).close()
        for config in (trusting, own | {"security.protocol": "SSL", "ssl.ca.location": str(secured.untrusted)}):
            with pytest.raises((KafkaRefused, KafkaUnreachable), match=r"certificate|TLS"):
                await connect(at(secured, "MUTUAL"), KafkaClientSettings.from_config(config), timeout_s=PATIENCE_S)

    run(scenario())


def test_a_session_is_renewed_under_pipelined_requests(secured: SecuredKafka) -> None:
    config = {"security.protocol": "SASL_PLAINTEXT"} | credentials("PLAIN")

    async def scenario() -> None:
        connection = await connect(at(secured, "EXPIRING"), KafkaClientSettings.from_config(config), timeout_s=60)
        deadline = time.monotonic() + 2.5 * REAUTHENTICATE_MS / 1000
        while time.monotonic() < deadline:
            futures = [connection.send(ListGroupsRequest()) for _ in range(20)]
            assert {(await future).error_code for future in futures} == {ErrorCode.NONE}
            await asyncio.sleep(0.01)
        connection.close()

    run(scenario())


def test_a_session_is_renewed_on_an_idle_connection(secured: SecuredKafka) -> None:
    config = {"security.protocol": "SASL_PLAINTEXT"} | credentials("PLAIN")

    async def scenario() -> None:
        connection = await connect(at(secured, "EXPIRING"), KafkaClientSettings.from_config(config), timeout_s=60)
        await asyncio.sleep(2.5 * REAUTHENTICATE_MS / 1000)
        assert (await connection.ask(ListGroupsRequest())).error_code == ErrorCode.NONE
        connection.close()

    run(scenario())


def test_a_session_that_is_not_renewed_ends(secured: SecuredKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the two tests above."""
    monkeypatch.setattr(connection_module, "_REAUTHENTICATION_WINDOW", (100, 100))
    config = {"security.protocol": "SASL_PLAINTEXT"} | credentials("PLAIN")

    async def scenario() -> None:
        connection = await connect(at(secured, "EXPIRING"), KafkaClientSettings.from_config(config), timeout_s=60)
        await asyncio.sleep(1.5 * REAUTHENTICATE_MS / 1000)
        with pytest.raises(KafkaUnreachable, match="closed by the broker before it answered ListGroups"):
            await connection.ask(ListGroupsRequest())

    run(scenario())
