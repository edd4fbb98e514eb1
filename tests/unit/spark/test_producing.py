"""What an executor does with the rows of a task, against a real broker and without Spark."""

import os
import struct
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka.partitioner.default import murmur2

from holdfast.client.errors import ConfigError, ConnectionFailed, HoldfastError, RequestTimedOut, TopicError
from holdfast.spark import producing
from holdfast.spark.write_options import ProducerSettings, write_options
from tests.client_compat.servers import Server
from tests.support.holdfast_broker import HoldfastBroker

PATIENCE_S = 30
PRODUCER_ID = struct.Struct(">q")
PRODUCER_ID_AT = 43
LENGTH_AT = 8


@pytest.fixture
def broker(quick_holdfast: HoldfastBroker) -> HoldfastBroker:
    return quick_holdfast


@pytest.fixture
def topic(broker: HoldfastBroker) -> str:
    return new_topic(broker)


def new_topic(broker: Server, partitions: int = 3, **config: str) -> str:
    name = f"t-{uuid.uuid4().hex[:12]}"
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(timeout=PATIENCE_S)
    return name


def settings(broker: Server, **given: str) -> ProducerSettings:
    kafka = {f"kafka.{name.replace('_', '.')}": value for name, value in given.items()}
    return write_options({"kafka.bootstrap.servers": broker.bootstrap} | kafka).producer


def rows(**columns: Any) -> pa.RecordBatch:
    types = {
        "topic": pa.string(),
        "partition": pa.int32(),
        "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    }
    return pa.record_batch(
        {
            name: values if isinstance(values, pa.Array) else pa.array(values, types.get(name, pa.string()))
            for name, values in columns.items()
        }
    )


def stored(broker: Server, topic: str) -> list[Any]:
    """All messages of the topic, by partition and offset."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "nobody", "enable.auto.commit": False}
    )
    try:
        partitions = consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
        ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=PATIENCE_S)[1] for p in partitions}
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        found: list[Any] = []
        while len(found) < sum(ends.values()):
            got = consumer.consume(sum(ends.values()) - len(found), timeout=PATIENCE_S)
            assert got, f"{len(found)} of {sum(ends.values())} records read, and no more came"
            found += got
        assert not [message.error() for message in found if message.error()]
        return sorted(found, key=lambda message: (message.partition(), message.offset()))
    finally:
        consumer.close()


def values(messages: Sequence[Any]) -> list[bytes]:
    return [message.value() for message in messages]


def producer_ids(broker: Server, topic: str, partition: int = 0) -> list[int]:
    """Of each batch in the partition's first segment, which both brokers keep in Kafka's format."""
    data = (broker.data_dir / f"{topic}-{partition}" / f"{0:020}.log").read_bytes()
    found, at = [], 0
    while at < len(data):
        found.append(PRODUCER_ID.unpack_from(data, at + PRODUCER_ID_AT)[0])
        at += 12 + int.from_bytes(data[at + LENGTH_AT : at + 12])
    return found


# -- what arrives ------------------------------------------------------------------------------------------------------


def test_every_column_arrives(broker: HoldfastBroker, topic: str) -> None:
    other = new_topic(broker)
    batch = rows(
        topic=[topic, other, topic],
        partition=[2, 1, 2],
        key=["k", None, ""],
        value=["äö", "w", None],
        headers=[[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None, []],
    )

    sent = producing.write([batch], settings(broker), None)

    assert sent == (3, 1 + len("äö".encode()) + 1)
    first, last = stored(broker, topic)
    assert (first.partition(), first.key(), first.value()) == (2, b"k", "äö".encode())
    assert first.headers() == [("a", b"1"), ("a", None)]
    assert (last.partition(), last.key(), last.value(), last.headers()) == (2, b"", None, None)
    (elsewhere,) = stored(broker, other)
    assert (elsewhere.partition(), elsewhere.key(), elsewhere.value()) == (1, None, b"w")


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_text_and_bytes_in_all_that_spark_makes_of_them(broker: HoldfastBroker, topic: str, kind: pa.DataType) -> None:
    batch = rows(value=pa.array(["ä", None, "b"], pa.string()).cast(kind), partition=[0, 0, 0])

    producing.write([batch], settings(broker), topic)

    assert values(stored(broker, topic)) == ["ä".encode(), None, b"b"]


def test_the_given_topic_wins_over_the_column(broker: HoldfastBroker, topic: str) -> None:
    producing.write([rows(topic=["never-made", None], value=["1", "2"])], settings(broker), topic)

    assert sorted(values(stored(broker, topic))) == [b"1", b"2"]


def test_a_key_is_written_to_the_partition_that_java_chooses(broker: HoldfastBroker, topic: str) -> None:
    keys = [f"customer-{number}" for number in range(50)]

    producing.write([rows(key=keys, value=keys)], settings(broker), topic)

    placed = {message.key(): message.partition() for message in stored(broker, topic)}
    # kafka-python's port of Java's hash, which nobody here wrote.
    assert placed == {key.encode(): (murmur2(key.encode()) & 0x7FFFFFFF) % 3 for key in keys}
    assert len(set(placed.values())) == 3


def test_no_rows_need_no_broker() -> None:
    nowhere = write_options({"kafka.bootstrap.servers": "127.0.0.1:1"}).producer

    assert producing.write([], nowhere, "orders") == (0, 0)
    assert producing.write([rows(value=[])], nowhere, "orders") == (0, 0)


def test_a_full_queue_neither_loses_nor_reorders(broker: HoldfastBroker, topic: str) -> None:
    numbers = [str(number).encode() for number in range(5_000)]
    narrow = settings(broker, queue_buffering_max_messages="10")
    control = confluent_kafka.Producer(narrow.librdkafka)
    with pytest.raises(BufferError):  # the queue really is too small for them
        for number in numbers:
            control.produce(topic, number, partition=1)
    control.purge()

    sent = producing.write([rows(value=numbers, partition=[0] * len(numbers))], narrow, topic)

    assert sent.records == len(numbers)
    assert [message.value() for message in stored(broker, topic) if message.partition() == 0] == numbers


# -- producers are kept ------------------------------------------------------------------------------------------------


def test_tasks_of_a_process_use_one_idempotent_producer(broker: HoldfastBroker, topic: str) -> None:
    for value in ("1", "2"):
        producing.write([rows(value=[value], partition=[0])], settings(broker), topic)
    producing.write([rows(value=["3"], partition=[0])], settings(broker, client_id="another"), topic)

    first, second, third = producer_ids(broker, topic)
    assert first == second != third
    assert first >= 0  # which is what makes it idempotent


def test_a_task_that_fails_takes_its_producer_with_it(broker: HoldfastBroker, topic: str) -> None:
    producing.write([rows(value=["1"], partition=[0])], settings(broker), topic)
    with pytest.raises(TopicError):
        producing.write([rows(value=["2", "3"], partition=[0, 77])], settings(broker), topic)
    producing.write([rows(value=["4"], partition=[0])], settings(broker), topic)

    ids = producer_ids(broker, topic)
    assert ids[0] != ids[-1]
    assert values(stored(broker, topic))[-1] == b"4"


def test_a_forked_process_makes_a_producer_of_its_own(broker: HoldfastBroker, topic: str) -> None:
    of_both = settings(broker, delivery_timeout_ms="30000")
    producing.write([rows(value=["parent"], partition=[0])], of_both, topic)

    child = os.fork()
    if child == 0:  # where the parent's producer has no threads, so that it would never send anything
        code = 1
        try:
            producing.write([rows(value=["child"], partition=[0])], of_both, topic)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert values(stored(broker, topic)) == [b"parent", b"child"]


# -- what goes wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "error", "said"),
    [
        (rows(topic=[None], value=["1"]), TopicError, "the column topic is null in a row"),
        (rows(topic=["t"], value=["1"], partition=[-1]), TopicError, "the column partition is -1 in a row"),
        (
            rows(topic=["t"], value=["1"], headers=[[{"key": None, "value": b""}]]),
            HoldfastError,
            "the column headers has a header without a key",
        ),
    ],
)
def test_a_row_that_cannot_be_written_is_reported_before_anything_is_sent(
    batch: pa.RecordBatch, error: type[HoldfastError], said: str
) -> None:
    nowhere = write_options({"kafka.bootstrap.servers": "127.0.0.1:1"}).producer

    with pytest.raises(error, match=said):
        producing.write([batch], nowhere, None)


def test_a_partition_that_does_not_exist(broker: HoldfastBroker, topic: str) -> None:
    with pytest.raises(TopicError) as failed:
        producing.write([rows(value=["1"], partition=[77])], settings(broker), topic)

    assert f"topic {topic}: it has no partition 77" in str(failed.value)


def test_a_topic_that_does_not_exist_where_none_is_made_unasked() -> None:
    with HoldfastBroker({"auto.create.topics.enable": "false"}) as strict:
        topic = new_topic(strict, 1)
        hurried = settings(strict, topic_metadata_propagation_max_ms="200")

        with pytest.raises(TopicError) as failed:
            producing.write([rows(topic=[topic, "never-made"], value=["1", "2"])], hurried, None)

        assert str(failed.value) == (
            "topic never-made: it does not exist, create it or give the option topic; "
            "1 of the task's 2 records so far failed"
        )
        assert values(stored(strict, topic)) == [b"1"]


def test_a_record_that_the_producer_finds_too_large(broker: HoldfastBroker, topic: str) -> None:
    with pytest.raises(TopicError) as failed:
        producing.write([rows(value=["1", "x" * 2_000_000])], settings(broker), topic)

    said = str(failed.value)
    assert f"topic {topic}: a record of 2000000 bytes is larger than may be sent or stored" in said
    assert "max.message.bytes of the topic" in said
    assert "option kafka.message.max.bytes, which is 1000000; the task had sent 1 records before it" in said


def test_a_record_that_the_topic_finds_too_large_and_the_ones_beside_it(broker: HoldfastBroker) -> None:
    small = new_topic(broker, 2, max_message_bytes="2000")
    batch = rows(value=["a", "x" * 50_000], partition=[0, 1])

    with pytest.raises(TopicError) as failed:
        producing.write([batch], settings(broker), small)

    said = str(failed.value)
    assert f"topic {small}: a record is larger than may be sent or stored, raise max.message.bytes" in said
    assert said.endswith("1 of the task's 2 records so far failed")
    assert values(stored(broker, small)) == [b"a"]  # it was acknowledged, and cannot be taken back


def test_a_write_without_a_reachable_broker_names_the_options() -> None:
    nowhere = write_options({"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.max.block.ms": "6500"}).producer

    with pytest.raises(ConnectionFailed) as failed:
        producing.write([rows(value=["1"])], nowhere, "orders")

    said = str(failed.value)
    assert (
        "no broker of option kafka.bootstrap.servers, 127.0.0.1:1, answered within 6.5 s (option kafka.max.block.ms)"
        in said
    )
    assert "Connection refused" in said


def test_certificates_that_the_executor_does_not_have(broker: HoldfastBroker) -> None:
    guarded = settings(broker, security_protocol="SSL", ssl_ca_location="/not/here.pem")

    with pytest.raises(ConfigError, match=r"fail on this executor: ssl.ca.location failed"):
        producing.write([rows(value=["1"])], guarded, "orders")


@pytest.fixture
def mortal() -> Iterator[HoldfastBroker]:
    with HoldfastBroker() as broker:
        yield broker


def test_a_task_succeeds_only_when_all_is_acknowledged(mortal: HoldfastBroker) -> None:
    topic = new_topic(mortal, 1)
    patient_for_a_while = settings(mortal, delivery_timeout_ms="8500")
    producing.write([rows(value=["before"])], patient_for_a_while, topic)

    mortal.kill()
    with pytest.raises(RequestTimedOut) as failed:
        producing.write([rows(value=["1", "2", "3"])], patient_for_a_while, topic)
    mortal.start()
    producing.write([rows(value=["after"])], patient_for_a_while, topic)

    said = str(failed.value)
    assert f"topic {topic}: not acknowledged within kafka.delivery.timeout.ms, 8.5 s: " in said
    assert said.endswith("3 of the task's 3 records so far failed")
    assert values(stored(mortal, topic)) == [b"before", b"after"]
