"""`spark.read.format("holdfast")`: the rows are the records, and the group never hears of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.client_compat.client import Record
from tests.client_compat.confluent_client import ConfluentClient
from tests.client_compat.servers import Server
from tests.groups.topics import committed
from tests.spark.conftest import StartPlain
from tests.spark.streaming_queries import described
from tests.support.eventually import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

CLIENT = ConfluentClient()
PARTITIONS = 3
EACH = 40


def load(spark: Any, server: Server, **options: Any) -> Any:
    dotted = {name.replace("_", "."): str(value) for name, value in options.items()}
    return spark.read.format("holdfast").options(**{"kafka.bootstrap.servers": server.bootstrap, **dotted}).load()


def records(rows: Any) -> set[tuple[str, int, int]]:
    found = [(row.topic, row.partition, row.offset) for row in rows.select("topic", "partition", "offset").collect()]
    assert len(found) == len(set(found))
    return set(found)


def of(topic: str, partitions: range = range(PARTITIONS), offsets: range = range(EACH)) -> set[tuple[str, int, int]]:
    return {(topic, partition, offset) for partition in partitions for offset in offsets}


@pytest.fixture
def filled(server: Server, topic: str) -> str:
    """A topic of three partitions with forty records each, and another one whose name begins with it."""
    for name in (topic, f"{topic}-too"):
        CLIENT.create_topic(server.bootstrap, name, PARTITIONS)
        for partition in range(PARTITIONS):
            stored = [Record(b"%d" % number, b"k") for number in range(EACH)]
            CLIENT.produce(server.bootstrap, name, stored, partition)
    return topic


def test_what_is_read_is_said_by_names_a_pattern_or_partitions(spark: Any, server: Server, filled: str) -> None:
    by_names = load(spark, server, subscribe=f"{filled},{filled}-too")
    by_pattern = load(spark, server, subscribePattern=f"{filled}.*")
    by_whole_pattern = load(spark, server, subscribePattern=filled)
    by_partitions = load(spark, server, assign=json.dumps({filled: [0, 2]}), minPartitions=7)

    assert records(by_names) == records(by_pattern) == of(filled) | of(f"{filled}-too")
    assert records(by_whole_pattern) == of(filled)
    assert records(by_partitions) == of(filled, range(0, 3, 2))
    assert by_names.rdd.getNumPartitions() == 1  # so few records share a task
    assert by_partitions.rdd.getNumPartitions() == 7


def test_the_columns_are_those_of_sparks_own_source(spark: Any, server: Server, topic: str) -> None:
    CLIENT.create_topic(server.bootstrap, topic, 1, {"retention.ms": "-1"})
    stored = [Record(b"value", b"key", (("a", b"1"), ("b", None)), 1_700_000_000_123), Record(None, None, (), 5)]
    CLIENT.produce(server.bootstrap, topic, stored)

    rows = load(spark, server, subscribe=topic, includeHeaders="true")

    assert rows.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    reported = rows.selectExpr("key", "value", "offset", "unix_millis(timestamp)", "timestampType", "headers")
    assert [tuple(row) for row in reported.orderBy("offset").collect()] == [
        (b"key", b"value", 0, 1_700_000_000_123, 0, [("a", b"1"), ("b", None)]),
        (None, None, 1, 5, 0, None),
    ]
    assert "headers" not in load(spark, server, subscribe=topic).columns


def test_where_to_begin_and_to_end_is_said_for_each_partition(spark: Any, server: Server, filled: str) -> None:
    starting = json.dumps({filled: {"0": 10, "1": -2, "2": 40}})
    ending = json.dumps({filled: {"0": 15, "1": 3, "2": -1}})

    rows = load(spark, server, subscribe=filled, startingOffsets=starting, endingOffsets=ending)

    assert records(rows) == of(filled, range(1), range(10, 15)) | of(filled, range(1, 2), range(3))


def test_missing_offsets_are_reported_on_the_driver_or_skipped(spark: Any, server: Server, filled: str) -> None:
    beyond = {
        "assign": json.dumps({filled: [0]}),
        "startingOffsets": json.dumps({filled: {"0": 35}}),
        "endingOffsets": json.dumps({filled: {"0": 50}}),
    }

    with pytest.raises(Exception, match="failOnDataLoss") as raised:
        records(load(spark, server, **beyond))
    rest = load(spark, server, **beyond, failOnDataLoss="false")

    assert f"{filled}-0 has the offsets 0 to 40, and it was asked for 35 to 50" in str(raised.value)
    assert records(rest) == of(filled, range(1), range(35, 40))


def test_a_batch_read_does_not_touch_the_group(
    spark: Any, server: Server, filled: str, group: str, start_plain: StartPlain
) -> None:
    settings = {"kafka_group_id": group, "kafka_group_instance_id": "node"}

    assert records(load(spark, server, subscribe=filled, **settings)) == of(filled)

    assert not described(server, group).members
    assert described(server, group).state in ("Dead", "Empty")
    assert committed(server, group, filled) == {}
    # The control: a consumer that does join and commit is seen there.
    start_plain()
    eventually(lambda: len(described(server, group).members) == 1, "the member")
    eventually(lambda: committed(server, group, filled) == dict.fromkeys(range(PARTITIONS), EACH), "its offsets")
