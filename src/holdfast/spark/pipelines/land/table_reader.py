"""The table as a DataFrame: the files that the manifests list."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.client.errors import ConfigError
from holdfast.spark.pipelines.durable_files import shared_path, spark_path
from holdfast.spark.pipelines.land.manifest_chain import Chain
from holdfast.spark.pipelines.land.manifest_store import ManifestStore
from holdfast.spark.source import columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_landed(
    spark: SparkSession,
    path: str | os.PathLike[str],
    topics: Sequence[str] | None = None,
    *,
    include_headers: bool = False,
) -> DataFrame:
    """The columns of the source, and `date`. The current content: records that are landed later are not in it.

    Conditions on `topic` and `date` skip whole files.
    """
    store = ManifestStore(shared_path(path))
    files = [file.path for chain in chains(store, topics) for file in chain.files]
    schema = f"{columns(include_headers)}, date DATE"
    if not files:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema).option("basePath", spark_path(store.table))
    rows = reader.parquet(*(spark_path(store.table / file) for file in files))
    return rows.selectExpr(*(f"`{name}`" for name in _names(schema)))


def chains(store: ManifestStore, topics: Sequence[str] | None = None) -> list[Chain]:
    """The chain of each partition in the table. Raises ConfigError if the table does not exist."""
    known = store.topics()
    if not store.table.is_dir():
        raise ConfigError(f"{store.table}: there is no such table")
    for topic in topics or ():
        if topic not in known:
            raise ConfigError(f"{store.table} has no topic {topic!r}; it has {', '.join(known) or 'none'}")
    every = [where for topic in topics or known for where in store.partitions(topic)]
    return [chain for where in every if (chain := store.chain(where)) is not None]


def _names(schema: str) -> list[str]:
    """The columns in the order of the source: Spark puts those that are in the path last."""
    return [part.split()[0] for part in re.sub(r"<.*>", "", schema).split(", ")]
