"""Clients as they are, through the router to a broker that speaks Kafka's protocol."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer, KafkaProducer

from holdfast.broker.authorization.users_file import Users, write_users
from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.server import Broker
from holdfast.client.addresses import Address
from holdfast.gateway.router.ports import RoutedClient
from holdfast.gateway.router.router import Router
from holdfast.gateway.router.settings import RouterSettings
from holdfast.wire.apis.api_versions import ApiVersionsResponse
from holdfast.wire.apis.describe_groups import DescribeGroupsRequest
from holdfast.wire.apis.list_groups import LIST_GROUPS, ListGroupsResponse
from holdfast.wire.headers import decode_request_header, encode_response_parts
from tests.support.held_ports import held_port_range
from tests.unit.gateway.router.conftest import Run
from tests.unit.gateway.router.harness import HOST, FakeBrokers, FakeRequests

NODE = 1
RECORDS = 200


class AllForwarded(FakeRequests):
    """The broker keeps the groups; only ListGroups is answered here, with the client's principal."""

    def __init__(self, local_keys: frozenset[int] = frozenset((LIST_GROUPS.key,))) -> None:
        super().__init__(local_keys)
        self.principals: set[str] = set()
        self.answer_with = self._list

    def api_versions(self, kafka: ApiVersionsResponse) -> ApiVersionsResponse:
        return kafka

    async def _list(self, frame: bytes, client: RoutedClient) -> bytes:
        self.principals.add(client.session.principal)
        await client.ask(DescribeGroupsRequest(["unknown"]), 5)
        _, version, correlation_id, _, _ = decode_request_header(frame)
        parts: list[Any] = encode_response_parts(ListGroupsResponse(), version, correlation_id)
        return b"".join(parts)


class World:
    def __init__(self, base: int, router: Router, requests: AllForwarded) -> None:
        self.bootstrap = f"{HOST}:{base}"
        self.base = base
        self.router = router
        self.requests = requests


@contextlib.asynccontextmanager
async def world(path: Path, *, is_transparent: bool, users: Path | None = None) -> AsyncIterator[World]:
    held = held_port_range(NODE + 2)
    base = held[0].getsockname()[1]
    protocol = "PLAINTEXT" if users is None else "SASL_PLAINTEXT"
    settings = {
        "listeners": f"{protocol}://{HOST}:0",
        "node.id": str(NODE),
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
    }
    if is_transparent:
        settings["advertised.listeners"] = f"{protocol}://{HOST}:{base + 1 + NODE}"
    if users is not None:
        settings |= {
            "users.file": str(users),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "allow.everyone.if.no.acl.found": "true",
        }
    broker = Broker(BrokerConfig.of(settings), path / "data")
    await broker.start()
    brokers = FakeBrokers({NODE: Address(*broker.address)}, base, is_transparent=is_transparent)
    requests = AllForwarded()
    made = RouterSettings(listen=Address(HOST, base), upstream_uses_sasl=users is not None)
    router = Router(brokers, requests, made)
    await router.start()
    try:
        yield World(base, router, requests)
    finally:
        await router.stop()
        await broker.stop()
        for one in held:
            one.close()


def in_thread(scenario: Callable[[World], None], path: Path, **options: Any) -> Coroutine[Any, Any, None]:
    async def main() -> None:
        async with world(path, **options) as running:
            await asyncio.to_thread(scenario, running)

    return main()


def produce_and_consume(running: World, **security: Any) -> None:
    """librdkafka: a topic, records with every kind of acks, a group that reads them and commits."""
    common: dict[str, Any] = {"bootstrap.servers": running.bootstrap, **security}
    admin = AdminClient(common)
    topic = f"orders-{uuid.uuid4()}"
    admin.create_topics([NewTopic(topic, 3)])[topic].result(30)
    listed: list[Any] = list(admin.list_topics(timeout=30).brokers.values())
    assert [(one.id, one.host, one.port) for one in listed] == [(NODE, HOST, running.base + 1 + NODE)]
    for acks in ("all", "1"):
        producer = Producer({**common, "acks": acks, "linger.ms": 5})
        for number in range(RECORDS):
            producer.produce(topic, str(number).encode() * 50)
        assert producer.flush(30) == 0
    consumer = Consumer({**common, "group.id": f"group-{uuid.uuid4()}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[Any] = []
    while len(found) < 2 * RECORDS:
        found += [record for record in consumer.consume(100, 1) if record.error() is None]
    committed = consumer.commit(asynchronous=False)
    assert sum(one.offset for one in committed or []) == 2 * RECORDS
    consumer.close()
    admin.list_consumer_groups().result(30)


@pytest.mark.parametrize("is_transparent", [True, False])
def test_librdkafka_produces_and_consumes_in_a_group(run: Run, tmp_path: Path, is_transparent: bool) -> None:
    run(in_thread(produce_and_consume, tmp_path, is_transparent=is_transparent))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_librdkafka_authenticates_with_the_broker(run: Run, tmp_path: Path, mechanism: str) -> None:
    users = tmp_path / "users.json"
    write_users(users, Users().with_user("alice", "secret", 4096))

    def scenario(running: World) -> None:
        produce_and_consume(
            running,
            **{
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism,
                "sasl.username": "alice",
                "sasl.password": "secret",
            },
        )
        assert running.requests.principals == {"User:alice"}

    run(in_thread(scenario, tmp_path, is_transparent=False, users=users))


def test_a_producer_with_acks_0_may_end_at_once(run: Run, tmp_path: Path) -> None:
    def scenario(running: World) -> None:
        common: dict[str, Any] = {"bootstrap.servers": running.bootstrap}
        admin = AdminClient(common)
        admin.create_topics([NewTopic("fast", 1)])["fast"].result(30)
        producer = Producer({**common, "acks": "0"})
        for number in range(RECORDS):
            producer.produce("fast", str(number).encode() * 1000)
        assert producer.flush(30) == 0
        del producer
        consumer = Consumer({**common, "group.id": "unused", "auto.offset.reset": "earliest"})
        consumer.assign([TopicPartition("fast", 0, 0)])
        found: list[Any] = []
        while len(found) < RECORDS:
            found += consumer.consume(100, 1)
        consumer.close()

    run(in_thread(scenario, tmp_path, is_transparent=False))


@pytest.mark.parametrize("is_transparent", [True, False])
def test_kafka_python_produces_and_consumes_in_a_group(run: Run, tmp_path: Path, is_transparent: bool) -> None:
    def scenario(running: World) -> None:
        producer = KafkaProducer(bootstrap_servers=running.bootstrap)
        for number in range(RECORDS):
            producer.send("orders", str(number).encode())
        producer.flush(30)
        producer.close()
        consumer = KafkaConsumer(
            "orders", bootstrap_servers=running.bootstrap, group_id="group", auto_offset_reset="earliest"
        )
        found = 0
        while found < RECORDS:
            found += sum(map(len, consumer.poll(1000).values()))
        consumer.commit()
        consumer.close()

    run(in_thread(scenario, tmp_path, is_transparent=is_transparent))
