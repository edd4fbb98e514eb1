"""Merges small files of closed dates, and deletes files that are no longer needed.

The new files are written first. Then one commit for each topic replaces the old files with them, so readers see either
the old or the new files. The commit says that it changes no data, so streams that read the table do not read the
records again. The old files are kept for the grace period, because readers may still use them.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final

from deltalake import PostCommitHookProperties

from holdfast.client.errors import ConfigError
from holdfast.spark.pipelines.durable_files import UNFINISHED
from holdfast.spark.pipelines.errors import Unwritable
from holdfast.spark.pipelines.land.data_file import DataFile
from holdfast.spark.pipelines.land.delta_entry import LOG, Entry
from holdfast.spark.pipelines.land.delta_log import DeltaLog
from holdfast.spark.pipelines.land.delta_table import existing_table, flush_log, listing
from holdfast.spark.pipelines.land.table_files import TableFiles
from holdfast.spark.pipelines.location import Location
from holdfast.spark.pipelines.shared_files import SharedFiles
from holdfast.spark.pipelines.spark_errors import spark_errors
from holdfast.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession

TARGET_BYTES: Final = 128 * 1024 * 1024
GRACE_S: Final = 24 * 3600.0
"""How long a file that is not in the table is kept: longer than any batch and any query that reads the table."""
_HOUR_S: Final = 3600.0
_MAX_READER_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Merge:
    """Files of one partition and date that become one, in the order of their offsets."""

    files: tuple[DataFile, ...]

    @property
    def where(self) -> TopicPartition:
        return self.files[0].where

    @property
    def topic(self) -> str:
        return self.files[0].topic


@dataclass(slots=True)
class Compacted:
    merged_files: int = 0
    into_files: int = 0
    commits: int = 0
    deleted_files: int = 0


MergeAll = Callable[[Sequence[Merge]], Sequence[DataFile]]
"""Writes each merge as one file, and returns the files in the same order."""


def compact(
    spark: SparkSession,
    path: str | os.PathLike[str],
    topics: Sequence[str] | None = None,
    *,
    before: date | None = None,
    target_bytes: int = TARGET_BYTES,
    grace_s: float = GRACE_S,
    storage_options: Mapping[str, str] | None = None,
) -> Compacted:
    """Dates before `before` (today, UTC) are closed. Writers and readers may run at the same time."""
    location = Location.parse(path, "table", storage_options)

    def merge_all(merges: Sequence[Merge]) -> list[DataFile]:
        with spark_errors():
            return merge_with_spark(spark, location, merges)

    try:
        return Compaction(location, merge_all, before=before, target_bytes=target_bytes, grace_s=grace_s).run(topics)
    except OSError as error:
        raise Unwritable.because(str(location), error) from error


class Compaction:
    def __init__(
        self,
        location: Location,
        merge_all: MergeAll,
        *,
        before: date | None = None,
        target_bytes: int = TARGET_BYTES,
        grace_s: float = GRACE_S,
        now_s: Callable[[], float] = time.time,
        files: SharedFiles | None = None,
    ) -> None:
        """`files` is for tests."""
        self._location = location
        self._files = TableFiles(location, files)
        self._log = DeltaLog(location, files)
        self._merge_all = merge_all
        self._before = (before or datetime.fromtimestamp(now_s(), UTC).date()).isoformat()
        self._target_bytes = target_bytes
        self._grace_s = grace_s
        self._now_s = now_s
        self._done = Compacted()

    def run(self, topics: Sequence[str] | None = None) -> Compacted:
        table = self._log.open()
        _check_readable(table, self._location)
        files = data_files(table)
        _check_topics(topics, files, self._location)
        wanted = [file for file in files if topics is None or file.topic in topics]
        merges = merges_of(wanted, self._before, self._target_bytes)
        merged = dict(zip(merges, self._merge_all(merges), strict=True)) if merges else {}
        self._files.make_durable(merged.values())
        for topic in sorted({merge.topic for merge in merges}):
            self._exchange({merge: file for merge, file in merged.items() if merge.topic == topic})
        self._delete_unneeded()
        return self._done

    # -- merges --------------------------------------------------------------------------------------------------------

    def _exchange(self, merged: Mapping[Merge, DataFile]) -> None:
        """Commits the merges, without those of which another compaction has replaced a file."""
        while merged:
            for merge, file in merged.items():
                assert file.rows == sum(one.rows for one in merge.files), "a merge has as many rows as its files"
            self._files.mark_used(merged.values())
            at_ms = int(self._now_s() * 1000)
            removed = [file for merge in merged for file in merge.files]
            if self._log.append(Entry(list(merged.values()), "land-compact", at_ms, removed=removed)):
                self._done.commits += 1
                self._done.merged_files += len(removed)
                self._done.into_files += len(merged)
                return
            still = self._unreplaced(merged)
            for merge in merged.keys() - still.keys():
                self._files.remove(merged[merge].path)
            merged = still

    def _unreplaced(self, merged: Mapping[Merge, DataFile]) -> dict[Merge, DataFile]:
        """The merges whose files are all in the table."""
        if self._log.removed is None:
            there = set(self._log.open().get_add_actions(flatten=True)["path"].to_pylist())
            return {merge: file for merge, file in merged.items() if there.issuperset(_paths(merge))}
        return {merge: file for merge, file in merged.items() if self._log.removed.isdisjoint(_paths(merge))}

    # -- deletion ------------------------------------------------------------------------------------------------------

    def _delete_unneeded(self) -> None:
        """Deletes files that were replaced, or that no entry has ever listed, after the grace period; and entries of
        the log that are older than the table's `delta.logRetentionDuration` (30 days)."""
        hours = math.ceil(self._grace_s / _HOUR_S)
        table = existing_table(self._location)
        listing(self._location, table.create_checkpoint)
        if self._location.is_local:
            flush_log(self._location.path)
        listing(self._location, table.cleanup_metadata)
        deleted = listing(
            self._location,
            lambda: table.vacuum(
                hours,
                dry_run=False,
                enforce_retention_duration=False,
                full=True,
                post_commithook_properties=PostCommitHookProperties(False, False),
            ),
        )
        if deleted and self._location.is_local:  # delta-rs has written entries about it
            flush_log(self._location.path)
        self._done.deleted_files += len(deleted) + self._delete_unfinished()

    def _delete_unfinished(self) -> int:
        """Temporary files of entries, by writers that were killed."""
        if not self._location.is_local:
            return 0
        old = [
            path
            for path in (self._location.path / LOG).glob(f"{UNFINISHED}*")
            if path.stat().st_mtime + self._grace_s <= self._now_s()
        ]
        for path in old:
            path.unlink(missing_ok=True)
        return len(old)


def _paths(merge: Merge) -> set[str]:
    return {file.path for file in merge.files}


def _check_readable(table: DeltaTable, location: Location) -> None:
    """A file with a deletion vector has rows that are not in the table. Raises ConfigError."""
    if table.protocol().min_reader_version > _MAX_READER_VERSION:
        raise ConfigError(
            f"another program has enabled features of {location} that this command does not support: compact the table "
            "with that program (OPTIMIZE)"
        )


def _check_topics(topics: Sequence[str] | None, files: Sequence[DataFile], location: Location) -> None:
    known = sorted({file.topic for file in files})
    for topic in topics or ():
        if topic not in known:
            raise ConfigError(f"{location} has no topic {topic!r}; it has {', '.join(known) or 'none'}")


def data_files(table: DeltaTable) -> list[DataFile]:
    """The files of the table that have records of one partition. Other programs may have written others."""
    import pyarrow as pa

    found: list[DataFile] = []
    for row in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        one = row.get("min.partition")
        known = (row.get(f"{what}.{name}") for what in ("min", "max") for name in ("offset", "timestamp"))
        if one is None or one != row.get("max.partition") or None in known:
            continue
        times = row["min.timestamp"], row["max.timestamp"]
        found.append(
            DataFile(
                row["path"],
                row["partition.topic"],
                one,
                row["partition.date"].isoformat(),
                row["min.offset"],
                row["max.offset"] + 1,
                row["num_records"],
                row["size_bytes"],
                *(int(moment.timestamp() * 1_000_000) for moment in times),
            )
        )
    return found


def merges_of(files: Sequence[DataFile], before: str, target_bytes: int) -> list[Merge]:
    """Neighbouring files of a closed date, merged up to the target size. A file that is large enough stays as it is."""
    merges: list[Merge] = []
    together: list[DataFile] = []
    size_bytes = 0
    small = [file for file in files if file.date < before and file.size_bytes * 2 <= target_bytes]
    for file in sorted(small, key=lambda one: (*one.where, one.date, one.first)):
        belongs = bool(together) and (together[-1].where, together[-1].date) == (file.where, file.date)
        if not belongs or size_bytes + file.size_bytes > target_bytes:
            merges += [Merge(tuple(together))] if len(together) > 1 else []
            together, size_bytes = [], 0
        together.append(file)
        size_bytes += file.size_bytes
    return merges + ([Merge(tuple(together))] if len(together) > 1 else [])


def merge_with_spark(spark: SparkSession, location: Location, merges: Sequence[Merge]) -> list[DataFile]:
    """Each merge is a row, and a task of its own if there are enough cores."""
    import json

    from holdfast.spark.pipelines.land.parquet_merge import REPORT
    from holdfast.spark.pipelines.land.parquet_writer import file_of

    tasks = [(at, json.dumps([asdict(file) for file in merge.files])) for at, merge in enumerate(merges)]
    rows = spark.createDataFrame(tasks, "at INT, files STRING").repartition(min(len(tasks), 200), "at")
    reports = rows.mapInArrow(_on_executor(location), REPORT).collect()
    return [file_of(report) for report in sorted(reports, key=lambda report: report.at)]


def _on_executor(location: Location) -> Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    def merge(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[Any]:
        from holdfast.spark.pipelines.land.parquet_merge import merge_rows

        return merge_rows(batches, location)

    return merge
