"""Spark's own Kafka connector, `format("kafka")`, on Holdfast as on Apache Kafka: batches and streams, both ways.

What it reads was written by another client, and what it writes is read by another. Some tests give the same options to
`format("holdfast")`, which returns the same rows.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client_compat.client import Record, Stored, read
from tests.client_compat.confluent_client import ConfluentClient
from tests.client_compat.servers import Server
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.line_rpc import CallFailed, LineRpc
from tests.support.spark_apps import APPS, QUIET, ensured, spark_environment

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

CLIENT = ConfluentClient()
PARTITIONS = 3
EACH = 40
PATIENCE_S = 240.0
"""The first call waits for Spark itself."""
START_MS = 1_700_000_000_000
STRATEGY = "startingOffsetsByTimestampStrategy"
HEADERS = (("trace", b"1"), ("trace", b"2"), ("null", None))


@pytest.fixture(scope="module")
def spark_app() -> Iterator[LineRpc]:
    """One Spark for the module, in a process of its own: the one that other modules share began without the jars."""
    jars = ensured("spark-kafka-ensure", "Spark's own Kafka connector")
    settings = {
        **QUIET,
        "spark.jars": ",".join(sorted(map(str, jars.glob("*.jar")))),
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    python = Path(sys.executable)
    command = [str(python), str(APPS / "own_source.py"), json.dumps(settings)]
    app = LineRpc(command, spark_environment(python, PYSPARK_PYTHON=str(python)), PATIENCE_S)
    yield app
    app.close()


@pytest.fixture
def filled(server: Server, topic: str) -> str:
    fill_topic(server, topic)
    return topic


def fill_topic(server: Server, topic: str) -> None:
    """Three partitions with forty records each, a second apart."""
    CLIENT.create_topic(server.bootstrap, topic, PARTITIONS, {"retention.ms": "-1"})
    for partition in range(PARTITIONS):
        fill(server, topic, partition, range(EACH))


def fill(server: Server, topic: str, partition: int, numbers: range) -> None:
    records = [
        Record(b"%d" % number, b"k%d" % partition, HEADERS, timestamp_ms=START_MS + 1000 * number) for number in numbers
    ]
    CLIENT.produce(server.bootstrap, topic, records, partition)


def rows(topic: str, partition: int, numbers: range) -> list[list[Any]]:
    """As the app shows what `fill` has written."""
    headers = [[name, None if value is None else value.decode()] for name, value in HEADERS]
    return [
        [topic, partition, number, f"k{partition}", str(number), START_MS + 1000 * number, 0, headers]
        for number in numbers
    ]


def of(server: Server, topic: str, **options: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": server.bootstrap, "subscribe": topic} | options


def stored(server: Server, topic: str, partitions: int) -> list[list[Stored]]:
    ends = [CLIENT.watermarks(server.bootstrap, topic, partition)[1] for partition in range(partitions)]
    return [read(CLIENT, server.bootstrap, topic, end, partition) for partition, end in enumerate(ends)]


# -- batches -----------------------------------------------------------------------------------------------------------


def test_a_batch_is_everything_that_the_topic_holds(spark_app: LineRpc, server: Server, filled: str) -> None:
    everything = [row for partition in range(PARTITIONS) for row in rows(filled, partition, range(EACH))]

    assert spark_app.call("batch", options=of(server, filled)) == everything
    assert spark_app.call("columns", options=of(server, filled)) == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>>"
    )


def test_a_batch_is_what_lies_between_offsets(spark_app: LineRpc, server: Server, filled: str) -> None:
    starting = json.dumps({filled: {"0": 10, "1": -2, "2": 40}})
    ending = json.dumps({filled: {"0": 15, "1": 3, "2": -1}})

    read_by_spark = spark_app.call("batch", options=of(server, filled, startingOffsets=starting, endingOffsets=ending))

    assert read_by_spark == rows(filled, 0, range(10, 15)) + rows(filled, 1, range(3))


def test_a_batch_is_what_lies_between_times(spark_app: LineRpc, server: Server, filled: str) -> None:
    starting = json.dumps({filled: {"0": START_MS + 10_000, "1": START_MS + 30_001, "2": START_MS}})
    ending = json.dumps({filled: {"0": START_MS + 12_000, "1": START_MS + 99_000, "2": START_MS + 1}})
    by_partition = of(server, filled, startingOffsetsByTimestamp=starting, endingOffsetsByTimestamp=ending)
    for_all = of(server, filled, startingTimestamp=str(START_MS + 38_000))

    assert spark_app.call("batch", options=by_partition) == (
        rows(filled, 0, range(10, 12)) + rows(filled, 1, range(31, EACH)) + rows(filled, 2, range(1))
    )
    assert spark_app.call("batch", options=for_all) == [
        row for partition in range(PARTITIONS) for row in rows(filled, partition, range(38, EACH))
    ]


BOUNDS: dict[str, dict[str, Any]] = {
    "times": {"startingOffsetsByTimestamp": [9_500, 30_001, 0], "endingOffsetsByTimestamp": [12_000, 99_000, 1]},
    "one time to another": {"startingTimestamp": 9_500, "endingTimestamp": 12_000},
    "offsets to a time": {"startingOffsets": [10, -2, 3], "endingTimestamp": 12_000},
    "precedence": {
        "startingTimestamp": 38_000,
        "startingOffsetsByTimestamp": [0, 0, 0],
        "startingOffsets": "latest",
        "endingTimestamp": 39_000,
        "endingOffsetsByTimestamp": [1, 1, 1],
        "endingOffsets": "earliest",
    },
    "after a last record": {"startingOffsetsByTimestamp": [39_000, 99_000, 99_000], STRATEGY: "LATEST"},
}
ERRORS: dict[str, dict[str, Any]] = {
    "after the last record": {"startingTimestamp": 99_000},
    "an unknown strategy": {"startingTimestamp": 0, STRATEGY: "earliest"},
}
"""Times are relative to the first record, and a list has a value for each partition."""


def bounds(topic: str, given: dict[str, Any]) -> dict[str, str]:
    def shifted(name: str, value: int) -> int:
        return START_MS + value if "Timestamp" in name else value

    def option(name: str, value: Any) -> str:
        if isinstance(value, list):
            return json.dumps({topic: {str(number): shifted(name, one) for number, one in enumerate(value)}})
        return str(shifted(name, value)) if isinstance(value, int) else str(value)

    return {name: option(name, value) for name, value in given.items()}


@pytest.fixture
def on_holdfast(quick_holdfast: HoldfastBroker, topic: str) -> dict[str, str]:
    """A filled topic; where the sources are compared with each other, one server is enough."""
    fill_topic(quick_holdfast, topic)
    return of(quick_holdfast, topic)


def by_both(spark_app: LineRpc, options: dict[str, str]) -> tuple[Any, Any]:
    def result(source: str) -> Any:
        try:
            return spark_app.call("batch", options=options, source=source)
        except CallFailed:
            return "an error"

    return result("kafka"), result("holdfast")


def test_both_sources_read_the_same_rows_between_times(spark_app: LineRpc, on_holdfast: dict[str, str]) -> None:
    for case, given in BOUNDS.items():
        options = on_holdfast | bounds(on_holdfast["subscribe"], given)
        theirs, ours = by_both(spark_app, options)
        assert ours == theirs and len(ours) > 0 and ours != "an error", case


def test_both_sources_refuse_the_same_times(spark_app: LineRpc, on_holdfast: dict[str, str]) -> None:
    for case, given in ERRORS.items():
        options = on_holdfast | bounds(on_holdfast["subscribe"], given)
        assert by_both(spark_app, options) == ("an error", "an error"), case


def test_a_batch_writes_keys_headers_and_partitions(spark_app: LineRpc, server: Server, topic: str) -> None:
    CLIENT.create_topic(server.bootstrap, topic, PARTITIONS)
    header = "named_struct('key', 'h', 'value', CAST(CAST(id AS STRING) AS BINARY))"
    headers = f"array({header}, named_struct('key', 'n', 'value', NULL))"
    columns = [
        "CAST(id % 3 AS INT) AS partition",
        "IF(id = 0, NULL, CAST(id AS STRING)) AS key",
        "IF(id = 1, NULL, CONCAT('v', id)) AS value",
        f"IF(id = 2, NULL, {headers}) AS headers",
    ]

    options = {"kafka.bootstrap.servers": server.bootstrap, "topic": topic}
    spark_app.call("write", count=90, columns=columns, options=options)

    for partition, found in enumerate(stored(server, topic, PARTITIONS)):
        expected = [
            Record(
                None if number == 1 else b"v%d" % number,
                None if number == 0 else b"%d" % number,
                () if number == 2 else (("h", b"%d" % number), ("n", None)),
            )
            for number in range(partition, 90, PARTITIONS)
        ]
        assert sorted(map(repr, (Record(one.value, one.key, one.headers) for one in found))) == sorted(
            map(repr, expected)
        )


# -- streams -----------------------------------------------------------------------------------------------------------


def test_a_stream_continues_where_its_checkpoint_stopped(
    spark_app: LineRpc, server: Server, filled: str, tmp_path: Path
) -> None:
    def run(checkpoint: str) -> list[list[Any]]:
        options = of(server, filled, startingOffsets="earliest", maxOffsetsPerTrigger="100")
        batches = spark_app.call("stream", options=options, checkpoint=str(tmp_path / checkpoint))
        assert all(len(one) <= 100 for one in batches)
        return sorted(row for one in batches for row in one)

    first = run("kept")
    fill(server, filled, 1, range(EACH, EACH + 25))
    second, idle = run("kept"), run("kept")

    everything = [row for partition in range(PARTITIONS) for row in rows(filled, partition, range(EACH))]
    later = rows(filled, 1, range(EACH, EACH + 25))
    assert (first, second, idle) == (everything, later, [])
    # The control: one without that checkpoint does read all of it again.
    assert run("another") == sorted(everything + later)


def test_a_stream_copies_a_topic_and_a_second_run_adds_nothing(
    spark_app: LineRpc, server: Server, filled: str, tmp_path: Path
) -> None:
    copy = f"{filled}-copy"
    CLIENT.create_topic(server.bootstrap, copy, PARTITIONS)

    def run(checkpoint: str) -> None:
        spark_app.call(
            "copy",
            source=of(server, filled, startingOffsets="earliest"),
            columns=["key", "value", "headers", "partition"],
            sink={"kafka.bootstrap.servers": server.bootstrap, "topic": copy},
            checkpoint=str(tmp_path / checkpoint),
        )

    def copied() -> list[list[Record]]:
        return [
            [Record(one.value, one.key, one.headers) for one in found] for found in stored(server, copy, PARTITIONS)
        ]

    run("kept")
    run("kept")

    whole = [
        [Record(b"%d" % number, b"k%d" % partition, HEADERS) for number in range(EACH)]
        for partition in range(PARTITIONS)
    ]
    assert copied() == whole
    # The control: one that begins again does add to it.
    run("another")
    assert copied() == [once + once for once in whole]
