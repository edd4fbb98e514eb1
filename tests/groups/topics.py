"""What the tests put into a broker, and what its admin APIs and its ledger say of a group."""

import json
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaAdminClient
from kafka.errors import RetriableError

from holdfast.coordinator.events.group_event import LEDGER_TOPIC
from tests.client_compat.client import DEADLINE_S, Record
from tests.client_compat.confluent_client import ConfluentClient
from tests.client_compat.servers import Server
from tests.support.eventually import eventually

PARTITIONS = 4
CLIENT = ConfluentClient()


def make_topic(server: Server, name: str, partitions: int = PARTITIONS) -> str:
    CLIENT.create_topic(server.bootstrap, name, partitions)
    eventually(lambda: CLIENT.topics(server.bootstrap).get(name) == partitions, f"{name} with its partitions")
    return name


def produce(
    server: Server, topic: str, each: int, first: int = 0, partitions: int = PARTITIONS
) -> set[tuple[int, int]]:
    """Some records to every partition; partition and offset of all that are there then."""
    records = [Record(value=b"%d" % number) for number in range(first, first + each)]
    for partition in range(partitions):
        CLIENT.produce(server.bootstrap, topic, records, partition)
    return {(partition, offset) for partition in range(partitions) for offset in range(first + each)}


def committed(server: Server, group: str, topic: str) -> dict[int, int]:
    """The group's offsets in this topic, as the broker knows them; none while it looks for its groups.

    Asked with kafka-python: confluent-kafka's admin crashes at the answers of an Apache Kafka that has just come back.
    """
    admin = KafkaAdminClient(bootstrap_servers=server.bootstrap)
    try:
        found = admin.list_group_offsets({group: None})[group]
    except RetriableError:
        return {}
    finally:
        admin.close()
    return {at.partition: stored.offset for at, stored in found.items() if at.topic == topic}


def await_committed(
    server: Server,
    group: str,
    topic: str,
    offset: int,
    partitions: int = PARTITIONS,
    within_s: float = DEADLINE_S,
) -> None:
    expected = dict.fromkeys(range(partitions), offset)
    eventually(lambda: committed(server, group, topic) == expected, f"{offset} committed in every partition", within_s)


def ledger(server: Server, group: str) -> list[dict[str, Any]]:
    """What Holdfast's ledger tells of this group so far, oldest first."""
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(LEDGER_TOPIC, 0), DEADLINE_S)
        consumer.assign([TopicPartition(LEDGER_TOPIC, 0, 0)])
        events: list[dict[str, Any]] = []
        at = 0
        while at < end:
            message = consumer.poll(DEADLINE_S)
            assert message is not None and message.error() is None
            value, offset = message.value(), message.offset()
            assert value is not None and offset is not None
            events.append(json.loads(value))
            at = offset + 1
    finally:
        consumer.close()
    return [event for event in events if event["group_id"] == group]
