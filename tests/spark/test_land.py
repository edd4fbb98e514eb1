"""`Land`, `read_landed` and `compact` on a real Spark and real brokers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from holdfast.client.errors import ConfigError
from holdfast.spark import Land, compact, read_landed
from holdfast.spark.pipelines.errors import DataLoss, QueryFailed, Unwritable
from holdfast.spark.pipelines.land.delta_table import create_table
from holdfast.spark.pipelines.land.land_query import LandBatch
from holdfast.spark.pipelines.location import Location
from tests.client_compat.servers import Server
from tests.groups.topics import committed
from tests.spark.full_disk_fixture import full_disk
from tests.spark.records import produced
from tests.spark.streaming_queries import QUICK_QUERY, described
from tests.spark.table_checks import landed_values, listed, unlisted
from tests.support.eventually import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PARTITIONS, COUNT = 3, 3_000
NOW = {"availableNow": True}
StartLand = Callable[..., Land]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def land(spark: Any, server: Server, group: str, topic: str, table: Path, ending: ExitStack) -> StartLand:
    """Make a query of the test's group and topic; it ends with the test."""

    def make(
        instance: str | None = "lake-1", on_batch: Callable[[LandBatch], None] | None = None, **options: Any
    ) -> Land:
        wanted = {"kafka.bootstrap.servers": server.bootstrap, "kafka.group.id": group, "subscribe": topic}
        if instance is not None:
            wanted["kafka.group.instance.id"] = instance
        query = Land(spark, table, {**QUICK_QUERY, **wanted, **options}, on_batch=on_batch)
        ending.callback(query.stop)
        return query

    return make


def more(server: Server, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def values_in(spark: Any, table: Path) -> list[str]:
    return sorted(row.value for row in read_landed(spark, table).selectExpr("CAST(value AS STRING) AS value").collect())


def test_a_topic_is_landed_and_read_and_compacted(
    spark: Any, server: Server, topic: str, group: str, table: Path, land: StartLand
) -> None:
    # given
    values = produced(server.bootstrap, topic, PARTITIONS, COUNT)
    batches: list[LandBatch] = []

    # when it is landed in several batches, by a query that is then started again
    for _ in range(2):
        assert land(on_batch=batches.append, maxOffsetsPerTrigger=700).start(**NOW).wait(60)

    # then each record is there once, with the columns of the source
    assert values_in(spark, table) == sorted(values)
    assert sum(batch.landed.rows for batch in batches) == COUNT
    assert len(batches) >= COUNT // 700
    rows = read_landed(spark, table, [topic])
    assert rows.columns == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"),
        "date",
    ]
    first = rows.where("partition = 1 AND offset = 0").collect()
    assert [(bytes(row.key), row.topic, row.timestampType) for row in first] == [(b"key 1", topic, 0)]
    assert first[0].date == rows.selectExpr("CAST(timestamp AS DATE) AS date").first().date
    assert committed(server, group, topic) == dict.fromkeys(range(PARTITIONS), COUNT // PARTITIONS)

    # and when the small files are put together, nothing changes but their number
    small = len(listed(table))
    done = compact(spark, table, before=date.today() + timedelta(days=2), grace_s=1e6)
    assert values_in(spark, table) == sorted(values)
    assert (done.merged_files, len(listed(table))) == (small, PARTITIONS)
    assert len(unlisted(table)) == small, "a reader that has begun can go on"
    swept = compact(spark, table, grace_s=0)
    assert (swept.deleted_files, unlisted(table)) == (small, set())
    assert values_in(spark, table) == sorted(values)


def test_a_query_without_a_checkpoint_continues_where_the_table_ends(
    spark: Any, server: Server, topic: str, group: str, table: Path, land: StartLand
) -> None:
    """Its group has forgotten everything: what it reads again is not landed again."""
    values = produced(server.bootstrap, topic, PARTITIONS, COUNT)
    land(instance=None).start(**NOW).wait(60)
    more(server, topic, ["one more"])

    batches: list[LandBatch] = []
    again = {"kafka.group.id": f"{group}-again", "kafka.group.instance.id": "lake-2", "includeHeaders": "false"}
    land(on_batch=batches.append, **again).start(**NOW).wait(60)

    assert values_in(spark, table) == sorted([*values, "one more"])
    assert sum(batch.landed.already for batch in batches) == COUNT, "the control: it has read everything again"
    assert read_landed(spark, table).where("headers IS NOT NULL").count() == 0


def test_a_query_that_is_stopped_finishes_its_batch_and_begins_no_other(
    spark: Any, server: Server, topic: str, table: Path, land: StartLand
) -> None:
    produced(server.bootstrap, topic, PARTITIONS, COUNT)
    in_batch, go_on = threading.Event(), threading.Event()

    def slowly(_batch: LandBatch) -> None:
        in_batch.set()
        assert go_on.wait(60)

    query = land(on_batch=slowly, maxOffsetsPerTrigger=300).start()
    assert in_batch.wait(60)
    stopping = threading.Thread(target=query.stop)
    stopping.start()
    eventually(lambda: query._stopping, "the stop")
    go_on.set()
    stopping.join(60)

    assert not stopping.is_alive()
    assert query.query is not None and not query.query.isActive
    assert query.wait(1), "it was stopped, and has not failed"
    assert len(landed_values(table)) == 300


def test_what_others_of_the_group_have_read_and_not_landed_is_a_gap(
    spark: Any, server: Server, topic: str, group: str, table: Path, land: StartLand
) -> None:
    values = produced(server.bootstrap, topic, PARTITIONS, 30)
    land(instance=None).start(**NOW).wait(60)
    more(server, topic, ["taken", "left"])
    _await_nobody(server, group)
    _store(server, group, topic, 0, 11)

    with pytest.raises(DataLoss, match=rf"{topic}-0 is landed up to 10, and the batch begins at 11"):
        land(instance=None).start(**NOW).wait(60)
    assert values_in(spark, table) == sorted(values)

    _await_nobody(server, group)
    land(instance=None, failOnDataLoss="false").start(**NOW).wait(60)
    assert values_in(spark, table) == sorted([*values, "left"])


def _await_nobody(server: Server, group: str) -> None:
    """A query has ended for Spark before it has left its group: the next one would have to share with it."""
    eventually(lambda: not described(server, group).members, "the end of the membership")


def _store(server: Server, group: str, topic: str, partition: int, offset: int) -> None:
    settings = {"bootstrap.servers": server.bootstrap, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)
    consumer.close()


def test_an_error_is_one_sentence_and_landing_continues_once_it_is_fixed(
    spark: Any, server: Server, topic: str, table: Path, land: StartLand
) -> None:
    values = produced(server.bootstrap, topic, PARTITIONS, 30)
    # a place where no directory can be
    table.write_text("a file")
    with pytest.raises(Unwritable, match=r"lake: (Not a directory|File exists)"):
        land().start(**NOW)
    table.unlink()
    land().start(**NOW).wait(60)
    more(server, topic, ["later"])
    # an entry of the log that was cut short
    entry = table / "_delta_log" / f"{1:020d}.json"
    whole = entry.read_bytes()
    entry.write_bytes(whole[:50])
    with pytest.raises(Unwritable, match="lake"):
        land().start(**NOW)
    with pytest.raises(Unwritable, match="lake"):
        read_landed(spark, table)
    entry.write_bytes(whole)
    # a directory in which the executors cannot write
    home = next((table / f"topic={topic}").iterdir())
    home.rename(table / "elsewhere")
    home.symlink_to("/dev/full")
    with pytest.raises(Unwritable, match="nothing is lost"):
        land().start(**NOW).wait(60)
    home.unlink()
    (table / "elsewhere").rename(home)

    land().start(**NOW).wait(60)

    assert values_in(spark, table) == sorted([*values, "later"])


def test_a_full_disk_is_reported_and_the_rest_is_landed_when_there_is_room(
    spark: Any, server: Server, topic: str, table: Path, land: StartLand
) -> None:
    values = produced(server.bootstrap, topic, PARTITIONS, 30)
    land().start(**NOW).wait(60)
    more(server, topic, ["later"])

    no_room = r"there is no room left for .*lake .*; nothing is lost"
    with full_disk(next((table / f"topic={topic}").iterdir())), pytest.raises(Unwritable, match=no_room):
        land().start(**NOW).wait(60)
    land().start(**NOW).wait(60)

    assert values_in(spark, table) == sorted([*values, "later"])


def test_an_error_of_a_task_is_reported_in_one_sentence(
    server: Server, topic: str, land: StartLand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records are deleted after Spark has planned the batch, and before the executors read them."""
    produced(server.bootstrap, topic, PARTITIONS, 30)
    query = land()
    process = query._process

    def deleted(*batch: Any) -> Any:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        (done,) = admin.delete_records([TopicPartition(topic, 0, 5)]).values()
        done.result(30)
        return process(*batch)

    monkeypatch.setattr(query, "_process", deleted)

    with pytest.raises(QueryFailed, match=topic) as reported:
        query.start(**NOW).wait(60)

    print(reported.value)
    assert len(str(reported.value).splitlines()) == 1
    assert "Traceback" not in str(reported.value)
    assert " at org.apache" not in str(reported.value)


def test_a_topic_that_does_not_exist_is_reported_in_one_sentence(land: StartLand) -> None:
    with pytest.raises(QueryFailed, match="subscribe") as reported:
        land(subscribe="nobody-made-it").start(**NOW).wait(60)

    assert len(str(reported.value).splitlines()) == 1


def test_tables_that_cannot_be_are_refused(spark: Any, server: Server, tmp_path: Path) -> None:
    options = {"kafka.bootstrap.servers": server.bootstrap, "kafka.group.id": "g", "subscribe": "t"}
    with pytest.raises(ConfigError, match="hdfs: is not known to support that"):
        Land(spark, "hdfs://node/lake", options)
    with pytest.raises(ConfigError, match="did you mean 'subscribe'"):
        Land(spark, tmp_path, {**options, "subscribes": "t"})
    with pytest.raises(ConfigError, match="there is no Delta table"):
        read_landed(spark, tmp_path / "none")
    create_table(Location.parse(tmp_path))
    assert read_landed(spark, tmp_path).collect() == []
    with pytest.raises(ConfigError, match="has no topic 'orders'"):
        read_landed(spark, tmp_path, ["orders"])
