"""Every client through the gateway: its group is the gateway's, and everything else is Kafka's.

With HOLDFAST_ALL_GATEWAY_TESTS=1, the tests of `tests/client_compat` and `tests/groups` run on a gateway as well.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from holdfast import Admin
from holdfast.gateway.group_names import PROTOCOL_TYPE
from holdfast.wire.apis.produce import PRODUCE
from holdfast.wire.headers import encode_request
from tests.broker.wire_client import WireClient, batch, decoded, fetch_request, produce_request
from tests.client_compat.confluent_client import ConfluentClient, wait_until_led
from tests.client_compat.conftest import needs_kcat
from tests.client_compat.java_client import JavaClient
from tests.client_compat.kcat_client import PATIENCE, kcat_path
from tests.gateway.committing_members import created_topic, unique
from tests.groups.conftest import available, group, needs_go, needs_kafkajs, start_member, topic_name
from tests.groups.members import (
    AIOKAFKA,
    CONFLUENT,
    FRANZ_GO,
    HOLDFAST,
    JAVA,
    KAFKA_GO,
    KAFKA_PYTHON,
    KAFKAJS,
    SARAMA,
    GroupClient,
    StartMember,
    await_consumed,
    await_shared,
)
from tests.groups.topics import PARTITIONS, await_committed, committed, make_topic, produce
from tests.support.eventually import eventually
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_cluster import KafkaCluster

__all__ = ["group", "needs_go", "needs_kafkajs", "needs_kcat", "start_member", "topic_name"]

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

QUICK = {"group.initial.rebalance.delay.ms": "200", "group.min.session.timeout.ms": "500"}
CLIENTS = (CONFLUENT, KAFKA_PYTHON, AIOKAFKA, HOLDFAST, JAVA, FRANZ_GO, SARAMA, KAFKA_GO, KAFKAJS)
DEADLINE_S = 60


@pytest.fixture(scope="module")
def gateway(kafka_cluster: KafkaCluster) -> Iterator[GatewayProcess]:
    """With groups that form quickly. No group of its clients may be in Kafka's own coordinator in the end."""
    before = strays(kafka_cluster)
    with GatewayProcess(kafka_cluster, QUICK) as process:
        yield process
    assert strays(kafka_cluster) == before


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> GroupClient:
    if request.param is KAFKAJS:
        request.getfixturevalue("needs_kafkajs")
    return available(request)


def strays(cluster: KafkaCluster) -> set[str]:
    """The groups in Kafka's own coordinator whose members are consumers."""
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        return {one.group_id for one in admin.list_groups() if one.protocol_type == "consumer"}


def held_names(cluster: KafkaCluster) -> set[str]:
    with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
        return {one.group_id for one in admin.list_groups() if one.protocol_type == PROTOCOL_TYPE}


# -- groups ------------------------------------------------------------------------------------------------------------


def test_members_share_commit_and_go_on_after_a_restart(
    gateway: GatewayProcess,
    kafka_cluster: KafkaCluster,
    client: GroupClient,
    start_member: StartMember,
    group: str,
    topic_name: str,
) -> None:
    # given two members that have read everything
    topic = make_topic(gateway, topic_name)
    members = [start_member(client, gateway.bootstrap) for _ in range(2)]
    await_shared(members, PARTITIONS)
    everything = produce(gateway, topic, each=20)
    await_consumed(members, everything)
    await_committed(gateway, group, topic, 20)

    # then the group is the gateway's, and only its name is in Kafka
    assert group in held_names(kafka_cluster)
    assert group not in strays(kafka_cluster)

    # and a successor goes on where they stopped
    for member in members:
        member.stop()
    successor = start_member(client, gateway.bootstrap)
    more = produce(gateway, topic, each=5, first=20) - everything
    await_consumed([successor], more)
    await_committed(gateway, group, topic, 25)
    successor.stop()


def test_a_group_that_bypasses_the_gateway_is_found(kafka_cluster: KafkaCluster) -> None:
    """The control of all checks for strays."""
    topic, name = created_topic(kafka_cluster.bootstrap, unique("t")), unique("g")
    with Consumer({"bootstrap.servers": kafka_cluster.bootstrap, "group.id": name}) as consumer:
        consumer.subscribe([topic])

        def is_found() -> bool:
            consumer.poll(0.1)
            return name in strays(kafka_cluster)

        eventually(is_found, "the group is found")
    with Admin({"bootstrap.servers": kafka_cluster.bootstrap}) as admin:
        eventually(lambda: admin.delete_groups([name])[name] is None, "the group is deleted")


@pytest.mark.usefixtures("needs_kcat")
def test_kcat_reads_in_a_group(
    gateway: GatewayProcess, kafka_cluster: KafkaCluster, group: str, topic_name: str
) -> None:
    topic = make_topic(gateway, topic_name)
    produce(gateway, topic, each=10)
    arguments = ["-G", group, "-X", "auto.offset.reset=earliest", "-c", str(10 * PARTITIONS), "-f", "%p %o\n", topic]

    done = subprocess.run(
        [kcat_path(), "-b", gateway.bootstrap, *PATIENCE, *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )

    assert len(set(done.stdout.splitlines())) == 10 * PARTITIONS
    assert committed(gateway, group, topic) == dict.fromkeys(range(PARTITIONS), 10)
    assert group in held_names(kafka_cluster)


# -- transactions ------------------------------------------------------------------------------------------------------


def test_transactions_without_offsets_are_kafkas(gateway: GatewayProcess, topic_name: str) -> None:
    topic = make_topic(gateway, topic_name, 1)
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "transactional.id": unique("tx")})
    producer.init_transactions(DEADLINE_S)
    for value, ends in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        assert producer.flush(DEADLINE_S) == 0
        ends(DEADLINE_S)

    assert read_one(gateway, topic, "read_committed") == b"committed"
    assert read_one(gateway, topic, "read_uncommitted") == b"aborted"
    JavaClient().begin_transaction(gateway.bootstrap, unique("tx"))


def read_one(gateway: GatewayProcess, topic: str, isolation: str) -> bytes | None:
    settings = {"bootstrap.servers": gateway.bootstrap, "group.id": "unused", "isolation.level": isolation}
    with Consumer(settings) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(DEADLINE_S)
        assert message is not None and message.error() is None
        return message.value()


def test_offsets_in_a_transaction_are_refused_and_logged(gateway: GatewayProcess, group: str, topic_name: str) -> None:
    topic, transactional_id = make_topic(gateway, topic_name, 1), unique("tx")
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    settings = {"bootstrap.servers": gateway.bootstrap, "group.id": group, "enable.auto.commit": False}
    with Consumer(settings) as consumer:
        metadata = consumer.consumer_group_metadata()
        with pytest.raises(KafkaException) as refused:
            producer.send_offsets_to_transaction([TopicPartition(topic, 0, 5)], metadata, DEADLINE_S)

        assert refused.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
        assert transactional_id in gateway.log_text()
        # The control: the same offset, without a transaction.
        consumer.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    assert committed(gateway, group, topic) == {0: 5}


# -- produce and fetch -------------------------------------------------------------------------------------------------


def leader(gateway: GatewayProcess, topic: str) -> WireClient:
    """A connection to the gateway, to the port of the broker that leads partition 0."""
    return WireClient(gateway.address_of(gateway.kafka.leader_of(topic, 0)))


def test_pipelined_requests_are_answered_in_order(gateway: GatewayProcess, topic_name: str) -> None:
    topic = make_topic(gateway, topic_name, 1)
    requests = [produce_request(topic, batch(b"%d" % number), acks=1) for number in range(300)]
    with leader(gateway, topic) as client:
        client.send_bytes(b"".join(encode_request(one, 9, number, "fast") for number, one in enumerate(requests)))
        answers = [client.receive(PRODUCE, 9) for _ in requests]

    assert [number for number, _ in answers] == list(range(300))
    assert [one.responses[0].partition_responses[0].base_offset for _, one in answers] == list(range(300))


def test_records_without_acknowledgement_are_stored(gateway: GatewayProcess, topic_name: str) -> None:
    topic = make_topic(gateway, topic_name, 1)
    produce = produce_request(topic, batch(b"sent"), acks=0)
    with leader(gateway, topic) as client:
        client.send_bytes(b"".join(encode_request(produce, 9, number, "gone") for number in range(400)))
    confluent = ConfluentClient()
    eventually(lambda: confluent.watermarks(gateway.bootstrap, topic) == (0, 400), "all of it is stored")


def test_a_large_fetch_needs_little_memory(gateway: GatewayProcess, topic_name: str) -> None:
    size, count = 10_000_000, 5
    topic = created_topic(gateway.bootstrap, topic_name, max_message_bytes=str(size + 1000))
    wait_until_led(gateway.bootstrap, topic, 1)
    before = peak_memory(gateway.pid)
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "message.max.bytes": size + 1000, "linger.ms": 0})
    values = [bytes([number]) * size for number in range(count)]
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(DEADLINE_S) == 0

    with leader(gateway, topic) as client:
        response = client.ask(fetch_request(topic, max_bytes=100_000_000, min_bytes=count * size), 12)

    records = decoded(bytes(response.responses[0].partitions[0].records))
    assert [record.value for record in records] == values
    assert peak_memory(gateway.pid) - before < size


def peak_memory(pid: int) -> int:
    """In bytes."""
    (line,) = (one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
