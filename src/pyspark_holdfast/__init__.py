"""The module that Spark finds for `format("holdfast")`.

Spark imports every module whose name begins with `pyspark_` when a format is first used, in every query of every user.
So this module imports nothing else before it is used.
"""

from __future__ import annotations

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


class DefaultSource(DataSource):
    """Topics of Apache Kafka or Holdfast, read as a member of a consumer group. See docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    def schema(self) -> str:
        from holdfast.spark import source

        return source.schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from holdfast.spark import source

        return source.batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from holdfast.spark import source

        return source.stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from holdfast.spark import source

        return source.batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from holdfast.spark import source

        return source.stream_writer(self.options, schema, overwrite)
