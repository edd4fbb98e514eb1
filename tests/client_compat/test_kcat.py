"""kcat as people type it."""

import json
from typing import Any

import pytest

from tests.client_compat.client import Client, Record
from tests.client_compat.confluent_client import ConfluentClient
from tests.client_compat.kcat_client import kcat
from tests.client_compat.servers import Server
from tests.support.eventually import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(300), pytest.mark.usefixtures("needs_kcat")]

START_MS = 1_700_000_000_000


def json_lines(printed: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed.splitlines()]


def test_lines_from_stdin_come_back(server: Server, topic: str) -> None:
    kcat(server.bootstrap, "-P", "-t", topic, stdin=b"one\ntwo\nthree\n")

    assert kcat(server.bootstrap, "-C", "-t", topic, "-e", "-q") == b"one\ntwo\nthree\n"


def test_listing(server: Server, topic: str) -> None:
    ConfluentClient().create_topic(server.bootstrap, topic, 3)

    def listed() -> dict[str, Any]:
        metadata: dict[str, Any] = json.loads(kcat(server.bootstrap, "-L", "-J"))
        return metadata if any(found["topic"] == topic for found in metadata["topics"]) else {}

    metadata = eventually(listed, "kcat -L names the topic")
    assert metadata["brokers"] == [{"id": 1, "name": server.bootstrap}]
    assert metadata["controllerid"] == 1
    (found,) = (found for found in metadata["topics"] if found["topic"] == topic)
    assert [partition["partition"] for partition in found["partitions"]] == [0, 1, 2]
    assert {partition["leader"] for partition in found["partitions"]} == {1}

    text = kcat(server.bootstrap, "-L", "-t", topic).decode()
    assert f'topic "{topic}" with 3 partitions' in text
    assert f"broker 1 at {server.bootstrap} (controller)" in text


def test_json_envelopes(server: Server, topic: str) -> None:
    kcat(
        server.bootstrap, "-P", "-t", topic, "-K:", "-Z", "-H", "h=1", "-H", "none", stdin=b"k:v\n:no key\nno value:\n"
    )

    records = json_lines(kcat(server.bootstrap, "-C", "-t", topic, "-e", "-q", "-J"))

    assert [(record["key"], record["payload"]) for record in records] == [
        ("k", "v"),
        (None, "no key"),
        ("no value", None),
    ]
    assert [record["offset"] for record in records] == [0, 1, 2]
    assert {tuple(record["headers"]) for record in records} == {("h", "1", "none", None)}
    assert {(record["topic"], record["partition"], record["tstype"]) for record in records} == {(topic, 0, "create")}


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        ("beginning", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ("7", [7, 8, 9]),
        ("-2", [8, 9]),
        (f"s@{START_MS + 3000}", [3, 4, 5, 6, 7, 8, 9]),
        ("end", []),
    ],
)
def test_where_to_start(server: Server, topic: str, offset: str, expected: list[int]) -> None:
    produce_one_a_second(server, topic, 10)

    records = json_lines(kcat(server.bootstrap, "-C", "-t", topic, "-p", "0", "-o", offset, "-e", "-q", "-J"))

    assert [record["offset"] for record in records] == expected


def test_reading_between_two_times(server: Server, topic: str) -> None:
    produce_one_a_second(server, topic, 10)

    window = ["-o", f"s@{START_MS + 2000}", "-o", f"e@{START_MS + 5000}"]
    records = json_lines(kcat(server.bootstrap, "-C", "-t", topic, "-p", "0", *window, "-e", "-q", "-J"))

    assert [record["offset"] for record in records] == [2, 3, 4]


@pytest.mark.parametrize(
    ("timestamp_ms", "expected"),
    [(START_MS, 0), (START_MS + 1, 1), (START_MS + 9000, 9), (START_MS + 9001, -1), (-2, 0), (-1, 10)],
)
def test_offset_by_time(server: Server, topic: str, timestamp_ms: int, expected: int) -> None:
    produce_one_a_second(server, topic, 10)

    printed = kcat(server.bootstrap, "-Q", "-t", f"{topic}:0:{timestamp_ms}")

    assert printed.decode() == f"{topic} [0] offset {expected}\n"


def test_all_partitions_of_a_topic(server: Server, topic: str) -> None:
    producer = ConfluentClient()
    producer.create_topic(server.bootstrap, topic, 6)
    eventually(lambda: producer.topics(server.bootstrap).get(topic) == 6, "the topic has its partitions")
    for partition in range(6):
        kcat(server.bootstrap, "-P", "-t", topic, "-p", str(partition), stdin=b"in %d\n" % partition)

    records = json_lines(kcat(server.bootstrap, "-C", "-t", topic, "-e", "-q", "-J"))

    assert sorted((record["partition"], record["payload"]) for record in records) == [
        (partition, f"in {partition}") for partition in range(6)
    ]


def test_the_first_few(server: Server, client: Client, topic: str) -> None:
    client.produce(server.bootstrap, topic, [Record(value=b"%d" % number) for number in range(10)])

    assert kcat(server.bootstrap, "-C", "-t", topic, "-c", "3", "-q") == b"0\n1\n2\n"


def produce_one_a_second(server: Server, topic: str, count: int) -> None:
    records = [Record(value=b"%d" % number, timestamp_ms=START_MS + 1000 * number) for number in range(count)]
    ConfluentClient().produce(server.bootstrap, topic, records)
