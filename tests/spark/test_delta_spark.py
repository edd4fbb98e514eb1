"""Delta's own data source for Spark reads, streams and changes a table that Holdfast has written, and Holdfast lands
into a table that it has changed. Spark is the newest for which there is a delta-spark, the oldest that Holdfast
supports."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from holdfast.spark.pipelines.location import Location
from tests.support.spark_apps import ensured, run_app
from tests.unit.spark.pipelines.land_harness import compaction, end_of, every, land, rows_of

# A cold cache has PySpark itself to bring.
pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


def positions(rows: list[tuple[str, int, int, bytes]]) -> list[list[object]]:
    return [list(row[:3]) for row in rows]


def test_delta_spark_reads_and_changes_a_table_and_holdfast_continues(tmp_path: Path) -> None:
    # given a table of several batches, with merged files and a checkpoint of the log
    python = ensured("spark-oldest-ensure", "the oldest PySpark")
    jars = ensured("spark-delta-ensure", "Delta's data source for Spark")
    table = Location.parse(tmp_path / "lake")
    for number in range(3):
        land(table, (0, number * 5, number * 5 + 5), (1, number * 2, number * 2 + 2))
    compaction(table, now_s=lambda: time.time() + 10 * 86_400, grace_s=1e9).run()
    land(table, (0, 15, 20))
    landed = every((0, 0, 20), (1, 0, 6))
    assert rows_of(table) == landed

    # when
    said = run_app(
        "delta_engine.py",
        {
            "table": str(table),
            "jars": ",".join(str(path) for path in sorted(jars.glob("*.jar"))),
            "directory": str(tmp_path),
        },
        {},
        python,
        within_s=400,
    )

    # then each record was there once, for batches and for streams
    assert said["columns"] == {
        "key": "binary",
        "value": "binary",
        "topic": "string",
        "partition": "int",
        "offset": "bigint",
        "timestamp": "timestamp",
        "timestampType": "int",
        "headers": "array<struct<key:string,value:binary>>",
        "date": "date",
    }
    assert said["rows"] == said["streamed"] == positions(landed)
    assert said["values"] == sorted(row[3].decode() for row in landed)
    # and files are skipped by their statistics, but not the one whose maximum is the time itself
    assert said["files"] == 3
    assert said["one_row"] == [1, 1]
    assert said["later_rows"] == [5, 1]
    assert said["at_highest_timestamp"] == [len(landed), 3]
    assert said["after_highest_timestamp"][0] == 0
    assert said["after_delete"] == positions(every((0, 0, 20), (1, 2, 6)))

    # and the transactions have survived, so landing continues, and the deleted records stay deleted
    assert (end_of(table, 0), end_of(table, 1)) == (20, 6)
    land(table, (0, 18, 25), (1, 0, 8))
    assert rows_of(table) == every((0, 0, 25), (1, 2, 8))
    compaction(table, now_s=lambda: time.time() + 10 * 86_400, grace_s=1e9).run()
    assert rows_of(table) == every((0, 0, 25), (1, 2, 8))
    assert said["version"].startswith("4.2.")
