"""librdkafka has the metadata of a topic before it is assigned, and reads it without them as well."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest

from holdfast.client import fetcher
from holdfast.client.clock import SYSTEM_CLOCK
from holdfast.client.fetcher import RecordFetcher


class Librdkafka:
    """Notes in which order it is asked for what."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.answers = True

    def list_topics(self, topic: str, timeout: float) -> None:
        assert 0 <= timeout <= fetcher.METADATA_PREFETCH_S
        self.asked.append(("list_topics", topic))
        if not self.answers:
            raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(confluent_kafka.KafkaError._TRANSPORT))

    def incremental_assign(self, partitions: list[Any]) -> None:
        self.asked.append(("incremental_assign", sorted((one.topic, one.offset) for one in partitions)))


@pytest.fixture
def librdkafka(monkeypatch: pytest.MonkeyPatch) -> Librdkafka:
    one = Librdkafka()
    monkeypatch.setattr(confluent_kafka, "Consumer", lambda _config: one)
    return one


def test_a_topic_is_asked_for_once_before_it_is_read(librdkafka: Librdkafka) -> None:
    data_plane = RecordFetcher({}, SYSTEM_CLOCK)

    data_plane.add({("b", 0): 7, ("a", 0): 8})
    data_plane.add({("a", 1): 9})

    assert librdkafka.asked == [
        ("list_topics", "a"),
        ("list_topics", "b"),
        ("incremental_assign", [("a", 8), ("b", 7)]),
        ("incremental_assign", [("a", 9)]),
    ]


def test_a_topic_without_metadata_is_read_anyway_and_requested_again(librdkafka: Librdkafka) -> None:
    data_plane = RecordFetcher({}, SYSTEM_CLOCK)

    librdkafka.answers = False
    data_plane.add({("a", 0): 8, ("b", 0): 7})
    librdkafka.answers = True
    data_plane.add({("a", 1): 9})

    assert librdkafka.asked == [
        ("list_topics", "a"),
        ("incremental_assign", [("a", 8), ("b", 7)]),
        ("list_topics", "a"),
        ("incremental_assign", [("a", 9)]),
    ]
    assert set(data_plane.assigned) == {("a", 0), ("b", 0), ("a", 1)}
