"""A Parquet file of the table: the records of one partition that have one date."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from holdfast.types import TopicPartition

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
PARTITION_COLUMNS: Final = ("topic", "date")


@dataclass(frozen=True, slots=True)
class DataFile:
    path: str
    """Relative to the table."""
    topic: str
    partition: int
    date: str
    first: int
    end: int
    """The offset after the last record. The ranges of files with different dates may overlap; their records do not."""
    rows: int
    size_bytes: int
    min_time_us: int
    max_time_us: int
    """The timestamps of the records, in microseconds since 1970."""

    @property
    def where(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def partition_values(self) -> dict[str, str | None]:
        return {"topic": self.topic, "date": self.date}

    @property
    def stats(self) -> str:
        """The column statistics of the Delta protocol, by which readers skip files."""
        least: dict[str, Any] = {"partition": self.partition, "offset": self.first}
        most: dict[str, Any] = {"partition": self.partition, "offset": self.end - 1}
        times = _moment(self.min_time_us), _moment(self.max_time_us)
        if None not in times:
            least["timestamp"], most["timestamp"] = times
        nulls = dict.fromkeys(least, 0)
        return json.dumps(
            {"numRecords": self.rows, "minValues": least, "maxValues": most, "nullCount": nulls}, separators=(",", ":")
        )


def _moment(time_us: int) -> str | None:
    """In milliseconds, as the protocol requires; readers add one to the maximum. None outside of the calendar."""
    try:
        return (_EPOCH + timedelta(microseconds=time_us)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return None
