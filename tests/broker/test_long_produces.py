"""Batches whose records must be looked at, as many as a producer can claim: nobody else waits for that."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator

import pytest
from google_crc32c import value as crc32c

from holdfast.wire.apis.api_versions import ApiVersionsRequest
from holdfast.wire.apis.fetch import FETCH
from holdfast.wire.apis.produce import PRODUCE, PartitionProduceData, TopicProduceData
from holdfast.wire.batch import CRC_START, LENGTH_OVERHEAD, MAGIC, MAX_RECORDS
from holdfast.wire.compression import Codec, compress
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.records import Record, encode_batch
from tests.broker.wire_client import WireClient, batch, fetch_request, produce_request
from tests.support.apache_kafka import ApacheKafka
from tests.support.eventually import eventually
from tests.support.fixtures import apache_kafka, apache_kafka_distribution
from tests.support.watched_broker import WatchedBroker

__all__ = ["apache_kafka", "apache_kafka_distribution"]

BOUND_S = 0.05
MANY = 450_000
KEYED_RECORD = bytes.fromhex("0c 00 00 00 00 01 00")
KEYLESS_RECORD = bytes.fromhex("0c 00 00 00 01 01 00")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedBroker]:
    with WatchedBroker(tmp_path_factory.mktemp("watched")) as broker:
        yield broker


def claiming(
    count: int, record: bytes = KEYED_RECORD, *, records: int | None = None, max_timestamp: int | None = None
) -> bytes:
    """A batch of a few hundred bytes that says it holds `count` records, and does unless `records` says otherwise."""
    now = int(time.time() * 1000)
    packed = compress(Codec.ZSTD, record * (count if records is None else records))
    latest = now if max_timestamp is None else max_timestamp
    head = struct.pack(">qiibIhiqqqhii", 0, 0, 0, MAGIC, 0, Codec.ZSTD, count - 1, now, latest, -1, -1, -1, count)
    data = bytearray(head + packed)
    struct.pack_into(">i", data, LENGTH_OVERHEAD - 4, len(data) - LENGTH_OVERHEAD)
    struct.pack_into(">I", data, CRC_START - 4, crc32c(bytes(data[CRC_START:])))
    assert len(data) < 1_000
    return bytes(data)


@pytest.mark.parametrize("kind", ["compacted", "no maximum timestamp"])
def test_others_are_served_while_many_records_are_looked_at(kind: str, watched: WatchedBroker) -> None:
    topic = f"many-{kind.replace(' ', '-')}"
    settings = {"cleanup_policy": "compact"} if kind == "compacted" else {}
    with WireClient(watched.address) as client, WireClient(watched.address) as other:
        client.create_topic(topic, partitions=20, **settings)
        request = produce_request(topic, b"")
        records = claiming(MANY, max_timestamp=None if kind == "compacted" else -1)
        # The worst that fits: one that is looked at in full, and as many as there is room for behind it.
        request.topic_data[0].partition_data = [PartitionProduceData(index, records) for index in range(20)]

        with watched.watch() as longest_round_s:
            client.send(request, 9)
            served = 0
            client.socket.setblocking(False)
            while True:
                try:
                    arrived = client.socket.recv(1, socket.MSG_PEEK)
                    break
                except BlockingIOError:
                    other.ask(ApiVersionsRequest(), 0)
                    served += 1
            client.socket.settimeout(20)
            _, response = client.receive(PRODUCE, 9)
            assert longest_round_s() < BOUND_S

        assert arrived
        assert served > 20, "others are answered in between"
        codes = [answer.error_code for answer in response.responses[0].partition_responses]
        assert codes == [ErrorCode.NONE] + 19 * [ErrorCode.MESSAGE_TOO_LARGE]


def test_a_batch_that_cannot_hold_so_many_records_is_refused_unread(watched: WatchedBroker) -> None:
    with WireClient(watched.address) as client:
        client.create_topic("dishonest", cleanup_policy="compact")
        dishonest = claiming(MANY, records=MANY - 1)

        answer = client.produce("dishonest", dishonest)

        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert answer.error_message is not None
        assert "450000 records cannot be in" in answer.error_message
        assert client.produce("dishonest", claiming(1000)).base_offset == 0, "an honest one is stored"


def test_batches_that_decompress_to_too_much_delay_no_other_client(watched: WatchedBroker) -> None:
    bomb = encode_batch([Record(0, int(time.time() * 1000), b"key", bytes(70 << 20))], compression=Codec.ZSTD)
    with WireClient(watched.address) as client, watched.watch() as longest_round_s:
        client.create_topic("bomb", cleanup_policy="compact")

        assert client.produce("bomb", bomb).error_code == ErrorCode.INVALID_RECORD
        assert longest_round_s() < BOUND_S


def test_a_later_produce_of_the_connection_does_not_overtake(watched: WatchedBroker) -> None:
    """Idempotent: the second would be out of order if it came first."""
    with WireClient(watched.address) as client:
        client.create_topic("ordered", cleanup_policy="compact")
        now = int(time.time() * 1000)
        many = [Record(index, now, b"key", b"value") for index in range(20_000)]
        batches = [
            encode_batch(
                many if sequence == 0 else [Record(0, now, b"key", b"last")],
                compression=Codec.ZSTD,
                producer_id=4711,
                producer_epoch=0,
                base_sequence=sequence,
            )
            for sequence in (0, 20_000, 20_001)
        ]
        requests = [produce_request("ordered", records) for records in batches]
        for request in requests:
            client.send(request, 9)

        answers = [client.receive(PRODUCE, 9)[1].responses[0].partition_responses[0] for request in requests]

        assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, 0), (0, 20_000), (0, 20_001)]


@pytest.mark.parametrize("count", [10, MANY])
def test_acks_0_is_stored_although_the_producer_is_gone(count: int, watched: WatchedBroker) -> None:
    topic = f"gone-{count}"
    with WireClient(watched.address) as client:
        client.create_topic(topic, cleanup_policy="compact")
        with WireClient(watched.address) as producer:
            producer.send(produce_request(topic, claiming(count), acks=0), 9)
            producer.send(produce_request(topic, claiming(10), acks=0), 9)

        def end() -> int:
            answer = client.ask(fetch_request(topic), 12).responses[0].partitions[0]
            return int(answer.high_watermark)

        eventually(lambda: end() == count + 10, "both are stored")


def test_a_reader_is_woken_for_each_partition_when_it_is_stored(watched: WatchedBroker) -> None:
    with WireClient(watched.address) as client, WireClient(watched.address) as reader:
        client.create_topic("first", cleanup_policy="delete")
        client.create_topic("slow", cleanup_policy="compact")
        reader.send(fetch_request("first", max_wait_ms=60_000), 12)
        request = produce_request("first", batch(b"quick"))
        request.topic_data += produce_request("slow", claiming(MAX_RECORDS)).topic_data

        client.send(request, 9)

        assert reader.receive(FETCH, 12)[1].responses[0].partitions[0].high_watermark == 1
        assert [a.partition_responses[0].error_code for a in client.receive(PRODUCE, 9)[1].responses] == [0, 0]


# -- the same partition twice ------------------------------------------------------------------------------------------


def produced_twice(address: tuple[str, int], topic: str) -> list[tuple[list[int], list[tuple[int, int]]]]:
    """For three requests that name partition 0 twice: the partitions answered, and their errors and offsets."""
    found = []
    with WireClient(address) as client:
        client.create_topic(topic, partitions=2)
        eventually(lambda: client.produce(topic, batch(b"zero")).error_code == 0, "the topic takes records")
        twice = [PartitionProduceData(0, batch(b"one")), PartitionProduceData(0, batch(b"two"))]
        in_one = [TopicProduceData(topic, partition_data=twice)]
        in_two = [TopicProduceData(topic, partition_data=[one]) for one in twice]
        unknown = [TopicProduceData(topic, partition_data=[PartitionProduceData(7, batch(b"x"))] * 2)]
        for data in (in_one, in_two, unknown):
            request = produce_request(topic, b"")
            request.topic_data = data
            (answer,) = client.ask(request, 9).responses
            answers = answer.partition_responses
            found.append(([a.index for a in answers], [(a.error_code, a.base_offset) for a in answers]))
        values = [record.value for record in client.fetch_all(topic)]
    assert values == [b"zero", b"two", b"two"], "the last one counts"
    return found


TWICE = [([0], [(0, 1)]), ([0], [(0, 2)]), ([7], [(3, -1)])]


def test_a_partition_that_is_named_twice_is_written_once(watched: WatchedBroker) -> None:
    assert produced_twice(watched.address, "twice") == TWICE


@pytest.mark.real
def test_apache_kafka_writes_it_once_too(apache_kafka: ApacheKafka) -> None:
    assert produced_twice(apache_kafka.address, "twice") == TWICE


# -- the bad records are named (KIP-467) -------------------------------------------------------------------------------


def refused(address: tuple[str, int], topic: str, codec: Codec, version: int) -> tuple[object, ...]:
    now = int(time.time() * 1000)
    records = [Record(index, now, None if index % 10 == 3 else b"key", b"value") for index in range(100)]
    with WireClient(address) as client:
        answer = client.produce(topic, encode_batch(records, compression=codec), version=version)
        stored = client.produce(topic, encode_batch([records[0]], compression=codec), version=version)
    assert stored.error_code == 0, "those with a key are taken"
    named = [(error.batch_index, error.batch_index_error_message) for error in answer.record_errors]
    return answer.error_code, answer.base_offset, answer.log_start_offset, answer.error_message, named


def named(topic: str) -> tuple[object, ...]:
    message = f"Compacted topic cannot accept message without key in topic partition {topic}-0"
    first = ", ".join(f"RecordError(batchIndex={index}, message='{message}')" for index in (3, 13, 23))
    summary = (
        "One or more records have been rejected due to 10 record errors in total, "
        f"and only showing the first three errors at most: [{first}]"
    )
    return ErrorCode.INVALID_RECORD, -1, 0, summary, [(index, message) for index in range(3, 100, 10)]


def as_before_v8(answer: tuple[object, ...]) -> tuple[object, ...]:
    return (*answer[:3], None, [])


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_the_records_without_a_key_are_named(codec: Codec, watched: WatchedBroker) -> None:
    topic = f"keyless-{codec.name}"
    with WireClient(watched.address) as client:
        client.create_topic(topic, cleanup_policy="compact")

    assert refused(watched.address, topic, codec, 9) == named(topic)
    assert refused(watched.address, topic, codec, 7) == as_before_v8(named(topic))


@pytest.mark.real
def test_apache_kafka_names_them_just_so(apache_kafka: ApacheKafka) -> None:
    with WireClient(apache_kafka.address) as client:
        client.create_topic("keyless", cleanup_policy="compact")
        keyed = encode_batch([Record(0, int(time.time() * 1000), b"key", b"value")])
        eventually(lambda: client.produce("keyless", keyed).error_code == 0, "the topic takes records")

    for codec in (Codec.NONE, Codec.ZSTD):
        assert refused(apache_kafka.address, "keyless", codec, 9) == named("keyless")
        assert refused(apache_kafka.address, "keyless", codec, 7) == as_before_v8(named("keyless"))


def of_another_time(address: tuple[str, int], topic: str) -> tuple[object, ...]:
    now = int(time.time() * 1000)
    records = [Record(index, now + (10**10 if index == 3 else 0), b"key", b"value") for index in range(5)]
    with WireClient(address) as client:
        client.create_topic(topic)
        eventually(lambda: client.produce(topic, batch(b"good")).error_code == 0, "the topic takes records")
        answer = client.produce(topic, encode_batch(records))
    ((index, message),) = [(error.batch_index, error.batch_index_error_message) for error in answer.record_errors]
    assert message is not None
    beginning = message[: message.index(" The timestamp should")].replace(str(now + 10**10), "then")
    return answer.error_code, answer.error_message, index, beginning


UNTIMELY = (
    ErrorCode.INVALID_TIMESTAMP,
    "One or more records have been rejected due to invalid timestamp",
    3,
    "Timestamp then of message with offset 3 is out of range.",
)


def test_the_records_of_another_time_are_named(watched: WatchedBroker) -> None:
    assert of_another_time(watched.address, "untimely") == UNTIMELY


@pytest.mark.real
def test_apache_kafka_names_those_too(apache_kafka: ApacheKafka) -> None:
    assert of_another_time(apache_kafka.address, "untimely") == UNTIMELY


def test_a_batch_of_nothing_but_bad_records_is_answered_in_bounds(watched: WatchedBroker) -> None:
    with WireClient(watched.address) as client:
        client.create_topic("all-bad", cleanup_policy="compact")

        with watched.watch() as longest_round_s:
            answer = client.produce("all-bad", claiming(MANY, KEYLESS_RECORD))
            assert longest_round_s() < BOUND_S

        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert len(answer.record_errors) == 10_000
