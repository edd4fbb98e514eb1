"""Bytes that are no Kafka request: a closed connection, one log line, and nobody else notices.

The same bytes go to a real Apache Kafka in the tests marked `real`; it must end the connection, or answer, alike.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Iterator

import pytest

import holdfast.broker.api.handlers  # noqa: F401  # fills HANDLERS
from holdfast.broker.api.registry import HANDLERS
from holdfast.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from holdfast.wire.apis.init_producer_id import InitProducerIdRequest
from holdfast.wire.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from holdfast.wire.codegen import MAX_ELEMENTS
from holdfast.wire.headers import encode_request
from holdfast.wire.message import encode
from tests.broker.expected_log import ExpectedLog
from tests.broker.wire_client import WireClient, batch, produce_request
from tests.support.apache_kafka import ApacheKafka
from tests.support.fixtures import apache_kafka, apache_kafka_distribution
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.wire_messages import random_message

__all__ = ["apache_kafka", "apache_kafka_distribution"]

REQUEST_MAX_BYTES = 104_857_600


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def request(api_key: int, version: int, body: bytes = b"") -> bytes:
    """A request with header v1, whatever the version wants."""
    return framed(struct.pack(">hhih", api_key, version, 7, 1) + b"x" + body)


TLS_HELLO = bytes.fromhex(
    "16030100c8010000c40303" + "5a" * 32 + "20" + "a5" * 32 + "0026c02bc02fc02cc030cca9cca8c013c014009c009d002f0035"
)

CLOSED_AT_ONCE: dict[str, bytes] = {
    "garbage": random.Random(1).randbytes(4096),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS hello": TLS_HELLO,
    "a length of 2 GB": struct.pack(">i", 2**31 - 1),
    "one byte above the limit": struct.pack(">i", REQUEST_MAX_BYTES + 1),
    "length -1": struct.pack(">i", -1),
    "length -2^31": struct.pack(">i", -(2**31)),
    "length 0": struct.pack(">i", 0),
    "one byte": framed(b"\x00"),
    "header without client id": framed(struct.pack(">hhi", 3, 1, 7)),
    "client id past the end": framed(struct.pack(">hhih", 3, 1, 7, 500) + b"x"),
    "client id of length -2": framed(struct.pack(">hhih", 3, 1, 7, -2)),
    "unknown key 999": request(999, 0),
    "unknown key -1": request(-1, 0),
    "Vote, a controllers' request": request(52, 0),
    "LeaderAndIsr, removed in Kafka 4": request(4, 0),
    "Metadata v99": request(3, 99),
    "Metadata v-1": request(3, -1),
    "ListOffsets v0": request(2, 0),
    "Produce v0": request(0, 0),
    "Produce v1": request(0, 1),
    "Produce v2": request(0, 2),
    "Fetch v0": request(1, 0),
    "Fetch v3": request(1, 3),
    "JoinGroup v99": request(11, 99),
    "Metadata v1 cut in its array": request(3, 1, struct.pack(">i", 1)),
    "Metadata v1 with 2^31-1 topics": request(3, 1, struct.pack(">i", 2**31 - 1)),
    "Metadata v1 with a string past the end": request(3, 1, struct.pack(">ih", 1, 1000) + b"abc"),
    "ApiVersions v99 with garbage for tags": request(18, 99, b"\xff" * 16),
    "ApiVersions v99 cut in its header": framed(struct.pack(">hhi", 18, 99, 7)),
}


@pytest.mark.parametrize("name", CLOSED_AT_ONCE)
def test_what_is_no_request_closes_the_connection(name: str, broker: HoldfastBroker, expected_log: ExpectedLog) -> None:
    with expected_log.is_logged_in(1), WireClient(broker.address) as client:
        client.send_bytes(CLOSED_AT_ONCE[name])

        assert client.is_closed_by_broker()


@pytest.mark.real
def test_apache_kafka_closes_the_connection_just_so(apache_kafka: ApacheKafka) -> None:
    not_closed = []
    for name, data in CLOSED_AT_ONCE.items():
        with WireClient(apache_kafka.address) as client:
            client.send_bytes(data)
            if not client.is_closed_by_broker():
                not_closed.append(name)

    assert not_closed == []


@pytest.mark.parametrize("length", [1, 3, 4, 10, 1000])
def test_a_cut_frame_is_awaited_and_dropped_when_its_sender_disconnects(
    length: int, broker: HoldfastBroker, expected_log: ExpectedLog
) -> None:
    frame = framed(bytes(2000))
    with expected_log.is_logged_in(0):
        with WireClient(broker.address) as client:
            client.send_bytes(frame[:length])

            assert not client.is_closed_by_broker(within_s=0.3), "it may still come"

        with WireClient(broker.address) as client:
            client.ask(ApiVersionsRequest(), 0)


@pytest.mark.parametrize("version", [5, 99, -1])
def test_api_versions_out_of_range_are_answered_in_version_0(
    version: int, broker: HoldfastBroker, expected_log: ExpectedLog
) -> None:
    with expected_log.is_logged_in(0), WireClient(broker.address) as client:
        client.send_bytes(request(18, version, b"\x00\x01\x00"))

        reply = client.receive_frame()

        assert reply == bytes.fromhex("00000007002300000001001200000004")
        assert client.ask(ApiVersionsRequest(), 0).error_code == 0, "the connection stays"


@pytest.mark.real
def test_apache_kafka_answers_api_versions_out_of_range_just_so(apache_kafka: ApacheKafka) -> None:
    with WireClient(apache_kafka.address) as client:
        client.send_bytes(request(18, 99, b"\x00\x01\x00"))

        assert client.receive_frame() == bytes.fromhex("00000007002300000001001200000004")


def test_a_request_of_the_largest_length_is_waited_for(broker: HoldfastBroker, expected_log: ExpectedLog) -> None:
    with expected_log.is_logged_in(0), WireClient(broker.address) as client:
        client.send_bytes(struct.pack(">i", REQUEST_MAX_BYTES) + b"beginning")

        assert not client.is_closed_by_broker(within_s=0.5)


def test_bytes_after_a_whole_request_are_ignored(broker: HoldfastBroker, expected_log: ExpectedLog) -> None:
    with expected_log.is_logged_in(0), WireClient(broker.address) as client:
        client.send_bytes(request(18, 0, b"more than ApiVersions v0 has"))

        _, response = client.receive(API_VERSIONS, 0)

        assert response.error_code == 0


INVALID_UTF8 = request(3, 1, struct.pack(">ih", 1, 2) + b"\xff\xfe")


def test_invalid_utf8_closes_the_connection(broker: HoldfastBroker, expected_log: ExpectedLog) -> None:
    # Unlike Kafka, which goes on with another name than it was given; see the next test.
    with expected_log.is_logged_in(1), WireClient(broker.address) as client:
        client.send_bytes(INVALID_UTF8)

        assert client.is_closed_by_broker()


@pytest.mark.real
def test_apache_kafka_takes_invalid_utf8_for_another_name(apache_kafka: ApacheKafka) -> None:
    with WireClient(apache_kafka.address) as client:
        client.send_bytes(INVALID_UTF8)

        _, response = client.receive(METADATA, 1)

        assert [(topic.error_code, topic.name) for topic in response.topics] == [(17, "��")]


# -- hostile bodies ----------------------------------------------------------------------------------------------------


EXPECTED_LINES = re.compile(
    "closing the connection of|transactions refused|name neither a member id|group.protocol=consumer"
)


def hostile_bodies(api_key: int, version: int) -> Iterator[bytes]:
    """A sound request in which one count or length after the other becomes as large as it can be said."""
    api = HANDLERS[api_key].api
    flexible = version >= api.flexible
    rng = random.Random(f"{api_key} {version}")
    body = encode(random_message(api.request, version, rng), version)
    huge = b"\xff\xff\xff\xff\x07" if flexible else b"\x7f\xff\xff\xff"
    yield huge * 8
    for _ in range(6):
        position = rng.randrange(len(body) + 1)
        yield body[:position] + huge + body[position + len(huge) :]


@pytest.mark.parametrize("api_key", sorted(HANDLERS), ids=lambda key: HANDLERS[key].api.name)
def test_hostile_counts_cost_at_most_the_connection(
    api_key: int, broker: HoldfastBroker, expected_log: ExpectedLog
) -> None:
    handler = HANDLERS[api_key]
    sent = 0
    for version in range(handler.served[0], handler.served[1] + 1):
        tags = b"\x00" if version >= handler.api.flexible else b""
        for body in hostile_bodies(api_key, version):
            with WireClient(broker.address) as client:
                client.send_bytes(request(api_key, version, tags + body))
                assert client.receives_something(), f"neither answered nor closed: v{version} {body.hex()}"
                sent += 1

    with WireClient(broker.address) as client:
        assert client.ask(ApiVersionsRequest(), 0).error_code == 0
    lines = expected_log.lines()
    assert len(lines) <= sent
    unexpected = [line for line in lines if not EXPECTED_LINES.search(line)]
    assert not unexpected, "\n".join(unexpected)


def test_a_request_of_as_many_elements_as_are_allowed_is_answered(
    broker: HoldfastBroker, expected_log: ExpectedLog
) -> None:
    many = [MetadataRequestTopic(name="many")] * MAX_ELEMENTS

    with expected_log.is_logged_in(0, latency_s=10), WireClient(broker.address) as client:
        response = client.ask(MetadataRequest(many, allow_auto_topic_creation=False), 9)

    assert [(topic.name, topic.error_code) for topic in response.topics] == [("many", 3)]


def test_a_request_of_more_elements_than_allowed_is_refused(broker: HoldfastBroker, expected_log: ExpectedLog) -> None:
    many = [MetadataRequestTopic(name="many")] * (MAX_ELEMENTS + 1)

    with expected_log.is_logged_in(1, latency_s=10), WireClient(broker.address) as client:
        client.send(MetadataRequest(many, allow_auto_topic_creation=False), 9)

        assert client.is_closed_by_broker()


def test_asking_for_more_topics_than_a_request_may_create_creates_none() -> None:
    # Kafka's controller takes at most 10,000 new partitions in one request, auto-created or not.
    names = [MetadataRequestTopic(name=f"unwanted-{number}") for number in range(10_001)]
    with HoldfastBroker() as broker, WireClient(broker.address) as client:
        client.send(MetadataRequest(names, allow_auto_topic_creation=True), 9)

        with WireClient(broker.address) as other:
            other.ask(ApiVersionsRequest(), 0)
            other.create_topic("created-behind-it")

        assert list(broker.data_dir.glob("unwanted-*")) == []


def test_a_client_cannot_write_lines_of_its_own_into_the_log(broker: HoldfastBroker, expected_log: ExpectedLog) -> None:
    with expected_log.is_logged_in(1), WireClient(broker.address) as client:
        forged = "x\n2026-01-01 00:00:00,000 ERROR holdfast: all data is lost"
        client.ask(InitProducerIdRequest(forged, 1000), 4)


# -- acks=0 ------------------------------------------------------------------------------------------------------------


def test_acks_0_to_an_unknown_topic_closes_the_connection(broker: HoldfastBroker, expected_log: ExpectedLog) -> None:
    with expected_log.is_logged_in(1), WireClient(broker.address) as client:
        client.send(produce_request("no-such-topic", batch(b"lost"), acks=0), 9)

        assert client.is_closed_by_broker()


def test_acks_0_with_a_wrong_crc_closes_the_connection(broker: HoldfastBroker, expected_log: ExpectedLog) -> None:
    spoiled = bytearray(batch(b"spoiled"))
    spoiled[-1] ^= 1
    with WireClient(broker.address) as client:
        client.create_topic("acks-0")
    with expected_log.is_logged_in(1), WireClient(broker.address) as client:
        client.send(produce_request("acks-0", bytes(spoiled), acks=0), 9)

        assert client.is_closed_by_broker()


def test_acks_0_without_an_error_gets_no_reply_and_the_connection_stays(
    broker: HoldfastBroker, expected_log: ExpectedLog
) -> None:
    with WireClient(broker.address) as client:
        client.create_topic("acks-0-good")
    with expected_log.is_logged_in(0), WireClient(broker.address) as client:
        client.send(produce_request("acks-0-good", batch(b"kept"), acks=0), 9)

        client.ask(ApiVersionsRequest(), 0)
        assert [record.value for record in client.fetch_all("acks-0-good")] == [b"kept"]


def test_a_good_frame_right_after_a_connection_was_refused_is_none_of_its_business(broker: HoldfastBroker) -> None:
    """Control: the bytes of the refused frames, sent well, are served."""
    with WireClient(broker.address) as client:
        client.send_bytes(encode_request(MetadataRequest([]), 1, 1, None))

        assert client.receive(METADATA, 1)[1].brokers
