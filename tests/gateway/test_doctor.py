"""`holdfast gateway doctor` and `release` on a real gateway in front of three real brokers."""

import json

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast import Admin
from holdfast.cli.main import main
from tests.support.eventually import eventually
from tests.support.gateway_process import GatewayProcess
from tests.support.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


def test_a_right_set_up_passes_every_check(
    gateway: GatewayProcess, kafka_cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["gateway", "doctor", "--bootstrap-server", gateway.bootstrap, "--kafka", kafka_cluster.bootstrap]
    code = main([*command, "--timeout", "60", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (code, [one for one in found if not one["ok"]]) == (0, [])

    # and leaves no group behind
    with Admin({"bootstrap.servers": gateway.bootstrap}) as admin:
        assert [one for one in admin.list_groups() if one.group_id.startswith("holdfast-doctor")] == []


def test_kafka_itself_is_not_a_gateway(kafka_cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gateway", "doctor", "--bootstrap-server", kafka_cluster.bootstrap]) == 1
    assert "is an Apache Kafka broker, not a gateway" in capsys.readouterr().err


def test_a_released_group_goes_on_in_kafka(
    gateway: GatewayProcess, kafka_cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a group on the gateway that has committed
    topic, group = "released-topic", "released-group"
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})  # named: it must outlive its question
    admin.create_topics([NewTopic(topic, 2, 3)])[topic].result(60)
    where = [TopicPartition(topic, 0, 7), TopicPartition(topic, 1, 11)]
    commit(gateway.bootstrap, group, where)

    # when it is released
    code = main(["gateway", "release", group, "--bootstrap-server", gateway.bootstrap, "--timeout", "60"])
    assert (code, capsys.readouterr().out) == (0, f"{group}: released, with the offsets of 2 partitions\n")

    # then Kafka's own coordinator has the offsets, and lets a client commit
    eventually(lambda: committed(kafka_cluster.bootstrap, group, where) == [7, 11], "Kafka has the offsets")
    commit(kafka_cluster.bootstrap, group, [TopicPartition(topic, 0, 8)])
    assert committed(kafka_cluster.bootstrap, group, where) == [8, 11]


def commit(bootstrap: str, group: str, offsets: list[TopicPartition]) -> None:
    with Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}) as consumer:
        consumer.commit(offsets=offsets, asynchronous=False)


def committed(bootstrap: str, group: str, partitions: list[TopicPartition]) -> list[int]:
    with Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}) as consumer:
        return [one.offset for one in consumer.committed(partitions, timeout=60)]
