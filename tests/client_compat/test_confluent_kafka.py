"""What confluent-kafka can do and the others cannot, or do differently."""

import threading
from collections import defaultdict
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # public by its documentation

from tests.client_compat.client import DEADLINE_S, Client, Record, read
from tests.client_compat.confluent_client import ConfluentClient
from tests.client_compat.errors import MESSAGE_TOO_LARGE, UNKNOWN_TOPIC_OR_PARTITION
from tests.client_compat.servers import Server

CONFLUENT = ConfluentClient()


def test_null_headers_and_records_of_nothing(server: Server, clients: list[Client], topic: str) -> None:
    records = [Record(value=b"v", headers=(("null", None), ("set", b"1"), ("null", None))), Record(value=None)]

    CONFLUENT.produce(server.bootstrap, topic, records)

    for reader in clients:
        stored = read(reader, server.bootstrap, topic, 2)
        assert [Record(record.value, record.key, record.headers) for record in stored] == records, reader.name


@pytest.mark.parametrize("idempotent", [False, True])
def test_many_records_over_many_partitions_keep_their_order(server: Server, topic: str, idempotent: bool) -> None:
    partitions, count = 6, 12_000
    CONFLUENT.create_topic(server.bootstrap, topic, partitions)
    delivered: dict[int | None, list[int | None]] = defaultdict(list)

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        delivered[message.partition()].append(message.offset())

    producer = Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": idempotent})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % partitions, on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0

    per_partition = count // partitions
    assert delivered == {partition: list(range(per_partition)) for partition in range(partitions)}
    for partition in range(partitions):
        stored = read(CONFLUENT, server.bootstrap, topic, per_partition, partition)
        assert [int(record.value or b"") for record in stored] == list(range(partition, count, partitions))


def test_delivery_reports_have_the_offset_and_the_timestamp(server: Server, topic: str) -> None:
    reports: list[tuple[int | None, tuple[int, int]]] = []
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for timestamp_ms in (1_700_000_000_000, 1_700_000_000_500):
        producer.produce(
            topic, b"x", None, 0, timestamp=timestamp_ms,
            on_delivery=lambda error, message: reports.append((message.offset(), message.timestamp())),
        )  # fmt: skip
        assert producer.flush(DEADLINE_S) == 0

    create_time = 1
    assert reports == [(0, (create_time, 1_700_000_000_000)), (1, (create_time, 1_700_000_000_500))]


def test_a_record_above_the_limit_of_its_topic_is_refused(server: Server, topic: str) -> None:
    CONFLUENT.create_topic(server.bootstrap, topic, 1, {"max.message.bytes": "1000"})
    CONFLUENT.produce(server.bootstrap, topic, [Record(value=b"fits")])

    with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
        CONFLUENT.produce(server.bootstrap, topic, [Record(value=bytes(1001))])

    assert CONFLUENT.watermarks(server.bootstrap, topic) == (0, 1)
    assert KafkaError.MSG_SIZE_TOO_LARGE == MESSAGE_TOO_LARGE


def test_a_consumer_does_not_create_the_topic_it_asks_for(server: Server, topic: str) -> None:
    """Its requests say so: ``allow.auto.create.topics`` is off for consumers, and on for producers."""
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "unused"})
    asked = consumer.list_topics(topic, DEADLINE_S).topics[topic]
    consumer.close()

    assert asked.error is not None
    assert asked.error.code() == UNKNOWN_TOPIC_OR_PARTITION
    assert topic not in CONFLUENT.topics(server.bootstrap)


def test_an_offset_out_of_range_resets_to_the_earliest(server: Server, topic: str) -> None:
    CONFLUENT.produce(server.bootstrap, topic, [Record(value=b"%d" % number) for number in range(5)])
    settings = {
        "bootstrap.servers": server.bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 1_000)])

    message = consumer.poll(DEADLINE_S)
    consumer.close()

    assert message is not None
    assert (message.error(), message.offset(), message.value()) == (None, 0, b"0")


def test_the_end_of_a_partition_is_reported(server: Server, topic: str) -> None:
    CONFLUENT.produce(server.bootstrap, topic, [Record(value=b"only")])
    settings = {"bootstrap.servers": server.bootstrap, "group.id": "unused", "enable.partition.eof": True}
    consumer = Consumer(settings | {"enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])

    first, second = consumer.poll(DEADLINE_S), consumer.poll(DEADLINE_S)
    consumer.close()

    assert first is not None
    assert first.value() == b"only"
    assert second is not None
    error = second.error()
    assert error is not None
    assert (error.code(), second.offset()) == (KafkaError._PARTITION_EOF, 1)


def test_admin_lists_offsets_and_deletes_records(server: Server, topic: str) -> None:
    times = [1_700_000_000_000, 1_700_000_009_000, 1_700_000_001_000]
    CONFLUENT.produce(server.bootstrap, topic, [Record(value=b"x", timestamp_ms=time_ms) for time_ms in times])
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    partition = TopicPartition(topic, 0)
    specs: Any = OffsetSpec  # its methods are not annotated

    def offset(spec: Any) -> tuple[int, int]:
        found = admin.list_offsets({partition: spec})[partition].result(DEADLINE_S)
        return found.offset, found.timestamp

    assert offset(specs.earliest()) == (0, -1)
    assert offset(specs.latest()) == (3, -1)
    assert offset(specs.max_timestamp()) == (1, 1_700_000_009_000)
    assert offset(specs.for_timestamp(1_700_000_000_001)) == (1, 1_700_000_009_000)

    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 2)]).values()

    assert deleted.result(DEADLINE_S).low_watermark == 2
    assert CONFLUENT.watermarks(server.bootstrap, topic) == (2, 3)
    assert read(CONFLUENT, server.bootstrap, topic, 1)[0].offset == 2


def test_admin_describes_the_cluster(server: Server) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})

    cluster = admin.describe_cluster().result(DEADLINE_S)

    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [server.bootstrap]
    assert cluster.controller.id == cluster.nodes[0].id == 1
    assert len(cluster.cluster_id) == 22


def test_producers_in_many_threads(server: Server, topic: str) -> None:
    CONFLUENT.produce(server.bootstrap, topic, [Record(value=b"the topic exists")])
    threads = [
        threading.Thread(
            target=CONFLUENT.produce,
            args=(server.bootstrap, topic, [Record(value=b"%d/%d" % (writer, number)) for number in range(50)]),
        )
        for writer in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    stored = read(CONFLUENT, server.bootstrap, topic, 501)[1:]
    for writer in range(10):
        own = [record.value for record in stored if (record.value or b"").startswith(b"%d/" % writer)]
        assert own == [b"%d/%d" % (writer, number) for number in range(50)]
