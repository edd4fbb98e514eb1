"""Record batches that must not be stored: Kafka's error for each, and what was stored before stays.

What Apache Kafka answers stands in the table; the test marked `real` asks it.
"""

from __future__ import annotations

import dataclasses
import struct
import time
import uuid
from collections.abc import Callable
from functools import partial

import pytest
from google_crc32c import value as crc32c

from holdfast.wire.apis.fetch import FETCH, FetchTopic
from holdfast.wire.apis.produce import TopicProduceData
from holdfast.wire.compression import Codec
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.records import Record, encode_batch
from tests.broker.expected_log import ExpectedLog
from tests.broker.wire_client import WireClient, batch, decoded, fetch_request, produce_request
from tests.support.apache_kafka import ApacheKafka
from tests.support.eventually import eventually
from tests.support.fixtures import apache_kafka, apache_kafka_distribution
from tests.support.holdfast_broker import HoldfastBroker

__all__ = ["apache_kafka", "apache_kafka_distribution"]

MAX_MESSAGE_BYTES = 1_048_588
COMPRESSED = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)


def changed(position: int, content: bytes, original: bytes | None = None) -> bytes:
    """A batch in which some bytes are others, under its old CRC."""
    data = bytearray(original or batch(b"one"))
    data[position : position + len(content)] = content
    return bytes(data)


def with_crc(data: bytes) -> bytes:
    """The same under the CRC that belongs to it."""
    return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]


def of_size(size: int) -> bytes:
    """A batch of exactly `size` bytes."""
    overhead = len(batch(bytes(size - 100))) - (size - 100)
    data = batch(bytes(size - overhead))
    assert len(data) == size
    return data


def garbled(codec: Codec) -> bytes:
    """A batch that says it is compressed, under the CRC that belongs to it, and does not unpack."""
    data = batch(b"\xde\xad\xbe\xef" * 20)
    return with_crc(changed(21, struct.pack(">h", codec), data))


def garbled_and_late(codec: Codec) -> bytes:
    """The same with a base timestamp above the largest one, for which the broker looks into the records."""
    return with_crc(changed(35, struct.pack(">q", 5), garbled(codec)))


def keyed(size: int) -> bytes:
    """A batch of one record that unpacks to a little more than that."""
    return encode_batch([Record(0, int(time.time() * 1000), b"key", bytes(size))], compression=Codec.ZSTD)


@dataclasses.dataclass(frozen=True)
class Case:
    records: Callable[[], bytes]
    error: int
    version: int = 9
    #: What Kafka answers where we know better.
    kafka: int | None = None


CASES = {
    "wrong CRC": Case(lambda: changed(65, b"\xff\xff"), ErrorCode.CORRUPT_MESSAGE),
    "wrong CRC, v7": Case(lambda: changed(65, b"\xff\xff"), ErrorCode.CORRUPT_MESSAGE, version=7),
    "one byte above max.message.bytes": Case(lambda: of_size(MAX_MESSAGE_BYTES + 1), ErrorCode.MESSAGE_TOO_LARGE),
    "far above max.message.bytes": Case(lambda: of_size(1_200_000), ErrorCode.MESSAGE_TOO_LARGE),
    "two batches": Case(lambda: batch(b"one") + batch(b"two"), ErrorCode.INVALID_RECORD),
    "no bytes": Case(lambda: b"", ErrorCode.INVALID_RECORD),
    "ten bytes": Case(lambda: batch(b"one")[:10], ErrorCode.INVALID_RECORD),
    "magic 0": Case(lambda: changed(16, b"\x00"), ErrorCode.INVALID_RECORD),
    "magic 1": Case(lambda: changed(16, b"\x01"), ErrorCode.INVALID_RECORD),
    "magic 3": Case(lambda: changed(16, b"\x03"), ErrorCode.CORRUPT_MESSAGE),
    "cut in the records": Case(lambda: batch(b"a longer value")[:-5], ErrorCode.INVALID_RECORD),
    "length past the end": Case(lambda: changed(8, struct.pack(">i", 5000)), ErrorCode.INVALID_RECORD),
    # Kafka's sum of length and overhead overflows here.
    "length of 2^31-1": Case(lambda: changed(8, struct.pack(">i", 2**31 - 1)), ErrorCode.INVALID_RECORD, kafka=-1),
    "negative length": Case(lambda: changed(8, struct.pack(">i", -1)), ErrorCode.CORRUPT_MESSAGE),
    "base offset 5": Case(lambda: changed(0, struct.pack(">q", 5)), ErrorCode.INVALID_RECORD),
    "count above the records": Case(
        lambda: with_crc(changed(57, struct.pack(">i", 2**31 - 1))), ErrorCode.INVALID_RECORD
    ),
    "last offset delta above the count": Case(
        lambda: with_crc(changed(23, struct.pack(">i", 1000))), ErrorCode.INVALID_RECORD
    ),
    "a control batch": Case(lambda: batch(b"one", control=True), ErrorCode.INVALID_RECORD),
    "a sequence of -1 with a producer id": Case(
        lambda: batch(b"one", producer_id=77, producer_epoch=0), ErrorCode.INVALID_RECORD
    ),
    "two hours ahead": Case(
        lambda: with_crc(changed(27, struct.pack(">qq", 4_000_000_000_000, 4_000_000_000_000))),
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "zstd below v7": Case(
        lambda: batch(b"one", compression=Codec.ZSTD), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, version=6
    ),
    **{
        f"{codec.name} that does not unpack": Case(partial(garbled_and_late, codec), ErrorCode.INVALID_RECORD, kafka=-1)
        for codec in COMPRESSED
    },
}
FEWER_THAN_COUNTED = with_crc(changed(23, struct.pack(">i", 1), changed(57, struct.pack(">i", 2), batch(b"x" * 30))))


def refusal(client: WireClient, topic: str, case: Case) -> tuple[int, int]:
    answer = client.produce(topic, case.records(), version=case.version)
    return answer.error_code, answer.base_offset


def test_the_records_inside_a_batch_are_not_opened(broker: HoldfastBroker) -> None:
    # docs/differences.md 5: Kafka walks the records and answers INVALID_RECORD. When this changes, so must the page.
    with WireClient(broker.address) as client:
        client.create_topic("unopened")
        assert client.produce("unopened", FEWER_THAN_COUNTED).error_code == ErrorCode.NONE


@pytest.mark.parametrize("name", CASES)
def test_a_bad_batch_is_refused_and_nothing_stored_is_lost(
    name: str, broker: HoldfastBroker, expected_log: ExpectedLog
) -> None:
    topic = f"bad-{uuid.uuid4().hex}"
    with WireClient(broker.address) as client:
        client.create_topic(topic)
        assert client.produce(topic, batch(b"before")).error_code == 0

        with expected_log.is_logged_in(0):
            assert refusal(client, topic, CASES[name]) == (CASES[name].error, -1)

        assert client.produce(topic, batch(b"after")).base_offset == 1
        assert [record.value for record in client.fetch_all(topic)] == [b"before", b"after"]


@pytest.mark.parametrize(
    "unpackable",
    [*(partial(garbled, codec) for codec in COMPRESSED), partial(keyed, 70 << 20)],
    ids=[*(codec.name for codec in COMPRESSED), "70 MiB"],
)
def test_a_compacted_topic_refuses_what_does_not_unpack(
    unpackable: Callable[[], bytes], broker: HoldfastBroker, expected_log: ExpectedLog
) -> None:
    topic = f"compacted-{uuid.uuid4().hex}"
    with WireClient(broker.address) as client, expected_log.is_logged_in(0):
        client.create_topic(topic, cleanup_policy="compact")

        answer = client.produce(topic, unpackable())

        assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
        assert client.produce(topic, keyed(1)).error_code == 0


def test_a_batch_that_does_not_unpack_leaves_the_others_of_its_request_alone(broker: HoldfastBroker) -> None:
    # given a reader that waits for the good one
    good, bad = f"good-{uuid.uuid4().hex}", f"bad-{uuid.uuid4().hex}"
    with WireClient(broker.address) as reader, WireClient(broker.address) as client:
        client.create_topic(good)
        client.create_topic(bad, cleanup_policy="compact")
        reader.send(fetch_request(good, max_wait_ms=60_000), 12)

        # when
        request = produce_request(good, batch(b"good"))
        request.topic_data += produce_request(bad, garbled(Codec.ZSTD)).topic_data
        answers = client.ask(request, 9).responses

        # then
        codes = [answer.partition_responses[0].error_code for answer in answers]
        assert codes == [ErrorCode.NONE, ErrorCode.INVALID_RECORD]
        (found,) = reader.receive(FETCH, 12)[1].responses[0].partitions
        assert [record.value for record in decoded(bytes(found.records))] == [b"good"]


@pytest.mark.real
def test_apache_kafka_refuses_them_just_so(apache_kafka: ApacheKafka) -> None:
    topic = f"bad-{uuid.uuid4().hex}"
    answers = {}
    with WireClient(apache_kafka.address) as client:
        client.create_topic(topic)
        eventually(lambda: client.produce(topic, batch(b"good")).error_code == 0, "Kafka leads the new partition")
        for name, case in CASES.items():
            answers[name] = refusal(client, topic, case)

    assert answers == {name: (case.error if case.kafka is None else case.kafka, -1) for name, case in CASES.items()}


def test_a_batch_of_exactly_max_message_bytes_is_stored(broker: HoldfastBroker, expected_log: ExpectedLog) -> None:
    with expected_log.is_logged_in(0), WireClient(broker.address) as client:
        client.create_topic("largest")

        assert client.produce("largest", of_size(MAX_MESSAGE_BYTES)).error_code == 0


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_acks_that_do_not_exist_are_refused(acks: int, broker: HoldfastBroker, expected_log: ExpectedLog) -> None:
    topic = f"acks-{uuid.uuid4().hex}"
    with expected_log.is_logged_in(0), WireClient(broker.address) as client:
        client.create_topic(topic)

        assert client.produce(topic, batch(b"x"), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS
        assert client.fetch_all(topic) == []


def test_unknown_topics_partitions_and_ids_are_named(broker: HoldfastBroker, expected_log: ExpectedLog) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    unused_topic_id = uuid.uuid4().bytes
    with expected_log.is_logged_in(0), WireClient(broker.address) as client:
        client.create_topic("known")

        assert client.produce("never-made", batch(b"x")).error_code == unknown
        for partition in (1, -1, 2**31 - 1, -(2**31)):
            request = produce_request("known", batch(b"x"), partition=partition)
            assert client.ask(request, 9).responses[0].partition_responses[0].error_code == unknown
            reading = fetch_request("known", partition=partition)
            assert client.ask(reading, 12).responses[0].partitions[0].error_code == unknown
        by_id = produce_request("", batch(b"x"))
        by_id.topic_data = [
            TopicProduceData(topic_id=unused_topic_id, partition_data=by_id.topic_data[0].partition_data)
        ]
        assert client.ask(by_id, 13).responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        reading = fetch_request("")
        reading.topics = [FetchTopic(topic_id=unused_topic_id, partitions=reading.topics[0].partitions)]
        assert client.ask(reading, 13).responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("offset", [-1, 2, 2**63 - 1, -(2**63)])
def test_an_offset_out_of_range_is_answered_at_once(
    offset: int, broker: HoldfastBroker, expected_log: ExpectedLog
) -> None:
    topic = f"range-{uuid.uuid4().hex}"
    with expected_log.is_logged_in(0), WireClient(broker.address) as client:
        client.create_topic(topic)
        client.produce(topic, batch(b"only"))

        answer = client.ask(fetch_request(topic, offset, max_wait_ms=60_000), 12).responses[0].partitions[0]

        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def fetch_of_more_than_fits(address: tuple[str, int]) -> int:
    topic = f"minimum-{uuid.uuid4().hex}"
    with WireClient(address) as client:
        client.create_topic(topic)
        for _ in range(3):
            # Kafka answers CreateTopics before the new topic takes records.
            eventually(lambda: client.produce(topic, batch(bytes(1000))).error_code == ErrorCode.NONE, "it is stored")
        client.socket.settimeout(30)
        response = client.ask(fetch_request(topic, 0, max_wait_ms=60_000, min_bytes=1_000_000, max_bytes=1500), 12)
        return len(response.responses[0].partitions[0].records)


def test_a_fetch_is_answered_when_it_has_all_that_max_bytes_allows(broker: HoldfastBroker) -> None:
    """A reader with fetch.min.bytes above fetch.max.bytes must not wait for what cannot come."""
    assert fetch_of_more_than_fits(broker.address) >= 1000


@pytest.mark.real
def test_apache_kafka_answers_such_a_fetch_just_so(apache_kafka: ApacheKafka) -> None:
    assert fetch_of_more_than_fits(apache_kafka.address) >= 1000


@pytest.mark.parametrize("max_bytes", [0, -1, -(2**31)])
def test_a_fetch_of_no_bytes_still_gets_one_batch(
    max_bytes: int, broker: HoldfastBroker, expected_log: ExpectedLog
) -> None:
    topic = f"one-{uuid.uuid4().hex}"
    with expected_log.is_logged_in(0), WireClient(broker.address) as client:
        client.create_topic(topic)
        client.produce(topic, batch(b"a", b"b"))

        response = client.ask(fetch_request(topic, 0, max_bytes=max_bytes), 12)

        assert len(response.responses[0].partitions[0].records) == len(batch(b"a", b"b"))
