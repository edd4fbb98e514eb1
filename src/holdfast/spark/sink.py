"""The sink of `format("holdfast")`, with the columns of Spark's own Kafka sink.

    key        string or binary, may be missing
    value      string or binary
    topic      string, unless the option `topic` names one for all; the option takes precedence
    partition  int, may be missing; if null, the key decides, or any partition is used
    headers    array<struct<key: string, value: binary>>, may be missing

Other columns are not written, as in Spark. A query that copies a topic therefore keeps each record's partition only if
it keeps the column, and never its timestamp.

**At least once.** A task succeeds when the brokers have acknowledged all its records. Its producer is idempotent:
records that it sends twice after a broken connection are stored once, and in order. But records that were sent cannot
be withdrawn. When Spark runs a task or a batch again, after a failure or a restart, its records are written again. If
readers must not see duplicates, give each record an id, and drop repeated ids.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from holdfast.client.errors import ConfigError
from holdfast.spark.user_errors import user_facing
from holdfast.spark.write_options import WriteOptions, write_options

if TYPE_CHECKING:
    import pyarrow as pa

_log: Final = logging.getLogger("holdfast.spark")

_ABORTED: Final = (
    "%s was aborted: %s, and perhaps some of other tasks, are in the topics and stay there; "
    "when it is run again it writes them again"
)
_HEADERS: Final = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True)
class WriteResult(WriterCommitMessage):
    """The result of a task for the driver: all these records are acknowledged."""

    records: int
    bytes: int


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    return BatchWriter(options, schema, overwrite)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    return StreamWriter(options, schema, overwrite)


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError(
                'mode("overwrite") is not possible: records can only be added to a topic; write with mode("append")'
            )
        self._options = _planned(options, schema)

    @user_facing
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(iterator, self._options)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _log.info("%s written", _sum(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _log.warning(_ABORTED, "the batch", _sum(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """`overwrite` means `outputMode("complete")`: every batch writes the whole result, as in Spark's own sink."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:  # noqa: ARG002
        self._options = _planned(options, schema)

    @user_facing
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(iterator, self._options)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        _log.info("batch %d: %s written", batchId, _sum(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        _log.warning(_ABORTED, f"batch {batchId}", _sum(messages))


def _planned(options: Mapping[str, str], schema: StructType) -> WriteOptions:
    """Also called for every commit of a stream: Spark creates a new writer for each."""
    read = write_options(options)
    check_columns(schema, read.topic)
    return read


def _write(iterator: Iterator[pa.RecordBatch], options: WriteOptions) -> WriteResult:
    from holdfast.spark import producing  # the driver, which only plans and commits, does not need it

    return WriteResult(*producing.write(iterator, options.producer, options.topic))


def _sum(messages: Sequence[WriterCommitMessage | None]) -> str:
    written = [message for message in messages if isinstance(message, WriteResult)]
    return (
        f"{sum(message.records for message in written)} records of {len(written)} tasks "
        f"({sum(message.bytes for message in written)} bytes)"
    )


# -- columns -----------------------------------------------------------------------------------------------------------


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raises ConfigError, which names the column and what to write instead."""
    _check(schema, "value", (StringType, BinaryType), "string or binary", "CAST(value AS STRING) AS value")
    _check(schema, "key", (StringType, BinaryType), "string or binary", "CAST(key AS STRING) AS key")
    _check(schema, "partition", (IntegerType,), "int", "CAST(partition AS INT) AS partition")
    if topic is None:  # otherwise the column is not used
        _check(schema, "topic", (StringType,), "string", "CAST(topic AS STRING) AS topic")
    headers = _column(schema, "headers")
    if headers is not None and not _are_headers(headers):
        raise ConfigError(
            f"column headers is {headers.simpleString()}, but must be {_HEADERS}: write "
            f"CAST(headers AS {_HEADERS.upper()}) AS headers, or drop the column"
        )
    if _column(schema, "value") is None:
        raise ConfigError(
            "there is no column value, which is the one that is written: name one so, for instance with "
            f"to_json(struct(*)) AS value{_misnamed(schema, 'value')}"
        )
    if topic is None and _column(schema, "topic") is None:
        raise ConfigError(
            "where to write is missing: give the option topic, or a column topic that says it for each record"
            f"{_misnamed(schema, 'topic')}"
        )


def _check(schema: StructType, name: str, allowed: tuple[type[DataType], ...], allowed_as: str, instead: str) -> None:
    found = _column(schema, name)
    if found is not None and not isinstance(found, allowed):
        raise ConfigError(f"column {name} is {found.simpleString()}, but must be {allowed_as}: write {instead}")


def _column(schema: StructType, name: str) -> DataType | None:
    found = [column.dataType for column in schema.fields if column.name == name]
    if len(found) > 1:
        raise ConfigError(f"there are {len(found)} columns {name}: leave one of them, or rename the others")
    return found[0] if found else None


def _are_headers(column: DataType) -> bool:
    if not isinstance(column, ArrayType) or not isinstance(column.elementType, StructType):
        return False
    fields = [(field.name, type(field.dataType)) for field in column.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]


def _misnamed(schema: StructType, name: str) -> str:
    """Case-sensitive, as in Spark's own sink."""
    found = next((column.name for column in schema.fields if column.name.lower() == name), None)
    return f" (the column {found} is not it: write {found} AS {name})" if found else ""
