"""What one task of a query reads, as it travels from the driver to an executor."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from holdfast.spark.offsets import OffsetRange


class Ranges(InputPartition):
    """The ranges of one task. They alone say what is read: the reader that comes along is the same for every batch."""

    def __init__(self, ranges: tuple[OffsetRange, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges

    def __repr__(self) -> str:
        return f"Ranges({', '.join(f'{one.topic}-{one.partition} {one.start}..{one.end}' for one in self.ranges)})"
