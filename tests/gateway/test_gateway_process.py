"""The gateway as a process: it starts, is killed, comes back with its groups, and says why it cannot start."""

import json
import socket

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.cli.main import main
from tests.support.gateway_process import GatewayProcess
from tests.support.holdfast_broker import HoldfastFailed
from tests.support.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


def test_a_killed_gateway_comes_back_with_its_groups(one_kafka: KafkaCluster) -> None:
    with GatewayProcess(one_kafka) as gateway:
        where = [TopicPartition(created_topic(gateway.bootstrap, "killed"), 0, 5)]
        with consumer_of(gateway, "g-killed") as consumer:
            consumer.commit(offsets=where, asynchronous=False)
        bootstrap, pid = gateway.bootstrap, gateway.pid

        gateway.kill()
        gateway.start()

        assert (gateway.bootstrap, gateway.pid != pid) == (bootstrap, True)
        with consumer_of(gateway, "g-killed") as consumer:
            assert [one.offset for one in consumer.committed(where, timeout=60)] == [5]
        gateway.restart()
        with consumer_of(gateway, "g-killed") as consumer:
            assert [one.offset for one in consumer.committed(where, timeout=60)] == [5]


def test_without_a_listener_for_it_the_gateway_rewrites_addresses(
    one_kafka: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with GatewayProcess(one_kafka, rewriting=True) as gateway:
        assert "mode=rewriting" in gateway.log_text()
        host, port = gateway.address_of(1)
        code = main(
            ["gateway", "doctor", "--bootstrap-server", gateway.bootstrap, "--kafka", one_kafka.bootstrap, "--json"]
        )
        found = {one["check"]: one for one in json.loads(capsys.readouterr().out)}
    assert (code, found["brokers"]["message"]) == (0, f"1 at {host}:{port}"), found


def test_a_port_in_use_is_one_sentence_and_exit_code_2(one_kafka: KafkaCluster) -> None:
    host, base = one_kafka.gateway_address
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the cluster holds this port for the gateway
        taken.bind((host, base + 2))
        taken.listen()
        with pytest.raises(HoldfastFailed, match="exit code 2") as failed:
            GatewayProcess(one_kafka).__enter__()
    last = str(failed.value).splitlines()[-1]
    assert last.startswith("holdfast gateway: cannot listen on ")
    assert last.endswith(f"{host}:{base + 2}: Address already in use")


def created_topic(bootstrap: str, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # named: it must outlive its question
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    return name


def consumer_of(gateway: GatewayProcess, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": group, "enable.auto.commit": False})
