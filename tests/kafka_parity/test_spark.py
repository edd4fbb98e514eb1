"""Spark starts here, and its executors read what a Holdfast broker holds, by explicit partitions."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.holdfast_broker import HoldfastBroker

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PARTITIONS = 4
RECORDS = 2_000


def test_executors_read_each_partition_once(holdfast: HoldfastBroker, spark: Any) -> None:
    topic = "spark-reads"
    bootstrap = holdfast.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, value=str(number), partition=number % PARTITIONS)
    assert producer.flush(30) == 0

    def read(partitions: Iterator[int]) -> Iterator[tuple[int, int]]:
        from confluent_kafka import Consumer, TopicPartition  # here, because the class itself cannot be pickled

        for partition in partitions:
            consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "spark", "enable.auto.commit": False})
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            consumer.assign([TopicPartition(topic, partition, 0)])
            while end:
                for message in consumer.consume(1_000, timeout=30):
                    assert message.error() is None
                    yield partition, int(message.value() or b"")
                    end -= 1
            consumer.close()

    seen = spark.sparkContext.parallelize(range(PARTITIONS), PARTITIONS).mapPartitions(read).collect()

    assert sorted(number for _, number in seen) == list(range(RECORDS))
    assert all(number % PARTITIONS == partition for partition, number in seen)
