"""Run by test_sparks_own_source: a Spark with its own Kafka connector, called over stdin as tests/support/line_rpc.py
says. Rows come back as lists of what `SHOWN` selects."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

PATIENCE_S: Final = 60
SHOWN: Final = (
    "topic",
    "partition",
    "offset",
    "CAST(key AS STRING)",
    "CAST(value AS STRING)",
    "unix_millis(timestamp)",
    "timestampType",
    "transform(headers, one -> array(one.key, CAST(one.value AS STRING)))",
)

Options = Mapping[str, str]
Rows = list[list[Any]]


def batch(spark: SparkSession, options: Options, source: str = "kafka") -> Rows:
    return _shown(spark.read.format(source).options(**options, includeHeaders="true").load())


def columns(spark: SparkSession, options: Options) -> str:
    return spark.read.format("kafka").options(**options, includeHeaders="true").load().schema.simpleString()


def stream(spark: SparkSession, options: Options, checkpoint: str) -> list[Rows]:
    """What there is, once: the rows of each of its batches."""
    batches: list[Rows] = []
    rows = spark.readStream.format("kafka").options(**options, includeHeaders="true").load()
    writer = rows.writeStream.foreachBatch(lambda frame, _: batches.append(_shown(frame)))
    _run(writer.option("checkpointLocation", checkpoint))
    return [one for one in batches if one]


def write(spark: SparkSession, count: int, columns: list[str], options: Options) -> None:
    """As many rows, each with what `columns` make of its `id`."""
    spark.range(count).selectExpr(*columns).write.format("kafka").options(**options).save()


def copy(spark: SparkSession, source: Options, columns: list[str], sink: Options, checkpoint: str) -> None:
    """A stream from one topic to another."""
    rows = spark.readStream.format("kafka").options(**source, includeHeaders="true").load()
    writer = rows.selectExpr(*columns).writeStream.format("kafka").options(**sink)
    _run(writer.option("checkpointLocation", checkpoint))


def _run(writer: Any) -> None:
    query = writer.trigger(availableNow=True).start()
    try:
        if not query.awaitTermination(PATIENCE_S):
            raise RuntimeError(f"the query did not come to its end: {query.status}")
    finally:
        query.stop()


def _shown(rows: DataFrame) -> Rows:
    found = [list(row) for row in rows.selectExpr(*SHOWN).collect()]
    return sorted(found, key=lambda row: row[:3])


CALLS: Final[dict[str, Callable[..., Any]]] = {
    "batch": batch,
    "columns": columns,
    "stream": stream,
    "write": write,
    "copy": copy,
}


def main(settings: Mapping[str, str]) -> None:
    # What Java prints must not get between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    builder = SparkSession.builder.master("local[2]").appName("holdfast-own-source")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for line in sys.stdin:
        asked = json.loads(line)
        answer: dict[str, Any] = {"id": asked.pop("id")}
        try:
            answer["result"] = CALLS[asked.pop("call")](spark, **asked)
        except Exception as error:  # noqa: BLE001  # whatever Spark has to say is for the test
            answer |= {"error": -1, "message": str(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
