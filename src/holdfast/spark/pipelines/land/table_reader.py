"""The table as a DataFrame, also in a Spark without Delta's own data source."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.client.errors import ConfigError
from holdfast.spark.pipelines.location import Location
from holdfast.spark.source import columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_landed(
    spark: SparkSession,
    path: str | os.PathLike[str],
    topics: Sequence[str] | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The columns of a record, and `date`. The current content: records that are landed later are not in it.

    Conditions on `topic` and `date` skip whole files. In an object store, Spark needs the package hadoop-aws to read
    the files, and its own settings for the store.
    """
    location = Location.parse(path, "table", storage_options)
    files = [file for file in table_files(location, topics) if topics is None or _topic_of(file) in topics]
    schema = f"{columns(include_headers=True)}, date DATE"
    if not files:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema).option("basePath", location.spark_url)
    rows = reader.parquet(*(f"{location.spark_url}/{file}" for file in files))
    from holdfast.spark.pipelines.land.delta_table import COLUMNS

    return rows.selectExpr(*(f"`{name}`" for name in COLUMNS))


def table_files(location: Location, topics: Sequence[str] | None = None) -> list[str]:
    """The paths of the table's files, relative to it. Raises ConfigError."""
    from holdfast.spark.pipelines.land.delta_table import existing_table

    table = existing_table(location)
    paths = table.get_add_actions(flatten=True)["path"].to_pylist()
    known = sorted({_topic_of(path) for path in paths})
    for topic in topics or ():
        if topic not in known:
            raise ConfigError(f"{location} has no topic {topic!r}; it has {', '.join(known) or 'none'}")
    return sorted(paths)


def _topic_of(path: str) -> str:
    return path.partition("/")[0].removeprefix("topic=")
