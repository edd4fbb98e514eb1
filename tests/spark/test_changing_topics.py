"""Topics that grow, come and go while a query runs."""

from __future__ import annotations

from typing import Any

import pytest
from kafka import KafkaAdminClient

from tests.client_compat.client import Record
from tests.client_compat.servers import Server
from tests.groups.topics import CLIENT, make_topic, produce
from tests.holdfast_client.consumers import grow_topic
from tests.spark.conftest import StartQuery
from tests.spark.streaming_queries import await_assignments, one_sentence
from tests.support.eventually import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


def by_topic(query: Any) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for row in query.rows:
        found.setdefault(row.topic, []).append((row.partition, row.offset))
    return {name: sorted(records) for name, records in found.items()}


def delete_topic(server: Server, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=server.bootstrap)
    try:
        admin.delete_topics([topic])
    finally:
        admin.close()


def test_partitions_that_come_later_are_read_from_their_beginning(
    server: Server, start_query: StartQuery, topic: str, group: str
) -> None:
    # given a query that began at the end of a topic
    make_topic(server, topic, 2)
    produce(server, topic, 3, partitions=2)
    query = start_query(startingOffsets="latest")
    query.await_stored(server, topic, 3, partitions=2)

    # when the topic grows and records come before the query knows of it
    grow_topic(server, topic, 4)
    eventually(lambda: CLIENT.topics(server.bootstrap)[topic] == 4, "the new partitions")
    for partition in range(4):
        CLIENT.produce(server.bootstrap, topic, [Record(value=b"new")] * 2, partition)

    # then none of them is missed, and the old ones are not read
    query.await_rows(8)
    await_assignments(server, group, [4])
    assert by_topic(query) == {topic: [(0, 3), (0, 4), (1, 3), (1, 4), (2, 0), (2, 1), (3, 0), (3, 1)]}


def test_a_pattern_finds_topics_that_come_later(
    server: Server, start_query: StartQuery, topic: str, group: str
) -> None:
    # given
    make_topic(server, f"{topic}-a", 1)
    query = start_query(subscribe=None, subscribePattern=f"{topic}-[ab]", startingOffsets="latest")
    query.await_stored(server, f"{topic}-a", 0, partitions=1)

    # when two more topics are made, one of which fits
    for name in ("b", "ab"):
        make_topic(server, f"{topic}-{name}", 1)
        produce(server, f"{topic}-{name}", 2, partitions=1)
    produce(server, f"{topic}-a", 2, partitions=1)

    # then it is read from its beginning
    query.await_that(lambda: len(query.rows) >= 4, "the records of both topics")
    assert by_topic(query) == {f"{topic}-a": [(0, 0), (0, 1)], f"{topic}-b": [(0, 0), (0, 1)]}


@pytest.mark.parametrize("fail_on_data_loss", [True, False], ids=["fails", "goes-on"])
def test_a_topic_is_deleted(
    server: Server, start_query: StartQuery, topic: str, group: str, fail_on_data_loss: bool
) -> None:
    # given a query of two topics
    kept, gone = make_topic(server, f"{topic}-kept", 1), make_topic(server, f"{topic}-gone", 1)
    query = start_query(
        subscribe=f"{kept},{gone}", failOnDataLoss=fail_on_data_loss, **{"kafka.metadata.max.age.ms": 300_000}
    )
    for name in (kept, gone):
        produce(server, name, 2, partitions=1)
        query.await_stored(server, name, 2, partitions=1)

    # when one of them is deleted
    delete_topic(server, gone)
    produce(server, kept, 2, first=2, partitions=1)

    # then
    if fail_on_data_loss:
        said = one_sentence(query.error)
        assert f"{gone}-0" in said
        assert "failOnDataLoss" in said
    else:
        query.await_that(lambda: len(by_topic(query)[kept]) >= 4, "the records of the topic that is left")
        assert by_topic(query) == {kept: [(0, 0), (0, 1), (0, 2), (0, 3)], gone: [(0, 0), (0, 1)]}
