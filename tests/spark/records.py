"""Topics filled and read by a client that is not under test."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.eventually import DEADLINE_S


def new_topic(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(DEADLINE_S)


def produced(bootstrap: str, topic: str, partitions: int, count: int) -> list[str]:
    """A new topic with `count` different values, the same number in each partition as far as it goes."""
    new_topic(bootstrap, topic, partitions)
    values = [f"value {number}" for number in range(count)]
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for number, value in enumerate(values):
        producer.produce(topic, value, key=f"key {number}", partition=number % partitions)
    assert producer.flush(DEADLINE_S) == 0
    return values


def values_of(bootstrap: str, topic: str) -> list[str]:
    """Every value that the topic holds, in no order."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.partition.eof": True})
    try:
        of_topic = consumer.list_topics(topic, DEADLINE_S).topics[topic]
        consumer.assign([TopicPartition(topic, partition, 0) for partition in of_topic.partitions])
        values: list[str] = []
        ended = 0
        while ended < len(of_topic.partitions):
            message = consumer.poll(DEADLINE_S)
            assert message is not None, f"{len(values)} records, then nothing"
            if (error := message.error()) is None:
                values.append((message.value() or b"").decode())
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended += 1
        return values
    finally:
        consumer.close()
