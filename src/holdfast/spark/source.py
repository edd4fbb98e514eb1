"""The entry point of `format("holdfast")`: from Spark's options to readers and writers.

Called where Spark plans a query. Options are checked here, so that a mistake is reported before anything runs: as far
as possible, when the query is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from holdfast.client.errors import ConfigError, HoldfastError
from holdfast.extras import CLIENT, SPARK, check_installed, needed_for

with needed_for('format("holdfast")', SPARK):
    check_installed('format("holdfast")', CLIENT)  # parts of it are loaded only when they are used
    from holdfast.spark.options import batch_options, looks_like_batch, looks_like_stream, stream_options
    from holdfast.spark.user_errors import user_facing

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from holdfast.spark.options import ReadOptions

Options = Mapping[str, str]

_COLUMNS: Final = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
)
_HEADERS: Final = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


def columns(include_headers: bool) -> str:
    """The columns of a record, as in Spark's own Kafka source."""
    return f"{_COLUMNS}, {_HEADERS}" if include_headers else _COLUMNS


@user_facing
def schema(options: Options) -> str:
    """Spark asks for it in `load()`, so mistakes in the options of a read are reported there. A write has the columns
    of its rows, and checks its options in `batch_writer` and `stream_writer`."""
    return columns(check_read_options(options).include_headers)


def check_read_options(options: Options) -> ReadOptions:
    """Spark does not say whether `read` or `readStream` was called. So options are rejected if they are wrong for both.
    Options that are wrong for one of them only are rejected when the query starts."""
    try:
        return stream_options(options)
    except ConfigError as error:
        as_stream = error
    try:
        return batch_options(options)
    except ConfigError as error:
        as_batch = error
    if looks_like_stream(options) or str(as_stream) == str(as_batch):
        raise as_stream
    if looks_like_batch(options):
        raise as_batch
    raise ConfigError(f"with readStream: {as_stream}; with read: {as_batch}")


@user_facing
def batch_reader(options: Options, _schema: StructType) -> DataSourceReader:
    from holdfast.spark.batch_reader import BatchReader

    return BatchReader(batch_options(options))


def stream_reader(options: Options, _schema: StructType) -> DataSourceStreamReader:
    from holdfast.spark.stream_reader import InvalidOptionsReader, StreamReader

    try:
        return StreamReader(stream_options(options))
    except HoldfastError as error:  # Spark would show another error instead of this one
        return InvalidOptionsReader(error)


@user_facing
def batch_writer(options: Options, schema: StructType, overwrite: bool) -> DataSourceWriter:
    from holdfast.spark import sink

    return sink.batch_writer(options, schema, overwrite)


@user_facing
def stream_writer(options: Options, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
    from holdfast.spark import sink

    return sink.stream_writer(options, schema, overwrite)
