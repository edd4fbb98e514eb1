"""The cluster that a gateway is tested on: three brokers that replicate, and survive the loss of one."""

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support import raw_wire
from tests.support.kafka_cluster import KafkaCluster

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("apache_kafka_distribution"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """One that this file may break, with brokers that are missed sooner than Kafka's default."""
    with KafkaCluster(properties={"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}) as own:
        yield own


def test_each_listener_names_its_own_addresses(cluster: KafkaCluster) -> None:
    direct = raw_wire.brokers(cluster.address(1))
    for_gateway = {
        int(node_id): (host, int(port))
        for node_id, host, port in (one.replace("=", ":").split(":") for one in cluster.gateway_bootstrap.split(","))
    }
    host, base = cluster.gateway_address

    assert direct == {node_id: cluster.address(node_id) for node_id in (1, 2, 3)}
    for address in for_gateway.values():
        assert raw_wire.brokers(address) == {node_id: (host, base + 1 + node_id) for node_id in (1, 2, 3)}


def test_it_replicates_and_survives_the_loss_of_a_leader(cluster: KafkaCluster) -> None:
    # given a record that every replica has
    topic = created_topic(cluster)
    produce(cluster, topic, b"before")
    leader = cluster.leader_of(topic, 0)
    assert sorted(cluster.partition(topic, 0).replicas) == [1, 2, 3]
    pid = cluster.pid(leader)

    # when its leader is killed
    cluster.kill(leader)
    produce(cluster, topic, b"meanwhile")

    # then another one leads, and has both
    assert cluster.leader_of(topic, 0) != leader
    assert read(cluster, topic, 2) == [b"before", b"meanwhile"]

    # and the one that comes back is a replica again
    cluster.start(leader)
    cluster.await_in_sync(topic, 0)
    assert cluster.pid(leader) != pid


def test_a_group_survives_a_shutdown(cluster: KafkaCluster) -> None:
    topic = created_topic(cluster)
    produce(cluster, topic, b"kept")
    group = f"g-{uuid.uuid4().hex[:8]}"
    where = TopicPartition(topic, 0, 1)
    with closing_consumer(cluster, group) as consumer:
        consumer.commit(offsets=[where], asynchronous=False)

        cluster.stop(cluster.leader_of(topic, 0))

        assert [one.offset for one in consumer.committed([where], timeout=60)] == [1]
    for node_id in cluster.node_ids:
        if not cluster.is_running(node_id):
            cluster.start(node_id)
    cluster.await_in_sync(topic, 0)


def test_one_node_is_a_cluster_too() -> None:
    with KafkaCluster(1) as cluster:
        topic = created_topic(cluster)
        produce(cluster, topic, b"alone")
        assert read(cluster, topic, 1) == [b"alone"]
        assert cluster.partition(topic, 0) == raw_wire.PartitionState(1, [1], [1])


def created_topic(cluster: KafkaCluster) -> str:
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, len(cluster.node_ids))])[topic].result(timeout=60)
    cluster.await_in_sync(topic, 0)
    return topic


def produce(cluster: KafkaCluster, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0


def closing_consumer(cluster: KafkaCluster, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False})


def read(cluster: KafkaCluster, topic: str, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    with closing_consumer(cluster, "unused") as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while len(values) < count:
            message = consumer.poll(60)
            assert message is not None, f"nothing came within 60 s after {values}"
            assert message.error() is None, message.error()
            values.append(message.value())
    return values
