"""The topic mirror against a real Kafka, with an authorizer that can hide topics from it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from holdfast.client.addresses import Address
from holdfast.gateway.brokers import GatewayAddresses, parse_bootstrap
from holdfast.gateway.kafka.cluster import KafkaCluster
from holdfast.gateway.kafka.settings import KafkaClientSettings
from holdfast.gateway.topic_mirror import TopicMirror
from tests.support.apache_kafka import ApacheKafka

pytestmark = [pytest.mark.real, pytest.mark.timeout(300), pytest.mark.usefixtures("apache_kafka_distribution")]

Event = tuple[str, str, int]
Story = Callable[[TopicMirror, list[Event]], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with ApacheKafka(properties) as broker:
        yield broker


@pytest.fixture(scope="module")
def admin(kafka: ApacheKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap})


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4()}"


def run(kafka: ApacheKafka, story: Story) -> None:
    async def whole() -> None:
        gateway = GatewayAddresses(Address("gateway.example", 20_000))
        cluster = KafkaCluster(parse_bootstrap(kafka.bootstrap), KafkaClientSettings(), gateway)
        mirror = TopicMirror(cluster, interval_s=0.2)
        events: list[Event] = []
        mirror.on_deleted = lambda name: events.append(("deleted", name, 0))
        mirror.on_grown = lambda name, before: events.append(("grown", name, before))
        try:
            await cluster.start()
            await mirror.start()
            await story(mirror, events)
        finally:
            await mirror.stop()
            await cluster.close()

    asyncio.run(asyncio.wait_for(whole(), 120))


async def until(look: Callable[[], bool]) -> None:
    while not look():  # noqa: ASYNC110  # there is no event to wait for
        await asyncio.sleep(0.02)


async def done(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        await asyncio.to_thread(future.result, 60)


def test_topics_are_followed_from_their_creation_to_their_deletion(
    kafka: ApacheKafka, admin: AdminClient, topic: str
) -> None:
    async def story(mirror: TopicMirror, events: list[Event]) -> None:
        assert mirror.get(topic) is None
        await done(admin.create_topics([NewTopic(topic, 2, 1)]))
        await until(lambda: mirror.partition_count(topic) == 2)
        await done(admin.create_partitions([NewPartitions(topic, 5)]))
        await until(lambda: mirror.partition_count(topic) == 5)
        await done(admin.delete_topics([topic]))
        await until(lambda: mirror.get(topic) is None)
        assert events == [("grown", topic, 0), ("grown", topic, 2), ("deleted", topic, 0)]

    run(kafka, story)


def test_a_topic_that_is_created_again_has_another_id(kafka: ApacheKafka, admin: AdminClient, topic: str) -> None:
    async def story(mirror: TopicMirror, events: list[Event]) -> None:
        await done(admin.create_topics([NewTopic(topic, 3, 1)]))
        await until(lambda: mirror.get(topic) is not None)
        first = mirror.get(topic)
        assert first is not None
        await done(admin.delete_topics([topic]))
        await done(admin.create_topics([NewTopic(topic, 3, 1)]))
        await until(lambda: mirror.by_id(first.id) is None and mirror.get(topic) is not None)
        second = mirror.get(topic)
        assert second is not None
        assert mirror.by_id(second.id) is second
        assert events == [("grown", topic, 0), ("deleted", topic, 0), ("grown", topic, 0)]

    run(kafka, story)


def test_a_topic_that_the_gateway_may_not_describe_any_more_is_not_deleted(
    kafka: ApacheKafka, admin: AdminClient, topic: str
) -> None:
    async def story(mirror: TopicMirror, events: list[Event]) -> None:
        await done(admin.create_topics([NewTopic(topic, 3, 1)]))
        await until(lambda: mirror.get(topic) is not None)
        literal, everybody = ResourcePatternType.LITERAL, "User:ANONYMOUS"
        hiding = AclBinding(
            ResourceType.TOPIC, topic, literal, everybody, "*", AclOperation.ALL, AclPermissionType.DENY
        )
        await done(admin.create_acls([hiding]))
        await until(lambda: topic in mirror._unsettled)  # so it is missing in a listing
        await asyncio.sleep(1)
        assert mirror.get(topic) is not None
        assert await mirror.confirmed_missing([topic]) == []
        shown = AclBindingFilter(
            ResourceType.TOPIC, topic, literal, everybody, "*", AclOperation.ALL, AclPermissionType.DENY
        )
        await done(admin.delete_acls([shown]))
        await until(lambda: topic not in mirror._unsettled)
        assert events == [("grown", topic, 0)]

    run(kafka, story)


def test_a_topic_that_never_existed_is_confirmed_as_missing(kafka: ApacheKafka, admin: AdminClient, topic: str) -> None:
    async def story(mirror: TopicMirror, events: list[Event]) -> None:
        await done(admin.create_topics([NewTopic(topic, 3, 1)]))
        assert await mirror.confirmed_missing([topic, "none"]) == ["none"]

    run(kafka, story)


def test_a_restart_of_kafka_deletes_nothing(kafka: ApacheKafka, admin: AdminClient, topic: str) -> None:
    async def story(mirror: TopicMirror, events: list[Event]) -> None:
        await done(admin.create_topics([NewTopic(topic, 3, 1)]))
        await until(lambda: mirror.get(topic) is not None)
        await asyncio.to_thread(kafka.restart)
        await mirror.refresh()
        await asyncio.sleep(1)
        assert mirror.get(topic) is not None
        assert events == [("grown", topic, 0)]

    run(kafka, story)
