"""What the options of a query do to its batches and its members."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.client_compat.servers import Server
from tests.groups.topics import PARTITIONS, committed, make_topic, produce
from tests.spark.conftest import StartQuery
from tests.spark.streaming_queries import StreamQuery, await_assignments, described, groups_tool
from tests.support.eventually import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

NOW = {"availableNow": True}


def sizes(query: StreamQuery) -> list[int]:
    return [len(batch) for batch in query.batches if batch]


def test_what_is_there_now_is_read_in_batches_of_limited_size(
    server: Server, start_query: StartQuery, topic: str
) -> None:
    # given a partition with much and others with little
    make_topic(server, topic)
    produce(server, topic, 10)
    produce(server, topic, 70, first=10, partitions=1)

    # when all of it is read, at most 40 records at a time, and more come meanwhile
    query = start_query(trigger=NOW, held=True, maxOffsetsPerTrigger=40)
    query.await_rows(1)
    produce(server, topic, 5, first=80, partitions=1)
    query.gate.set()
    query.to_its_end()

    # then the query ends where the topic did
    little = [(partition, offset) for partition in range(1, PARTITIONS) for offset in range(10)]
    assert sorted(query.records) == sorted([(0, offset) for offset in range(80)] + little)
    assert len(sizes(query)) >= 3
    assert max(sizes(query)) <= 40
    assert {row.partition for row in query.batches[0]} == set(range(PARTITIONS)), "each has a part in every batch"

    # and the next run goes on there
    query.start(NOW)
    query.to_its_end()
    assert query.records[110:] == [(0, offset) for offset in range(80, 85)]


def test_a_limit_holds_for_every_trigger(server: Server, start_query: StartQuery, topic: str) -> None:
    make_topic(server, topic)
    expected = produce(server, topic, 25)
    query = start_query(maxOffsetsPerTrigger=30)
    query.await_rows(100)
    assert sorted(query.records) == sorted(expected)
    assert max(sizes(query)) <= 30
    assert len(sizes(query)) >= 4


@pytest.mark.parametrize(("wanted", "tasks"), [(8, 8), (None, 1)], ids=["eight", "as-few-as-will-do"])
def test_partitions_are_cut_into_tasks(
    server: Server, start_query: StartQuery, topic: str, wanted: int | None, tasks: int
) -> None:
    make_topic(server, topic, 2)
    expected = produce(server, topic, 40, partitions=2)
    with_tasks = ["*", "spark_partition_id() AS task"]
    query = start_query(trigger=NOW, minPartitions=wanted, shape=lambda rows: rows.selectExpr(*with_tasks))
    query.to_its_end()
    assert sorted(query.records) == sorted(expected)
    assert len({row.task for row in query.rows}) == tasks


def test_a_query_has_several_members(server: Server, start_query: StartQuery, topic: str, group: str) -> None:
    # given
    make_topic(server, topic, 6)
    query = start_query(members=3, **{"kafka.group.instance.id": "q"})

    # then each has an assignment
    found = await_assignments(server, group, [2, 2, 2])
    assert sorted(found) == ["q-thread-1", "q-thread-2", "q-thread-3"]

    # and between them they read everything once
    expected = produce(server, topic, 10, partitions=6)
    query.await_stored(server, topic, 10, partitions=6)
    assert sorted(query.records) == sorted(expected)


def test_a_query_that_uses_its_rows_twice_reads_them_twice(
    server: Server, start_query: StartQuery, topic: str, group: str
) -> None:
    make_topic(server, topic)
    expected = produce(server, topic, 5)
    query = start_query(shape=lambda rows: rows.union(rows), **{"kafka.group.instance.id": "q"})
    query.await_stored(server, topic, 5)
    assert sorted(query.records) == sorted([*expected, *expected])
    assert [one.group_instance_id for one in described(server, group).members] == ["q"]


def test_a_deleted_checkpoint_begins_again_if_that_is_asked_for(
    server: Server, start_query: StartQuery, topic: str, group: str
) -> None:
    # given a query that has read everything
    make_topic(server, topic)
    expected = produce(server, topic, 10)
    query = start_query(trigger=NOW, newCheckpoint="startingOffsets").to_its_end()
    assert sorted(query.records) == sorted(expected)

    # when its checkpoint is deleted, as by a full refresh, then it reads everything again
    shutil.rmtree(query.checkpoint)
    query.start(NOW)
    query.to_its_end()
    assert sorted(query.records) == sorted([*expected, *expected])
    eventually(lambda: committed(server, group, topic) == dict.fromkeys(range(PARTITIONS), 10), "all of it is stored")

    # and the control: at the group's offsets it reads nothing, and its restart with a checkpoint reads nothing either
    query.start(NOW)
    query.to_its_end()
    shutil.rmtree(query.checkpoint)
    query.options["newCheckpoint"] = "group"
    query.start(NOW)
    query.to_its_end()
    assert len(query.records) == 2 * len(expected)


def test_a_trigger_waits_for_enough_records(server: Server, start_query: StartQuery, spark: Any, topic: str) -> None:
    # given a query that has begun, and whose progress is reported also if it does nothing
    make_topic(server, topic, 1)
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "100ms")
    query = start_query(minOffsetsPerTrigger=10, maxTriggerDelay="1h")
    query.await_stored(server, topic, 0, partitions=1)

    def seen() -> int:
        """How many records the last trigger has found."""
        last = query.query.lastProgress
        return int(json.loads(last["sources"][0]["latestOffset"] or "{}").get(topic, {}).get("0", 0)) if last else 0

    # when a trigger finds nine records, then they wait for the tenth
    produce(server, topic, 9, partitions=1)
    query.await_that(lambda: seen() == 9, "the nine records are seen")
    assert sizes(query) == []
    produce(server, topic, 1, first=9, partitions=1)
    query.await_rows(10)
    assert sizes(query) == [10]


def test_an_operator_replays_and_skips_on_purpose(
    server: Server, start_query: StartQuery, topic: str, group: str, tmp_path: Path
) -> None:
    # given a query that has read everything, and stored that at its end or at its next beginning
    make_topic(server, topic)
    expected = produce(server, topic, 10)
    query = start_query(trigger=NOW).to_its_end()
    assert sorted(query.records) == sorted(expected)

    def reset(*to: str) -> None:
        # Spark has done with a query before it has left its group, and the tool sets nothing of a group with members.
        eventually(lambda: described(server, group).state == "Empty", "the query has left")
        groups_tool(server, "--group", group, "--topic", topic, "--reset-offsets", "--execute", *to)

    # when the offsets are set back
    reset("--to-earliest")
    assert committed(server, group, topic) == dict.fromkeys(range(PARTITIONS), 0)

    # then the checkpoint, which is further, wins
    query.start(NOW)
    query.to_its_end()
    assert len(query.records) == len(expected)

    # and with a new one everything is read again
    reset("--to-earliest")
    again = start_query(trigger=NOW).to_its_end()
    assert sorted(again.records) == sorted(expected)

    # when they are set forward, then that is enough to skip records
    produce(server, topic, 10, first=10)
    reset("--to-offset", "18")
    again.start(NOW)
    again.to_its_end()
    assert sorted(again.records[40:]) == [(partition, offset) for partition in range(PARTITIONS) for offset in (18, 19)]
