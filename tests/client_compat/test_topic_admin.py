"""Topics made, grown, configured and deleted by each client's own admin."""

import pytest

from tests.client_compat.client import LibraryClient, Record, read, values
from tests.client_compat.errors import (
    INVALID_CONFIG,
    INVALID_PARTITIONS,
    INVALID_TOPIC,
    REFUSALS,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_OR_PARTITION,
    error_code,
)
from tests.client_compat.servers import Server
from tests.support.eventually import eventually


def test_a_topic_is_created_used_and_deleted(server: Server, library: LibraryClient, topic: str) -> None:
    library.create_topic(server.bootstrap, topic, 3)
    eventually(lambda: library.topics(server.bootstrap).get(topic) == 3, "the topic is listed with its partitions")
    library.produce(server.bootstrap, topic, [Record(value=b"kept for now")], partition=2)
    assert values(read(library, server.bootstrap, topic, 1, partition=2)) == [b"kept for now"]

    library.delete_topic(server.bootstrap, topic)

    eventually(lambda: topic not in library.topics(server.bootstrap), "the topic is gone")


def test_a_topic_made_again_is_empty(server: Server, library: LibraryClient, topic: str) -> None:
    library.create_topic(server.bootstrap, topic, 1)
    library.produce(server.bootstrap, topic, [Record(value=b"old")])
    library.delete_topic(server.bootstrap, topic)
    eventually(lambda: topic not in library.topics(server.bootstrap), "the topic is gone")

    library.create_topic(server.bootstrap, topic, 1)
    library.produce(server.bootstrap, topic, [Record(value=b"new")])

    stored = read(library, server.bootstrap, topic, 1)
    assert [(record.offset, record.value) for record in stored] == [(0, b"new")]


def test_a_topic_grows_and_keeps_what_it_has(server: Server, library: LibraryClient, topic: str) -> None:
    library.create_topic(server.bootstrap, topic, 1)
    library.produce(server.bootstrap, topic, [Record(value=b"before")])

    library.grow_topic(server.bootstrap, topic, 4)

    eventually(lambda: library.topics(server.bootstrap).get(topic) == 4, "the topic has its new partitions")
    library.produce(server.bootstrap, topic, [Record(value=b"after")], partition=3)
    assert values(read(library, server.bootstrap, topic, 1, partition=3)) == [b"after"]
    assert values(read(library, server.bootstrap, topic, 1)) == [b"before"]


def test_refusals(server: Server, library: LibraryClient, topic: str) -> None:
    library.create_topic(server.bootstrap, topic, 2)

    with pytest.raises(REFUSALS) as existing:
        library.create_topic(server.bootstrap, topic, 2)
    assert error_code(existing.value) == TOPIC_ALREADY_EXISTS

    with pytest.raises(REFUSALS) as shrinking:
        library.grow_topic(server.bootstrap, topic, 1)
    assert error_code(shrinking.value) == INVALID_PARTITIONS

    with pytest.raises(REFUSALS) as missing:
        library.delete_topic(server.bootstrap, f"{topic}-missing")
    assert error_code(missing.value) == UNKNOWN_TOPIC_OR_PARTITION

    with pytest.raises(REFUSALS) as misnamed:
        library.create_topic(server.bootstrap, "not/a/name", 1)
    assert error_code(misnamed.value) == INVALID_TOPIC

    with pytest.raises(REFUSALS) as misconfigured:
        library.create_topic(server.bootstrap, f"{topic}-2", 1, {"retention.ms": "soon"})
    assert error_code(misconfigured.value) == INVALID_CONFIG


def test_topic_configs(server: Server, library: LibraryClient, topic: str) -> None:
    library.create_topic(server.bootstrap, topic, 1, {"retention.ms": "3600000"})
    created = eventually(lambda: library.topic_configs(server.bootstrap, topic), "the topic has configs")
    assert created["retention.ms"] == "3600000"
    assert created["cleanup.policy"] == "delete"
    assert created["max.message.bytes"] == "1048588"

    library.set_topic_config(server.bootstrap, topic, "segment.bytes", "2097152")

    eventually(
        lambda: library.topic_configs(server.bootstrap, topic)["segment.bytes"] == "2097152",
        "the new value of segment.bytes is described",
    )


def test_both_brokers_describe_the_same_configs(server: Server, library: LibraryClient, topic: str) -> None:
    library.create_topic(server.bootstrap, topic, 1)

    described = eventually(lambda: library.topic_configs(server.bootstrap, topic), "the topic has configs")

    assert len(described) == 33  # Apache Kafka 4.3
    assert {"compression.type", "message.timestamp.type", "min.insync.replicas", "retention.bytes"} <= set(described)
