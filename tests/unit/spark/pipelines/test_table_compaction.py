"""Small files become larger ones; no reader sees a row twice or misses one, and no writer is led astray."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

import pytest
from pyarrow import parquet as pq

from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.pipelines.land.manifest import DataFile, Entry, encode
from holdfast.spark.pipelines.land.manifest_chain import BrokenChain, Chain
from holdfast.spark.pipelines.land.manifest_store import ManifestStore
from holdfast.spark.pipelines.land.parquet_merge import merge_files
from holdfast.spark.pipelines.land.table_compaction import Compaction, Merge, merges_of
from holdfast.spark.pipelines.land.writer import TableWriter, WrittenFile
from holdfast.types import TopicPartition
from tests.unit.spark.pipelines.land_harness import (
    A_DATE_MS,
    DAY_MS,
    TOPIC,
    compaction,
    data_files,
    every,
    land,
    rows_of,
    writing,
)

NOW_S = time.time() + 10 * 86_400
HOUR_S = 3600.0
OLD_MS = A_DATE_MS - 20 * DAY_MS


def chain_of(table: Path) -> Chain:
    chain = ManifestStore(table).chain((TOPIC, 0))
    assert chain is not None
    return chain


def filled(table: Path, batches: int = 4) -> None:
    for number in range(batches):
        land(table, (0, number * 5, number * 5 + 5), at_ms=OLD_MS)


def manifests(table: Path, kind: str) -> list[str]:
    return sorted(path.name for path in (table / "_manifests" / TOPIC / "0" / kind).iterdir())


def test_the_small_files_of_a_closed_date_become_one(tmp_path: Path) -> None:
    filled(tmp_path)
    before = rows_of(tmp_path)

    done = compaction(tmp_path, now_s=lambda: NOW_S).run()

    assert rows_of(tmp_path) == before == every((0, 0, 20))
    (file,) = chain_of(tmp_path).files
    assert (file.first, file.end, file.rows) == (0, 20, 20)
    assert pq.read_table(tmp_path / file.path, partitioning=None).column("offset").to_pylist() == list(range(20))
    assert (done.merged_files, done.into_files, done.snapshots) == (4, 1, 1)
    assert manifests(tmp_path, "entries") == []


def test_files_of_an_open_date_stay_as_they_are(tmp_path: Path) -> None:
    filled(tmp_path)
    files = chain_of(tmp_path).files

    opened = Compaction(ManifestStore(tmp_path), _no_merge, before=date.fromisoformat(files[0].date))
    done = opened.run()

    assert chain_of(tmp_path).files == files
    assert (done.merged_files, done.snapshots) == (0, 1)


def _no_merge(merges: Sequence[Merge]) -> list[DataFile]:
    raise AssertionError(f"nothing to merge: {merges}")


def test_landing_continues_behind_a_snapshot_and_the_next_one_includes_it(tmp_path: Path) -> None:
    filled(tmp_path)
    compaction(tmp_path, now_s=lambda: NOW_S).run()
    land(tmp_path, (0, 18, 25), at_ms=OLD_MS)
    assert rows_of(tmp_path) == every((0, 0, 25))

    compaction(tmp_path, now_s=lambda: NOW_S).run()

    assert rows_of(tmp_path) == every((0, 0, 25))
    assert chain_of(tmp_path).generation == 2
    assert len(manifests(tmp_path, "snapshots")) == 1


def test_a_compaction_with_nothing_to_do_writes_nothing(tmp_path: Path) -> None:
    filled(tmp_path)
    compaction(tmp_path, now_s=lambda: NOW_S).run()

    again = compaction(tmp_path, now_s=lambda: NOW_S).run()

    assert again.snapshots == 0
    assert chain_of(tmp_path).generation == 1


def test_replaced_files_stay_for_the_grace_time(tmp_path: Path) -> None:
    """However old they are: it counts from when they were replaced."""
    filled(tmp_path)
    old = data_files(tmp_path)

    compaction(tmp_path, now_s=lambda: NOW_S, grace_s=HOUR_S).run()
    assert old <= data_files(tmp_path), "somebody may be reading them"
    compaction(tmp_path, now_s=lambda: NOW_S + HOUR_S - 1, grace_s=HOUR_S).run()
    assert old <= data_files(tmp_path)
    swept = compaction(tmp_path, now_s=lambda: NOW_S + HOUR_S, grace_s=HOUR_S).run()

    assert swept.swept_files == 4
    assert data_files(tmp_path) == {file.path for file in chain_of(tmp_path).files}
    assert rows_of(tmp_path) == every((0, 0, 20))


def test_a_file_that_is_large_enough_stays_and_merges_keep_to_the_target() -> None:
    sizes = [60, 10, 10, 25, 30, 45, 5]
    files = [DataFile(f"topic=t/{at}", "2020-01-01", at, at + 1, 1, size) for at, size in enumerate(sizes)]
    other_day = [DataFile("topic=t/x", "2020-01-02", 7, 8, 1, 1), DataFile("topic=t/y", "2020-01-03", 8, 9, 1, 1)]
    chain = Chain((TOPIC, 0), 0, 9, (*files, *other_day))

    merges = merges_of(chain, "2020-01-03", 100)

    assert [[file.size_bytes for file in merge.files] for merge in merges] == [[10, 10, 25, 30], [45, 5]]


def test_headers_stay_where_some_files_have_none(tmp_path: Path) -> None:
    import pyarrow as pa

    from holdfast.spark import arrow
    from holdfast.spark.pipelines.land.parquet_writer import write_rows
    from tests.unit.spark.pipelines.land_harness import record_batch, written

    plain = record_batch([(OffsetRange(TOPIC, 0, 0, 2), OLD_MS)])
    headers = pa.array([[{"key": "from", "value": b"shop"}]] * 2, arrow.schema(True).field("headers").type)
    later = record_batch([(OffsetRange(TOPIC, 0, 2, 4), OLD_MS)]).append_column("headers", headers)
    files = [
        one.file for batch in (plain, later) for one in written(write_rows([batch], str(tmp_path), {(TOPIC, 0): 0}))
    ]

    merged = merge_files(tmp_path, files)

    read = pq.read_table(tmp_path / merged.path, partitioning=None)
    assert read.column("headers").to_pylist() == [None, None, *headers.to_pylist()]
    assert read.column("offset").to_pylist() == [0, 1, 2, 3]


class TrustsFreeNames(ManifestStore):
    """Takes a name that is free for the end of the chain, though a compaction may have freed it."""

    def append(self, entry: Entry) -> bool:
        return self.disk.create(self._entries((entry.topic, entry.partition)) / entry.name, encode(entry))


def overtaken(table: Path, store: ManifestStore) -> None:
    """A writer that has written its files, and stands still while others land the same and a compaction runs."""
    batch = [OffsetRange(TOPIC, 0, 0, 12)]
    write = writing(table, batch, OLD_MS)

    def slow(floors: Mapping[TopicPartition, int]) -> list[WrittenFile]:
        files = list(write(floors))
        if floors[TOPIC, 0] == 0:
            land(table, (0, 0, 5), at_ms=OLD_MS)
            land(table, (0, 5, 10), at_ms=OLD_MS)
            compaction(table, now_s=lambda: NOW_S, grace_s=100 * 86_400).run()
        return files

    TableWriter(store, "slow").land(batch, slow)


def test_a_writer_that_comes_after_a_compaction_lands_only_the_rest(tmp_path: Path) -> None:
    overtaken(tmp_path, ManifestStore(tmp_path))

    assert rows_of(tmp_path) == every((0, 0, 12))
    assert len(chain_of(tmp_path).files) == 2


def test_the_control_a_store_that_trusts_free_names_leaves_records_out(tmp_path: Path) -> None:
    overtaken(tmp_path, TrustsFreeNames(tmp_path))

    assert rows_of(tmp_path) != every((0, 0, 12))


def test_of_two_compactions_at_once_one_counts(tmp_path: Path) -> None:
    filled(tmp_path)

    def slow(merges: Sequence[Merge]) -> list[DataFile]:
        land(tmp_path, (0, 20, 25), at_ms=OLD_MS)
        compaction(tmp_path, now_s=lambda: NOW_S).run()
        return [merge_files(tmp_path, merge.files) for merge in merges]

    done = Compaction(ManifestStore(tmp_path), slow, now_s=lambda: NOW_S).run()

    assert done.snapshots == 0
    assert rows_of(tmp_path) == every((0, 0, 25))


def test_a_chain_that_was_cut_by_hand_is_one_clear_error(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "_manifests" / TOPIC / "0" / "entries" / f"{5:020d}.json").unlink()

    with pytest.raises(BrokenChain, match="numbers-0 ends at 5, and its next entry begins at 10"):
        compaction(tmp_path, now_s=lambda: NOW_S).run()
