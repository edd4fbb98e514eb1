"""A query is a member of its group: every tool shows it, it shares the topics with consumers of other kinds, and it
rejoins after a restart."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from tests.client_compat.client import Record
from tests.client_compat.servers import Server
from tests.groups.topics import CLIENT, PARTITIONS, make_topic, produce
from tests.spark.conftest import StartPlain, StartQuery
from tests.spark.streaming_queries import (
    RUNNER,
    WORKERS,
    At,
    PlainMember,
    StreamQuery,
    assignments,
    await_assignments,
    connected_to,
    groups_tool,
    processes,
)
from tests.support.eventually import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


def test_the_groups_tool_shows_the_query_and_its_rows_are_what_was_produced(
    server: Server, start_query: StartQuery, topic: str, group: str
) -> None:
    # given records with everything that a record can have
    make_topic(server, topic)
    records = [
        Record(value=b"%d" % number, key=b"k%d" % number, headers=(("h", b"%d" % number), ("empty", None)),
               timestamp_ms=1_700_000_000_000 + number)
        for number in range(50)
    ]  # fmt: skip
    bare = Record(value=None, key=None, timestamp_ms=1_700_000_000_999)
    for partition in range(PARTITIONS):
        CLIENT.produce(server.bootstrap, topic, [*records, bare], partition)
    before = processes(RUNNER)

    # when a query has read them
    query = start_query(
        shape=lambda rows: rows.selectExpr("*", "unix_millis(timestamp) AS timestamp_ms"),
        includeHeaders=True,
        **{"kafka.group.instance.id": "billing"},
    )
    query.await_rows(51 * PARTITIONS)
    query.await_stored(server, topic, 51)

    # then the rows are the records
    expected = [
        (topic, partition, offset, one.key, one.value, list(one.headers), one.timestamp_ms, 0)
        for partition in range(PARTITIONS)
        for offset, one in enumerate([*records, bare])
    ]
    assert sorted(map(as_tuple, query.rows), key=lambda row: row[:3]) == expected

    # and the member is another process than those that read (which Spark ends when they rest for a minute)
    (reader,) = processes(RUNNER) - before
    workers = processes(WORKERS)
    connected = connected_to(server)
    assert reader in connected
    assert connected & workers, "the executors' workers fetch the records themselves"
    assert reader not in workers

    # and the tool shows the member, its partitions and that it is not behind
    (member,) = groups_tool(server, "--group", group, "--describe", "--members", "--verbose")
    assert (member["GROUP-INSTANCE-ID"], member["#PARTITIONS"]) == ("billing", "4")
    offsets = groups_tool(server, "--group", group, "--describe")
    assert {(row["PARTITION"], row["CURRENT-OFFSET"], row["LAG"]) for row in offsets} == {
        (str(partition), "51", "0") for partition in range(PARTITIONS)
    }
    assert {row["CONSUMER-ID"].partition("-")[0] for row in offsets} == {"billing"}

    # and Spark's own report shows it too
    (source,) = json.loads(query.query.lastProgress.json)["sources"]
    assert source["latestOffset"][""] == ["billing"]
    assert source["latestOffset"][topic] == {str(partition): 51 for partition in range(PARTITIONS)}


def as_tuple(row: Any) -> tuple[Any, ...]:
    key, value = (None if one is None else bytes(one) for one in (row.key, row.value))
    headers = [(one.key, None if one.value is None else bytes(one.value)) for one in row.headers or []]
    return row.topic, row.partition, row.offset, key, value, headers, row.timestamp_ms, row.timestampType


class Kind(NamedTuple):
    """How a query sits in its group, and what that means for its restart."""

    options: dict[str, str]
    session_ms: int
    comes_back_in_time: bool


KINDS = {
    "static": Kind({"kafka.group.instance.id": "query"}, 180_000, True),
    "static-too-late": Kind({"kafka.group.instance.id": "query"}, 12_000, False),
    "dynamic": Kind({"kafka.client.id": "query"}, 180_000, False),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_query_divides_a_topic_with_plain_consumers_and_restarts(
    server: Server, start_query: StartQuery, start_plain: StartPlain, topic: str, group: str, kind: Kind
) -> None:
    # given a query and two plain consumers in one group
    make_topic(server, topic, 6)
    others = processes(RUNNER)
    query = start_query(**kind.options, **{"kafka.session.timeout.ms": kind.session_ms})
    plain = [start_plain(client, group_instance_id=client) for client in ("confluent", "holdfast")]
    before = await_assignments(server, group, [2, 2, 2])

    # when records come, then each is processed by one of them
    expected = produce(server, topic, 20, partitions=6)
    query.await_stored(server, topic, 20, partitions=6)
    assert_each_once(expected, query, *plain)

    # when the query is stopped, then its process ends, and only a static one keeps its partitions, for its session
    for one in plain:
        one.revoked.clear()
    query.stop()
    eventually(lambda: processes(RUNNER) <= others, "the end of the reader's process")
    if kind.comes_back_in_time:
        assert assignments(server, group) == before
    else:
        await_assignments(server, group, [3, 3])  # a session of three minutes is not waited for

    # when it is started again and more records come, then each is still processed once
    query.start()
    after = await_assignments(server, group, [2, 2, 2])
    expected = produce(server, topic, 10, first=20, partitions=6)
    query.await_stored(server, topic, 30, partitions=6)
    assert_each_once(expected, query, *plain)

    # and the others had to give something up only where the member was removed
    revocations = sum(len(one.revoked) for one in plain)
    if kind.comes_back_in_time:
        assert (revocations, after) == (0, before)
    else:
        assert revocations > 0


def assert_each_once(expected: set[At], *readers: StreamQuery | PlainMember) -> None:
    """A plain consumer commits by itself: what it was given may be stored before it has written it down."""

    def read() -> list[At]:
        return [at for one in readers for at in one.records]

    eventually(lambda: len(read()) >= len(expected), f"{len(expected)} records")
    assert sorted(read()) == sorted(expected)
