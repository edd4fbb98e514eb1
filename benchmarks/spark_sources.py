"""The options of queries with Holdfast's source and with Spark's own, in one Spark application."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.measure import HOLDFAST
from tests.support.kafka_distribution import run_script

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPARK: Final = "spark"
"""Spark's own Kafka source, for comparison."""
SOURCES: Final = {HOLDFAST: "holdfast", SPARK: "kafka"}
"""By the names of their formats."""

SETTINGS: Final = {
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


DELTA_SETTINGS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
}
"""As many partitions of the table's state as cores; Delta's default, 50, is for large clusters."""


def session(cores: int, jars: Sequence[Path] = ()) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(Path(run_script("java-ensure")).parent.parent)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{cores}]").appName("holdfast-bench")
    found = sorted(str(jar) for path in jars for jar in path.glob("*.jar"))
    with_delta = any("delta-spark" in jar for jar in found)
    for name, value in {**SETTINGS, **(DELTA_SETTINGS if with_delta else {})}.items():
        builder = builder.config(name, value)
    if found:
        builder = builder.config("spark.jars", ",".join(found))
    return builder.getOrCreate()


def stream(
    spark: SparkSession, source: str, bootstrap: str, topic: str, options: Mapping[str, Any] | None = None
) -> DataFrame:
    """A stream of the topic. With Holdfast's source, the query is the only member of its group unless the options say
    otherwise."""
    own = {"kafka.group.id": f"bench-{uuid.uuid4().hex}", "kafka.group.instance.id": "bench-1"}
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **(own if source == HOLDFAST else {})}
    whole = {name: value for name, value in {**given, **(options or {})}.items() if value is not None}
    return spark.readStream.format(SOURCES[source]).options(**whole).load()


def kind_of_process(command: str) -> str:
    """The purpose of a process of a Spark application."""
    if "java" in command.partition(" ")[0]:
        return "jvm"
    if "python_streaming_source_runner" in command:
        return "reader"
    if "pyspark.daemon pyspark.worker" in command or command.rstrip().endswith("pyspark.daemon"):
        return "workers"
    return "other"
