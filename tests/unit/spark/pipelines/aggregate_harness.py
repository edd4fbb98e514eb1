"""A state without Spark: topics as lists of records, batches as Arrow, and what a plain recount says."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.pipelines.aggregate.aggregate_settings import AggregateSettings
from holdfast.spark.pipelines.aggregate.state_store import StateStore
from holdfast.spark.pipelines.aggregate.task import Advanced, Work, aggregate_rows, read_report
from holdfast.spark.pipelines.aggregate.totals_reader import totals_of, versions_of
from holdfast.spark.pipelines.aggregate.version import Version
from holdfast.spark.pipelines.aggregate.writer import Advance, AggregateResult, AggregateWriter
from holdfast.spark.pipelines.shared_files import SharedFiles
from holdfast.types import TopicPartition
from tests.unit.spark.pipelines.places import DiskPlace, Place

TOPIC = "payments"
MINUTE_US = 60_000_000
WHOLE = AggregateSettings("key", "binary", "amount", "bigint", "value", "binary")
WINDOWED = replace(WHOLE, window_us=MINUTE_US)
COUNTED = AggregateSettings("key", "binary")

Hash = Callable[[bytes | None, int | None], int]
Identity = tuple[str, int, bytes | None, int | None]
"""Topic, partition, key and window."""


@dataclass(frozen=True)
class Record:
    key: bytes | None
    amount: int | float | None = 1
    at_us: int = 0
    value: bytes | None = b"v"


def by_key(key: bytes | None, window: int | None) -> int:
    return zlib.crc32(repr((key, window)).encode()) - (1 << 31)


def always_the_same(_key: bytes | None, _window: int | None) -> int:
    return 7


def records_of(numbers: Iterable[int], keys: int = 10) -> list[Record]:
    """Different in everything, and some without a key, an amount or a value."""
    return [
        Record(
            None if number % keys == 3 else b"key %d" % (number % keys),
            None if number % 7 == 5 else number,
            number * 9_000_000,
            None if number % 11 == 5 else b"value %d" % number,
        )
        for number in numbers
    ]


def record_batch(
    where: TopicPartition,
    first: int,
    records: Sequence[Record],
    settings: AggregateSettings = WHOLE,
    hash_: Hash = by_key,
) -> pa.RecordBatch:
    """As the query's plan gives them to a task."""
    window_us = settings.window_us
    windows = [None if window_us is None else one.at_us - one.at_us % window_us for one in records]
    columns: dict[str, Any] = {
        "topic": pa.array([where[0]] * len(records), pa.string()),
        "partition": pa.array([where[1]] * len(records), pa.int32()),
        "offset": pa.array(range(first, first + len(records)), pa.int64()),
        "time": pa.array([one.at_us for one in records], pa.int64()),
        "key": pa.array([one.key for one in records], pa.binary()),
        "hash": pa.array([hash_(one.key, at) for one, at in zip(records, windows, strict=True)], pa.int64()),
    }
    if window_us is not None:
        columns["window"] = pa.array(windows, pa.int64())
    if settings.amount is not None:
        kind = pa.float64() if settings.amount_type == "double" else pa.int64()
        columns["amount"] = pa.array([one.amount for one in records], kind)
    if settings.last is not None:
        columns["last"] = pa.array([one.value for one in records], pa.binary())
    return pa.RecordBatch.from_pydict(columns)


class AggregateHarness:
    """Topics with records, and one place for a state; members with caches of their own."""

    def __init__(
        self,
        directory: Path,
        settings: AggregateSettings = WHOLE,
        hash_: Hash = by_key,
        *,
        place: Place | None = None,
    ) -> None:
        self.directory = directory
        self.place = place or DiskPlace(directory / "state")
        self.settings = settings
        self.hash = hash_
        self.topic: dict[int, list[Record]] = {}
        self.began_s = 1.0

    def produce(self, partition: int, records: Iterable[Record]) -> None:
        self.topic.setdefault(partition, []).extend(records)

    def store(self, files: SharedFiles | None = None) -> StateStore:
        return StateStore(self.place.location, files or self.place.files())

    def member(self, name: str, files: SharedFiles | None = None, **options: Any) -> AggregatingMember:
        return AggregatingMember(self, name, files or self.place.files(), **options)

    def totals(self) -> dict[Identity, tuple[Any, ...]]:
        """All that the state says: count, sum, last value, its time and its offset."""
        settings, versions = versions_of(self.store())
        rows: dict[Identity, tuple[Any, ...]] = {}
        for version in versions:
            for row in totals_of(self.store(), settings, version).to_pylist():
                window = row.get("window")
                identity = row["topic"], row["partition"], row["key"], None if window is None else _micros(window)
                assert identity not in rows, "a key stands once"
                last = row["last_timestamp"]
                rows[identity] = row["count"], row.get("sum"), row.get("last"), _micros(last), row["last_offset"]
        return rows

    def recount(self, *ranges: tuple[int, int, int]) -> dict[Identity, tuple[Any, ...]]:
        """The same, from the records of (partition, start, end), one by one."""
        rows: dict[Identity, tuple[Any, ...]] = {}
        for partition, start, end in ranges:
            for offset in range(start, end):
                one = self.topic[partition][offset]
                window = None if self.settings.window_us is None else one.at_us - one.at_us % self.settings.window_us
                identity = TOPIC, partition, one.key, window
                count, total, *_ = rows.get(identity, (0, None))
                if self.settings.amount is not None and one.amount is not None:
                    total = (total or 0) + one.amount
                last = one.value if self.settings.last is not None else None
                rows[identity] = count + 1, total, last, one.at_us, offset
        return rows


def _micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


class AggregatingMember:
    """One query: what Spark's tasks do is done here."""

    def __init__(self, world: AggregateHarness, name: str, files: SharedFiles, **options: Any) -> None:
        self._harness = world
        self._files = files
        self.cache = world.directory / "caches" / name
        self.store = world.store(files)
        self.store.create_or_check_settings(world.settings)
        self._max_concurrent: int = options.get("max_concurrent", 1)
        self._keep_us: int | None = options.pop("keep_us", None)
        self.writer = AggregateWriter(self.store, name, **options)

    def apply(self, *ranges: tuple[int, int, int], advance: Advance | None = None) -> AggregateResult:
        """Batches of (partition, start, end)."""
        wanted = [OffsetRange(TOPIC, *one) for one in ranges]
        return self.writer.apply(wanted, advance or self.advancing(*ranges))

    def advancing(self, *ranges: tuple[int, int, int], without: Iterable[int] = ()) -> Advance:
        gone = frozenset(without)

        def advance(versions: Mapping[TopicPartition, Version]) -> list[Advanced]:
            places = self._harness.place.location, str(self.cache), self._harness.began_s
            work = Work(*places, self._harness.settings, dict(versions), self._max_concurrent, self._keep_us)
            batches = [batch for one in ranges for batch in self._batches(*one, gone)]
            reports = [row for batch in aggregate_rows(iter(batches), work, self._files) for row in batch.to_pylist()]
            return [read_report(row["report"]) for row in reports]

        return advance

    def _batches(self, partition: int, start: int, end: int, gone: frozenset[int]) -> list[pa.RecordBatch]:
        world, batches = self._harness, []
        for first in range(start, end, 3):
            records = world.topic[partition][first : min(first + 3, end)]
            batch = record_batch((TOPIC, partition), first, records, world.settings, world.hash)
            mask = [offset not in gone for offset in batch.column("offset").to_pylist()]
            batches.append(batch.filter(pa.array(mask, pa.bool_())))
        return [batch for batch in batches if batch.num_rows]
