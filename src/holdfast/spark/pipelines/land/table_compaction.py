"""Merges small files of closed dates, and deletes files that are no longer needed.

The new files are written first. Then one snapshot for each partition replaces the old files with them atomically, so
readers see either the old or the new files. The old files are kept for the grace period, because readers may still use
them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.spark.pipelines.durable_files import UNFINISHED, shared_path
from holdfast.spark.pipelines.errors import Unwritable
from holdfast.spark.pipelines.land.manifest import DataFile, Replaced, Snapshot
from holdfast.spark.pipelines.land.manifest_chain import Chain
from holdfast.spark.pipelines.land.manifest_store import MANIFESTS, ManifestStore
from holdfast.spark.pipelines.land.table_reader import chains
from holdfast.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession

TARGET_BYTES: Final = 128 * 1024 * 1024
GRACE_S: Final = 24 * 3600.0
"""How long a file that no manifest lists is kept: longer than any batch and any query that reads the table."""


@dataclass(frozen=True, slots=True)
class Merge:
    """Files of one partition and date that become one."""

    where: TopicPartition
    date: str
    files: tuple[DataFile, ...]


@dataclass(slots=True)
class Compacted:
    merged_files: int = 0
    into_files: int = 0
    snapshots: int = 0
    swept_files: int = 0
    swept_bytes: int = 0


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
) -> Compacted:
    """Dates before `before` (today, UTC) are closed. Writers and readers may run at the same time."""
    store = ManifestStore(shared_path(path))

    def merge_all(merges: Sequence[Merge]) -> list[DataFile]:
        return merge_with_spark(spark, store.table, merges)

    try:
        return Compaction(store, merge_all, before=before, target_bytes=target_bytes, grace_s=grace_s).run(topics)
    except OSError as error:
        raise Unwritable.because(store.table, error) from error


class Compaction:
    def __init__(
        self,
        store: ManifestStore,
        merge_all: MergeAll,
        *,
        before: date | None = None,
        target_bytes: int = TARGET_BYTES,
        grace_s: float = GRACE_S,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._merge_all = merge_all
        self._before = (before or datetime.fromtimestamp(now_s(), UTC).date()).isoformat()
        self._target_bytes = target_bytes
        self._grace_ms = int(grace_s * 1000)
        self._now_s = now_s
        self._done = Compacted()

    def run(self, topics: Sequence[str] | None = None) -> Compacted:
        found = chains(self._store, topics)
        merges = [merge for chain in found for merge in merges_of(chain, self._before, self._target_bytes)]
        merged = dict(zip(merges, self._merge_all(merges), strict=True)) if merges else {}
        for directory in {(self._store.table / file.path).parent for file in merged.values()}:
            self._store.disk.sync_directory(directory)
        for chain in found:
            of_chain = {merge: file for merge, file in merged.items() if merge.where == chain.where}
            if of_chain or chain.entries:
                self._publish(chain, of_chain)
            self._store.delete_superseded(chain.where)
        for topic in sorted({chain.where[0] for chain in found}):
            self._sweep(topic)
        return self._done

    def _publish(self, chain: Chain, merged: dict[Merge, DataFile]) -> None:
        old = {file.path for merge in merged for file in merge.files}
        files = [file for file in chain.files if file.path not in old] + list(merged.values())
        now_ms = int(self._now_s() * 1000)
        still = [one for one in chain.replaced if one.at_ms + self._grace_ms > now_ms]
        snapshot = Snapshot(
            *chain.where,
            generation=chain.generation + 1,
            first=chain.first,
            end=chain.end,
            files=tuple(sorted(files, key=lambda file: (file.date, file.first))),
            lost=chain.lost,
            replaced=(*still, *(Replaced(path, now_ms) for path in sorted(old))),
        )
        assert sum(file.rows for file in snapshot.files) == chain.rows, "a merge has as many rows as its files"
        if self._store.publish(snapshot):
            self._done.snapshots += 1
            self._done.merged_files += len(old)
            self._done.into_files += len(merged)

    # -- deletion ------------------------------------------------------------------------------------------------------

    def _sweep(self, topic: str) -> None:
        """Deletes files that no manifest lists and that are old, or were replaced long ago.

        The files are listed before the manifests are read: files that are committed in between are found in the
        manifests, and files that a writer has not committed yet are young.
        """
        there = self._data_files(topic)
        listed: set[str] = set()
        replaced: dict[str, int] = {}
        for chain in chains(self._store, [topic]):
            listed |= {file.path for file in chain.files}
            replaced |= {one.path: one.at_ms for one in chain.replaced}
        for path in there:
            name = path.relative_to(self._store.table).as_posix()
            if name not in listed:
                self._remove_if_old(path, replaced.get(name))
        for path in self._unfinished(topic):
            self._remove_if_old(path, None)

    def _remove_if_old(self, path: Path, replaced_at_ms: int | None) -> None:
        try:
            about = path.stat()
        except FileNotFoundError:
            return
        since_ms = about.st_mtime_ns // 1_000_000 if replaced_at_ms is None else replaced_at_ms
        if since_ms + self._grace_ms <= int(self._now_s() * 1000):
            self._store.disk.remove(path)
            self._done.swept_files += 1
            self._done.swept_bytes += about.st_size

    def _data_files(self, topic: str) -> list[Path]:
        return sorted((self._store.table / f"topic={topic}").glob("date=*/*.parquet"))

    def _unfinished(self, topic: str) -> list[Path]:
        return sorted((self._store.table / MANIFESTS / topic).rglob(f"{UNFINISHED}*"))


def merges_of(chain: Chain, before: str, target_bytes: int) -> list[Merge]:
    """Neighbouring files of a closed date, merged up to the target size. A file that is large enough stays as it is."""
    merges: list[Merge] = []
    for day in sorted({file.date for file in chain.files if file.date < before}):
        small = [file for file in chain.files if file.date == day and file.size_bytes * 2 <= target_bytes]
        together: list[DataFile] = []
        size_bytes = 0
        for file in sorted(small, key=lambda one: one.first):
            if together and size_bytes + file.size_bytes > target_bytes:
                merges += [Merge(chain.where, day, tuple(together))] if len(together) > 1 else []
                together, size_bytes = [], 0
            together.append(file)
            size_bytes += file.size_bytes
        merges += [Merge(chain.where, day, tuple(together))] if len(together) > 1 else []
    return merges


def merge_with_spark(spark: SparkSession, table: Path, merges: Sequence[Merge]) -> list[DataFile]:
    """Each merge is a row, and a task of its own if there are enough cores."""
    import json

    from holdfast.spark.pipelines.land.parquet_merge import REPORT

    tasks = [(at, json.dumps(asdict(merge))) for at, merge in enumerate(merges)]
    rows = spark.createDataFrame(tasks, "at INT, merge STRING").repartition(min(len(tasks), 200), "at")
    reports = rows.mapInArrow(_on_executor(str(table)), REPORT).collect()
    for report in reports:
        if report.problem is not None:
            raise Unwritable.because(table, OSError(report.errno, report.problem))
    return [
        DataFile(one.path, one.date, one.first, one.end, one.rows, one.size_bytes)
        for one in sorted(reports, key=lambda report: report.at)
    ]


def _on_executor(table: str) -> Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    def merge(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        from holdfast.spark.pipelines.land.parquet_merge import merge_rows

        return merge_rows(batches, table)

    return merge
