"""What kafka-python does differently from the others."""

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import MessageSizeTooLargeError

from tests.client_compat.client import DEADLINE_S, Record
from tests.client_compat.kafka_python_client import KafkaPythonClient
from tests.client_compat.servers import Server
from tests.support.eventually import eventually

KAFKA_PYTHON = KafkaPythonClient()


def numbered(count: int) -> list[Record]:
    return [Record(value=b"%d" % number) for number in range(count)]


def test_it_takes_the_broker_for_a_current_kafka(server: Server) -> None:
    """It infers the version from the APIs that are advertised, and picks its requests by that."""
    producer = KafkaProducer(bootstrap_servers=server.bootstrap)
    inferred = producer.config["api_version"]
    producer.close()

    assert inferred >= (4, 0)


def test_a_send_returns_where_the_record_is(server: Server, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=server.bootstrap)
    try:
        found = [producer.send(topic, b"x", timestamp_ms=1_700_000_000_000).get(DEADLINE_S) for _ in range(3)]
    finally:
        producer.close()

    assert [(place.topic, place.partition, place.offset) for place in found] == [(topic, 0, n) for n in range(3)]
    assert {place.timestamp for place in found} == {1_700_000_000_000}


def test_iterating_ends_when_nothing_comes(server: Server, topic: str) -> None:
    KAFKA_PYTHON.produce(server.bootstrap, topic, numbered(10))
    consumer = KafkaConsumer(bootstrap_servers=server.bootstrap, consumer_timeout_ms=1000)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek(TopicPartition(topic, 0), 4)

    read: list[int] = []

    def everything_is_read() -> bool:
        # It ends by itself each time; on a busy machine the first records may take longer than it waits.
        read.extend(record.offset for record in consumer)
        return len(read) >= 6

    eventually(everything_is_read, "all records")
    consumer.close()

    assert read == [4, 5, 6, 7, 8, 9]


def test_one_consumer_on_many_partitions(server: Server, topic: str) -> None:
    KAFKA_PYTHON.create_topic(server.bootstrap, topic, 8)
    for partition in range(8):
        KAFKA_PYTHON.produce(server.bootstrap, topic, [Record(value=b"in %d" % partition)], partition)
    consumer = KafkaConsumer(bootstrap_servers=server.bootstrap)
    try:
        partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        read: dict[int, list[bytes]] = {}

        def everything_is_read() -> bool:
            for partition, records in consumer.poll(timeout_ms=500).items():
                read.setdefault(partition.partition, []).extend(record.value for record in records)
            return len(read) == 8

        eventually(everything_is_read, "a record of each partition")
    finally:
        consumer.close()

    assert read == {partition: [b"in %d" % partition] for partition in range(8)}


def test_a_record_above_the_limit_of_its_topic_is_refused(server: Server, topic: str) -> None:
    KAFKA_PYTHON.create_topic(server.bootstrap, topic, 1, {"max.message.bytes": "1000"})
    KAFKA_PYTHON.produce(server.bootstrap, topic, [Record(value=b"fits")])

    with pytest.raises(MessageSizeTooLargeError):
        KAFKA_PYTHON.produce(server.bootstrap, topic, [Record(value=bytes(1001))])

    assert KAFKA_PYTHON.watermarks(server.bootstrap, topic) == (0, 1)


def test_admin_describes_the_cluster_and_deletes_records(server: Server, topic: str) -> None:
    KAFKA_PYTHON.produce(server.bootstrap, topic, numbered(10))
    with KafkaAdminClient(bootstrap_servers=server.bootstrap) as admin:
        cluster = admin.describe_cluster()
        admin.delete_records({TopicPartition(topic, 0): 6})

    assert [f"{broker['host']}:{broker['port']}" for broker in cluster["brokers"]] == [server.bootstrap]
    assert KAFKA_PYTHON.watermarks(server.bootstrap, topic) == (6, 10)
