"""kafkajs, as far as its API goes: the matrix's own tests where it can do what they ask for, and others where it does
something else.

What it cannot do: compress with anything but gzip without further packages; send a header without a value, or keep
headers of different names in their order; assign a partition (it reads as the only member of a group); say that no
record is as young as a time (it names the end instead); set one config of a topic and leave the others; pass on why a
transactional id was refused.
"""

import time

import pytest

from tests.client_compat.client import Client, LibraryClient, Record, Sending, Stored, read, read_from, values
from tests.client_compat.confluent_client import ConfluentClient
from tests.client_compat.kafkajs_client import KafkajsClient
from tests.client_compat.servers import Server, stored_codec
from tests.client_compat.test_matrix import (
    test_acknowledgements,
    test_an_unknown_topic_is_created_by_the_first_produce,
    test_many_partitions,
    test_reading_from_an_offset_the_beginning_and_the_end,
    test_seeking_back_and_forth,
    test_watermarks,
    test_what_is_produced_is_read,
)
from tests.client_compat.test_topic_admin import (
    test_a_topic_grows_and_keeps_what_it_has,
    test_a_topic_is_created_used_and_deleted,
    test_refusals,
    test_topic_configs,
)
from tests.client_compat.test_transactions import SOON_S
from tests.support.fixtures import missing
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.kafka_distribution import KafkaUnavailable, run_script
from tests.support.line_rpc import CallFailed

__all__ = [
    "test_a_topic_grows_and_keeps_what_it_has",
    "test_a_topic_is_created_used_and_deleted",
    "test_acknowledgements",
    "test_an_unknown_topic_is_created_by_the_first_produce",
    "test_many_partitions",
    "test_reading_from_an_offset_the_beginning_and_the_end",
    "test_refusals",
    "test_seeking_back_and_forth",
    "test_topic_configs",
    "test_watermarks",
    "test_what_is_produced_is_read",
]

pytestmark = [pytest.mark.real, pytest.mark.timeout(300), pytest.mark.usefixtures("needs_kafkajs")]

KAFKAJS = KafkajsClient()
CONFLUENT = ConfluentClient()
BOTH: list[Client] = [KAFKAJS, CONFLUENT]


@pytest.fixture(scope="module")
def needs_kafkajs() -> None:
    try:
        run_script("kafkajs-ensure")
    except KafkaUnavailable as unavailable:
        missing(f"needs kafkajs: {unavailable}")


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Server:
    """One that forms groups quickly: every reader is a member of one."""
    found: Server = request.getfixturevalue(f"quick_{request.param}")
    return found


@pytest.fixture
def client() -> Client:
    return KAFKAJS


@pytest.fixture
def library() -> LibraryClient:
    return KAFKAJS


def sent(stored: list[Stored]) -> list[Record]:
    return [Record(record.value, record.key, record.headers) for record in stored]


@pytest.mark.parametrize("idempotent", [False, True])
def test_what_it_sends_another_client_reads(server: Server, topic: str, idempotent: bool) -> None:
    headers = (("trace", b"1"), ("trace", b"2"), ("empty", b""), ("schlüssel", b"wert"))
    records = [
        Record(key="ключ".encode(), value="🧷 数据".encode(), headers=headers),
        Record(key=None, value=b"no key"),
        Record(key=b"no value", value=None),
        Record(key=b"", value=b""),
    ]

    KAFKAJS.produce(server.bootstrap, topic, records, sending=Sending(acks="all", idempotent=idempotent))

    for reader in BOTH:
        assert sent(read(reader, server.bootstrap, topic, len(records))) == records, reader.name


def test_it_reads_what_another_client_sent(server: Server, topic: str) -> None:
    """With nulls for headers, too, which it cannot send."""
    headers = (("null", None), ("set", b"1"))
    records = [Record(key="ключ".encode(), value=b"v", headers=headers), Record(value=b"", key=None)]

    CONFLUENT.produce(server.bootstrap, topic, records, sending=Sending(compression="gzip"))

    assert sent(read(KAFKAJS, server.bootstrap, topic, 2)) == records


@pytest.mark.parametrize(("codec", "number"), [("none", 0), ("gzip", 1)])
def test_the_codecs_that_it_brings(server: Server, topic: str, codec: str, number: int) -> None:
    records = [Record(key=b"%d" % one, value=b"compress me, " * 50) for one in range(40)]

    KAFKAJS.produce(server.bootstrap, topic, records, sending=Sending(compression=codec))

    assert stored_codec(server, topic) == number
    for reader in BOTH:
        assert sent(read(reader, server.bootstrap, topic, len(records))) == records, reader.name


def test_timestamps_and_offsets_by_time(server: Server, topic: str) -> None:
    start_ms = 1_700_000_000_000
    records = [Record(value=b"%d" % number, timestamp_ms=start_ms + 1000 * number) for number in range(10)]

    KAFKAJS.produce(server.bootstrap, topic, records)

    for reader in BOTH:
        stored = read(reader, server.bootstrap, topic, 10)
        assert [one.timestamp_ms for one in stored] == [one.timestamp_ms for one in records], reader.name
    times = (start_ms - 1, start_ms + 3000, start_ms + 3001, start_ms + 9001)
    assert [KAFKAJS.offset_for_time(server.bootstrap, topic, 0, time_ms) for time_ms in times] == [0, 3, 4, 10]
    assert CONFLUENT.offset_for_time(server.bootstrap, topic, 0, times[-1]) is None


def test_the_largest_records(server: Server, topic: str) -> None:
    largest = bytes(index * 31 % 251 for index in range(1_000_000))

    for value in (largest, b"behind it", largest):
        KAFKAJS.produce(server.bootstrap, topic, [Record(value=value)])

    for reader in BOTH:
        assert values(read(reader, server.bootstrap, topic, 3)) == [largest, b"behind it", largest], reader.name


def test_a_fetch_that_waits_returns_as_soon_as_a_record_arrives(server: Server, topic: str) -> None:
    KAFKAJS.produce(server.bootstrap, topic, [Record(value=b"before")])
    with KAFKAJS.reader(server.bootstrap, topic) as reader:
        assert values(read_from(reader, 1)) == [b"before"]
        assert reader.poll(0.5) == []

        KAFKAJS.produce(server.bootstrap, topic, [Record(value=b"after")])

        assert values(read_from(reader, 1)) == [b"after"]


def test_a_transaction_is_refused_soon(quick_holdfast: HoldfastBroker, topic: str) -> None:
    # The control: the same client without transactions is served. It comes first, as starting node is not measured.
    KAFKAJS.produce(quick_holdfast.bootstrap, topic, [Record(value=b"plain")])
    assert values(read(KAFKAJS, quick_holdfast.bootstrap, topic, 1)) == [b"plain"]

    began = time.monotonic()
    with pytest.raises(CallFailed, match="Failed to find group coordinator"):
        KAFKAJS.begin_transaction(quick_holdfast.bootstrap, topic)

    assert time.monotonic() - began < SOON_S
