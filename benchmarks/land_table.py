"""Delta tables without Spark: batches of a topic with 12 partitions, committed by Holdfast or by delta-rs."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from typing import Final

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.transaction import AddAction

from holdfast.spark.pipelines.land.data_file import PARTITION_COLUMNS, DataFile
from holdfast.spark.pipelines.land.delta_entry import Entry, application_id, encode, entry_name
from holdfast.spark.pipelines.land.delta_log import DeltaLog
from holdfast.spark.pipelines.land.delta_table import create_table, schema, write_checkpoint
from holdfast.spark.pipelines.location import Location
from holdfast.types import TopicPartition

TOPIC: Final = "orders"
PARTITIONS: Final = 12
PER_PARTITION: Final = 1_000
_CHECKPOINT_INTERVAL: Final = 10_000
_DAY: Final = "2026-11-16"
_DAY_US: Final = 1_794_787_200_000_000


def batch(number: int, partitions: int = PARTITIONS) -> Entry:
    """The entry of a batch, with one file for each partition. The files themselves do not exist."""
    first = number * PER_PARTITION
    files = [
        DataFile(
            f"topic={TOPIC}/date={_DAY}/{partition}-{first:020d}-{uuid.uuid4().hex}.parquet",
            TOPIC,
            partition,
            _DAY,
            first,
            first + PER_PARTITION,
            PER_PARTITION,
            50_000,
            _DAY_US,
            _DAY_US + 1_000_000,
        )
        for partition in range(partitions)
    ]
    return Entry(files, "bench", time.time_ns() // 1_000_000, ends(number + 1, partitions))


def ends(batches: int, partitions: int = PARTITIONS) -> Mapping[TopicPartition, int]:
    return {(TOPIC, partition): batches * PER_PARTITION for partition in range(partitions)}


def table_with(location: Location, commits: int, partitions: int = PARTITIONS) -> None:
    """A table with this many batches and a checkpoint. Its entries are written as files: that is faster. delta-rs takes
    minutes and gigabytes for 100,000 entries without a checkpoint, so there are some in between, as `land` has them."""
    create_table(location)
    for number in range(commits):
        content = encode(batch(number, partitions), uuid.uuid4().hex)
        if location.is_local:
            (location.path / entry_name(number + 1)).write_bytes(content)
        else:
            location.store.put(entry_name(number + 1), content)
        if number and number % _CHECKPOINT_INTERVAL == 0:
            write_checkpoint(location)
    write_checkpoint(location)


class HoldfastCommits:
    def __init__(self, location: Location, partitions: int = PARTITIONS) -> None:
        self._log = DeltaLog(location)
        self._log.ends(ends(0, partitions))

    def commit(self, entry: Entry) -> None:
        if not self._log.append(entry):
            raise RuntimeError("another writer has committed")

    def close(self) -> None:
        self._log.close()


class DeltaRsCommits:
    """As Holdfast would have to do it with delta-rs: the table object is advanced after each commit."""

    def __init__(self, location: Location) -> None:
        self._table = DeltaTable(location.url, storage_options=dict(location.storage_options) or None)

    def commit(self, entry: Entry) -> None:
        added = [
            AddAction(file.path, file.size_bytes, file.partition_values, entry.at_ms, True, file.stats)
            for file in entry.added
        ]
        transactions = [Transaction(application_id(where), end, entry.at_ms) for where, end in entry.ends.items()]
        self._table.create_write_transaction(
            list(added),
            "append",
            schema(),
            list(PARTITION_COLUMNS),
            commit_properties=CommitProperties(app_transactions=transactions),
            post_commithook_properties=PostCommitHookProperties(False, False),
        )
        self._table.update_incremental()

    def close(self) -> None:
        """There is nothing to wait for."""


def to_json(location: Location) -> str:
    return json.dumps({"url": location.url, "options": dict(location.storage_options)})


def from_json(text: str) -> Location:
    given = json.loads(text)
    return Location.parse(given["url"], "table", given["options"])
