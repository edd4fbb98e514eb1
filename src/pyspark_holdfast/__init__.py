"""The module that Spark finds for `format("holdfast")`.

Spark imports every module whose name begins with `pyspark_` when a format is first used, in every query of every user.
So this module imports nothing else before it is used.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


@contextmanager
def _collector_paused() -> Iterator[None]:
    """For imports. The garbage collector would examine all objects of PySpark several times meanwhile, which is a sixth
    of the time that the import takes."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class DefaultSource(DataSource):
    """Topics of Apache Kafka or Holdfast, read as a member of a consumer group. See docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    def schema(self) -> str:
        with _collector_paused():
            from holdfast.spark import source
        return source.schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        with _collector_paused():
            from holdfast.spark import source
        return source.batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        with _collector_paused():
            from holdfast.spark import source
        return source.stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        with _collector_paused():
            from holdfast.spark import source
        return source.batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        with _collector_paused():
            from holdfast.spark import source
        return source.stream_writer(self.options, schema, overwrite)
