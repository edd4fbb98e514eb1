"""Starts streaming queries of one Python data source at the same time, in a new application."""

import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

QUERIES = int(sys.argv[1]) if len(sys.argv) > 1 else 2
MODULE = """
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition


class Reader(DataSourceStreamReader):
    def initialOffset(self):
        return {"offset": 0}

    def latestOffset(self):
        return {"offset": 1}

    def partitions(self, start, end):
        return [InputPartition(0)]

    def read(self, partition):
        yield (1,)


class DefaultSource(DataSource):
    @classmethod
    def name(cls):
        return "tiny"

    def schema(self):
        return "number INT"

    def streamReader(self, schema):
        return Reader()
"""


def start(rows: DataFrame) -> StreamingQuery:
    writer = rows.writeStream.format("noop").option("checkpointLocation", tempfile.mkdtemp())
    return writer.trigger(once=True).start()


def error_of(query: StreamingQuery) -> str | None:
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        return str(error)
    return None


def main() -> None:
    modules = Path(tempfile.mkdtemp())
    (modules / "pyspark_tiny.py").write_text(MODULE)  # Spark finds the source by the name of the module
    os.environ["PYTHONPATH"] = str(modules)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    frames = [spark.readStream.format("tiny").load() for _ in range(QUERIES)]
    with ThreadPoolExecutor(QUERIES) as threads:
        queries = list(threads.map(start, frames))
    errors = [error_of(query) for query in queries]
    later = error_of(start(frames[0]))
    print(f"{sum(map(bool, errors))} of {QUERIES} queries failed, and a later one {'failed' if later else 'succeeded'}")
    print(next(filter(None, [*errors, later]), ""))
    spark.stop()


if __name__ == "__main__":
    main()
