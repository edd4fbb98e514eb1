"""A writer of a Delta table as a process of its own: `python -m benchmarks.land_writer TABLE SEED LAST`.

It lands overlapping batches of all partitions, which it plans from the ends that it knew a while ago, as a query does
that was replaced and does not know it yet. It prints one line of JSON for each batch, until everything is landed.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from benchmarks.land_table import PARTITIONS, TOPIC, from_json
from holdfast.spark import arrow
from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.pipelines.land.data_file import DataFile
from holdfast.spark.pipelines.land.delta_log import DeltaLog
from holdfast.spark.pipelines.land.parquet_writer import file_of, write_rows
from holdfast.spark.pipelines.land.table_files import TableFiles
from holdfast.spark.pipelines.land.writer import TableWriter, Write
from holdfast.spark.pipelines.location import Location
from holdfast.types import TopicPartition

LONGEST: Final = 12
"""Records of a partition in a batch."""
_TIME_US: Final = 1_794_787_200_000_000


def main(location: Location, seed: int, last: int) -> None:
    chance = random.Random(seed)
    where = [(TOPIC, partition) for partition in range(PARTITIONS)]
    log = DeltaLog(location)
    writer = TableWriter(log, TableFiles(location), f"writer-{seed}")
    known = {one: end or 0 for one, end in log.ends(where).items()}
    while any(end < last for end in known.values()):
        ranges = [_planned(one, known[one], last, chance) for one in where if chance.random() < 0.7]
        done = writer.land([one for one in ranges if one.start < one.end], _writing(location))
        print(json.dumps({"rows": done.rows, "already": done.already, "conflicts": done.conflicts}), flush=True)
        # A batch is planned from what the group has committed, never beyond the table.
        known = {one: end or 0 for one, end in log.ends(where).items()}


def _planned(where: TopicPartition, end: int, last: int, chance: random.Random) -> OffsetRange:
    start = max(0, end - chance.randrange(LONGEST // 2))
    return OffsetRange(*where, start, min(last, start + 1 + chance.randrange(LONGEST)))


def _writing(location: Location) -> Write:
    def write(ranges: Sequence[OffsetRange]) -> list[DataFile]:
        batches = [_records(one) for one in ranges]
        reports = write_rows(batches, location)
        return [file_of(row) for report in reports for row in report.to_pylist()]

    return write


def _records(one: OffsetRange) -> pa.RecordBatch:
    rows = [
        {
            "key": None,
            "value": f"{one.partition}@{offset}".encode(),
            "topic": one.topic,
            "partition": one.partition,
            "offset": offset,
            "timestamp": _TIME_US + offset,
            "timestampType": 0,
            "headers": None,
        }
        for offset in range(one.start, one.end)
    ]
    return pa.RecordBatch.from_pylist(rows, arrow.schema(True))


if __name__ == "__main__":
    main(from_json(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
