"""Every client finds a Kafka: what it sends comes back as it was sent."""

import dataclasses
import time

import pytest

from tests.client_compat.client import (
    BEGINNING,
    END,
    Client,
    LibraryClient,
    Record,
    Sending,
    Stored,
    read,
    read_from,
    values,
)
from tests.client_compat.confluent_client import ConfluentClient
from tests.client_compat.go_client import KAFKA_GO
from tests.client_compat.servers import Server
from tests.support.eventually import eventually

LARGEST_VALUE_BYTES = 1_000_000
MAX_REQUEST_BYTES = 1_048_576
"""The default of the Python clients and of the brokers; librdkafka's own is a million, framing included."""


def numbered(count: int, first: int = 0) -> list[Record]:
    return [Record(value=b"value-%d" % number) for number in range(first, first + count)]


def sent(stored: list[Stored]) -> list[Record]:
    """What was read, as it was to be sent: offsets and times aside."""
    return [Record(record.value, record.key, record.headers) for record in stored]


def as_read_by(reader: Client, records: list[Record]) -> list[Record]:
    """What this client makes of the records: all but one tell empty from null."""
    if reader is not KAFKA_GO:
        return records
    return [
        Record(one.value or None, one.key or None, tuple((name, value or None) for name, value in one.headers))
        for one in records
    ]


def test_what_is_produced_is_read(server: Server, client: Client, topic: str) -> None:
    records = [Record(value=b"value-%d" % number, key=b"key-%d" % number) for number in range(200)]

    before_ms = time.time_ns() // 1_000_000
    client.produce(server.bootstrap, topic, records)
    after_ms = time.time_ns() // 1_000_000

    stored = read(client, server.bootstrap, topic, len(records))
    assert sent(stored) == records
    assert [record.offset for record in stored] == list(range(len(records)))
    assert all(before_ms <= record.timestamp_ms <= after_ms for record in stored)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acknowledgements(server: Server, client: Client, topic: str, acks: str) -> None:
    # Nobody tells a client with acks=0 that a Kafka has just heard of the topic and takes no records yet.
    ConfluentClient().create_topic(server.bootstrap, topic, 1)
    # Idempotence, which some clients have on by default, wants acks=all.
    client.produce(server.bootstrap, topic, numbered(20), sending=Sending(acks=acks, idempotent=False))

    assert sent(read(client, server.bootstrap, topic, 20)) == numbered(20)


def test_an_unknown_topic_is_created_by_the_first_produce(server: Server, client: Client, topic: str) -> None:
    client.produce(server.bootstrap, topic, numbered(1))

    assert values(read(client, server.bootstrap, topic, 1)) == [b"value-0"]


def test_unicode(server: Server, clients: list[Client], topic: str) -> None:
    texts = ["grüße", "données", "数据", "🧷 holdfast", "\N{ZERO WIDTH JOINER}"]
    for client in clients:
        record = Record(key=f"{client.name}: ключ".encode(), value="|".join(texts).encode())
        client.produce(server.bootstrap, topic, [record])

    for client in clients:
        stored = read(client, server.bootstrap, topic, len(clients))
        assert [(record.key or b"").decode() for record in stored] == [f"{client.name}: ключ" for client in clients]
        assert {(record.value or b"").decode() for record in stored} == {"|".join(texts)}


def test_empty_and_null_keys_and_values(
    server: Server, library: LibraryClient, clients: list[Client], topic: str
) -> None:
    records = [
        Record(key=None, value=b"no key"),
        Record(key=b"no value", value=None),
        Record(key=b"", value=b"empty key"),
        Record(key=b"empty value", value=b""),
        Record(key=b"", value=b""),
        Record(key=b"", value=None),
        Record(key=None, value=b""),
    ]

    library.produce(server.bootstrap, topic, records)

    for reader in clients:
        expected = as_read_by(reader, records)
        assert sent(read(reader, server.bootstrap, topic, len(records))) == expected, reader.name


def test_headers(server: Server, library: LibraryClient, clients: list[Client], topic: str) -> None:
    headers = (("trace", b"1"), ("trace", b"2"), ("empty", b""), ("schlüssel", b"wert"), ("trace", b"1"))
    records = [Record(value=b"with", headers=headers), Record(value=b"without")]

    library.produce(server.bootstrap, topic, records)

    for reader in clients:
        assert sent(read(reader, server.bootstrap, topic, 2)) == as_read_by(reader, records), reader.name


def test_timestamps_of_the_producer_come_back(
    server: Server, library: LibraryClient, clients: list[Client], topic: str
) -> None:
    given = [1_700_000_000_000, 1_600_000_000_123, 1, 1_700_000_000_001]  # not in order, and long past
    records = [Record(value=b"x", timestamp_ms=timestamp_ms) for timestamp_ms in given]

    library.produce(server.bootstrap, topic, records)

    for reader in clients:
        stored = read(reader, server.bootstrap, topic, len(given))
        assert [record.timestamp_ms for record in stored] == given, reader.name


def test_the_largest_records(server: Server, client: Client, clients: list[Client], topic: str) -> None:
    largest = bytes(index * 31 % 251 for index in range(LARGEST_VALUE_BYTES))
    records = [Record(value=largest), Record(value=b"behind it"), Record(value=largest)]
    # Three requests at once: if a Kafka that has just heard of the topic refuses the first, the others overtake it.
    ConfluentClient().create_topic(server.bootstrap, topic, 1)

    client.produce(server.bootstrap, topic, records, sending=Sending(max_request_bytes=MAX_REQUEST_BYTES))

    for reader in clients:
        assert sent(read(reader, server.bootstrap, topic, 3)) == records, reader.name


def test_many_partitions(server: Server, library: LibraryClient, topic: str) -> None:
    partitions = 30
    library.create_topic(server.bootstrap, topic, partitions)
    eventually(lambda: library.topics(server.bootstrap).get(topic) == partitions, "the topic has its partitions")

    chosen = [0, 7, partitions - 1]
    for partition in chosen:
        library.produce(server.bootstrap, topic, [Record(value=b"in %d" % partition)], partition)

    for partition in chosen:
        assert values(read(library, server.bootstrap, topic, 1, partition)) == [b"in %d" % partition]
        assert library.watermarks(server.bootstrap, topic, partition) == (0, 1)
    assert library.watermarks(server.bootstrap, topic, 1) == (0, 0)


def test_reading_from_an_offset_the_beginning_and_the_end(server: Server, client: Client, topic: str) -> None:
    client.produce(server.bootstrap, topic, numbered(50))

    assert [record.offset for record in read(client, server.bootstrap, topic, 20, start=30)] == list(range(30, 50))
    assert read(client, server.bootstrap, topic, 1, start=BEGINNING)[0].offset == 0
    assert values(read(client, server.bootstrap, topic, 1, start=49)) == [b"value-49"]


def test_reading_from_the_end_sees_only_what_comes_later(server: Server, library: LibraryClient, topic: str) -> None:
    library.produce(server.bootstrap, topic, numbered(5))

    with library.reader(server.bootstrap, topic, start=END) as reader:
        assert reader.poll(1.0) == []
        library.produce(server.bootstrap, topic, numbered(3, first=5))

        assert values(read_from(reader, 3)) == [b"value-5", b"value-6", b"value-7"]


def test_seeking_back_and_forth(server: Server, library: LibraryClient, topic: str) -> None:
    library.produce(server.bootstrap, topic, numbered(100))

    stored = library.seek_and_read(server.bootstrap, topic, [70, 3, 99, BEGINNING])

    assert [(record.offset, record.value) for record in stored] == [
        (70, b"value-70"),
        (3, b"value-3"),
        (99, b"value-99"),
        (0, b"value-0"),
    ]


def test_watermarks(server: Server, library: LibraryClient, topic: str) -> None:
    library.produce(server.bootstrap, topic, numbered(4))
    assert library.watermarks(server.bootstrap, topic) == (0, 4)

    library.produce(server.bootstrap, topic, numbered(3))
    assert library.watermarks(server.bootstrap, topic) == (0, 7)


def test_offsets_by_time(server: Server, library: LibraryClient, clients: list[Client], topic: str) -> None:
    start_ms = 1_700_000_000_000
    records = [dataclasses.replace(record, timestamp_ms=start_ms + 1000 * i) for i, record in enumerate(numbered(60))]
    library.produce(server.bootstrap, topic, records)

    for client in clients:

        def found(timestamp_ms: int, client: Client = client) -> int | None:
            return client.offset_for_time(server.bootstrap, topic, 0, timestamp_ms)

        assert found(start_ms - 1) == 0, client.name
        assert found(start_ms + 30_000) == 30, client.name
        assert found(start_ms + 30_001) == 31, client.name
        assert found(start_ms + 59_000) == 59, client.name
        assert found(start_ms + 59_001) is None, client.name
