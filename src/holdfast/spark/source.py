"""The front door of `format("holdfast")`: from Spark's options to readers and writers.

Called where Spark plans a query. Options are checked here, so that a mistake is told before anything runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.client.config import truth
from holdfast.client.errors import HoldfastError
from holdfast.extras import SPARK, needed_for
from holdfast.spark.columns import columns

with needed_for('format("holdfast")', SPARK):
    from holdfast.spark.complaints import in_one_sentence
    from holdfast.spark.options import batch_options, check_names, stream_options

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

Options = Mapping[str, str]


@in_one_sentence
def schema(options: Options) -> str:
    """Spark asks for it when a query is built, before it runs: the time to tell of names that nobody knows."""
    check_names(options)
    lowered = {name.lower(): value for name, value in dict(options).items()}
    return columns(truth(lowered, "includeheaders", False))


@in_one_sentence
def batch_reader(options: Options, _schema: StructType) -> DataSourceReader:
    from holdfast.spark.batch_reader import BatchReader

    return BatchReader(batch_options(options))


def stream_reader(options: Options, _schema: StructType) -> DataSourceStreamReader:
    from holdfast.spark.stream_reader import RefusedReader, StreamReader

    try:
        return StreamReader(stream_options(options))
    except HoldfastError as error:  # Spark would show a fault of its own instead of what is raised here
        return RefusedReader(error)


@in_one_sentence
def batch_writer(options: Options, schema: StructType, overwrite: bool) -> DataSourceWriter:
    from holdfast.spark import sink

    return sink.batch_writer(options, schema, overwrite)


@in_one_sentence
def stream_writer(options: Options, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
    from holdfast.spark import sink

    return sink.stream_writer(options, schema, overwrite)
