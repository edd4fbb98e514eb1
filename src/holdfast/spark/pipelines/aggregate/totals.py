"""Totals by key, as Arrow: built from records, looked up in runs, and merged. Pure functions, without file access.

Each row is a key (and window) with its count, its sum, and its last value. Rows are sorted by `hash`, which is computed
from key and window; if two keys have the same hash, the keys are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.spark.pipelines.aggregate.aggregate_settings import AggregateSettings
from holdfast.spark.pipelines.aggregate.errors import SumOverflow

MAX_BUFFERED_ROWS: Final = 500_000
MAX_BUFFERED_BYTES: Final = 128 * 1024 * 1024
"""Records that are buffered before they become totals: few calls, and memory that does not grow with the batch."""
_SIXTY_FOUR_BITS: Final = 1 << 63
_EXACT: Final = pa.decimal128(38, 0)
_NULL_IF_NONE: Final = pc.ScalarAggregateOptions(skip_nulls=True, min_count=1)


class TotalsBuilder:
    """Builds the totals of records of one partition, which are added in the order of their offsets."""

    def __init__(self, settings: AggregateSettings) -> None:
        self._settings = settings
        self._buffered: list[pa.Table] = []
        self._rows = self._bytes = 0
        self.records = 0
        self.newest_us = -_SIXTY_FOUR_BITS
        """The highest timestamp."""

    def add(self, records: pa.RecordBatch) -> None:
        """Columns `hash`, those of the identity, `amount`, `last`, `time` and `offset`, according to the settings."""
        self._buffered.append(self._as_totals(records))
        self.records += records.num_rows
        self.newest_us = max(self.newest_us, pc.max(records.column("time")).as_py())
        self._rows += records.num_rows
        self._bytes += records.nbytes
        if self._rows >= MAX_BUFFERED_ROWS or self._bytes >= MAX_BUFFERED_BYTES:
            self._combine()

    def totals(self) -> pa.Table:
        self._combine()
        return self._buffered[0]

    def _combine(self) -> None:
        # The combined table has a row per key; only records added from now on count for the next time.
        self._buffered = [_combined(pa.concat_tables(self._buffered), self._settings)]
        self._rows = self._bytes = 0

    def _as_totals(self, records: pa.RecordBatch) -> pa.Table:
        columns = {name: records.column(name) for name in ("hash", *self._settings.identity, "time", "offset")}
        columns["count"] = pa.array(np.ones(records.num_rows, np.int64))
        if self._settings.amount is not None:
            columns["sum"] = records.column("amount")
        if self._settings.last is not None:
            columns["last"] = records.column("last").cast(pa.large_binary())
        return pa.table({name: columns[name] for name in self._settings.schema.names})


def _combined(rows: pa.Table, settings: AggregateSettings) -> pa.Table:
    """One row for each key, sorted by hash; of several rows, the last one has the last value.

    Keys stay `binary` until the end: Arrow groups by these seven times faster than by `large_binary`.
    """
    by = ["hash", *settings.identity]
    counted = rows.select([*by, "count"]).append_column("at", pa.array(np.arange(rows.num_rows)))
    wanted: list[tuple[Any, ...]] = [("count", "sum"), ("at", "max")]
    if settings.amount is not None:
        counted = counted.append_column("sum", _summable(rows["sum"]))
        wanted.append(("sum", "sum", _NULL_IF_NONE))
    groups = counted.group_by(by, use_threads=False).aggregate(wanted)
    groups = groups.take(pa.array(np.argsort(groups["hash"].to_numpy())))
    columns = {name: groups[name] for name in by}
    columns["count"] = groups["count_sum"]
    if settings.amount is not None:
        columns["sum"] = _checked_sums(groups["sum_sum"], groups["key"], settings)
    newest = rows.select([name for name in ("last", "time", "offset") if name in rows.schema.names])
    newest = newest.take(groups["at_max"])
    columns |= {name: newest[name] for name in newest.schema.names}
    return pa.table({name: columns[name] for name in settings.schema.names}).combine_chunks()


def _summable(sums: pa.ChunkedArray) -> pa.ChunkedArray:
    """Arrow's 64-bit sums overflow silently. If they could, they are computed with more bits."""
    if not pa.types.is_int64(sums.type):
        return sums
    bounds = pc.min_max(sums).as_py()
    largest = max((abs(bound) for bound in bounds.values() if bound is not None), default=0)
    return sums if largest * len(sums) < _SIXTY_FOUR_BITS else sums.cast(_EXACT)


def _checked_sums(sums: pa.ChunkedArray, keys: pa.ChunkedArray, settings: AggregateSettings) -> pa.ChunkedArray:
    if sums.type != _EXACT:
        return sums
    least, most = pa.scalar(-_SIXTY_FOUR_BITS).cast(_EXACT), pa.scalar(_SIXTY_FOUR_BITS - 1).cast(_EXACT)
    outside = pc.or_(pc.less(sums, least), pc.greater(sums, most))
    _check_overflow(outside.combine_chunks().fill_null(False).to_numpy(zero_copy_only=False), keys, settings)
    return sums.cast(pa.int64())


def _check_overflow(overflown: Any, keys: pa.ChunkedArray, settings: AggregateSettings) -> None:
    if overflown.any():
        key = keys[int(np.flatnonzero(overflown)[0])].as_py()
        raise SumOverflow(
            f"the sum of {settings.amount} for the key {key!r} does not fit into 64 bits; nothing was changed. Count "
            "it as a DOUBLE, or in larger units, into a new state"
        )


# -- added to existing totals ------------------------------------------------------------------------------------------


class Run(NamedTuple):
    table: pa.Table
    """A table of one chunk."""
    hashes: Any
    """The hash column, as a numpy array."""

    @classmethod
    def of(cls, table: pa.Table) -> Run:
        return cls(table, table["hash"].chunk(0).to_numpy() if table.num_rows else np.empty(0, np.int64))


def advanced(touched: pa.Table, runs: Sequence[Run], settings: AggregateSettings) -> pa.Table:
    """The new totals of the changed keys; the runs, the newest first, have the old ones."""
    counts = touched["count"].to_numpy().copy()
    sums, has_sum = _sums(touched, settings)
    wanted = touched.select(["hash", *settings.identity])
    left = np.arange(touched.num_rows)
    for run in runs:
        at = positions(run, wanted.take(pa.array(left)), settings)
        hit = at >= 0
        who, found = left[hit], run.table.select(_counted(settings)).take(pa.array(at[hit]))
        counts[who] += found["count"].to_numpy()
        if settings.amount is not None:
            sums[who] = _added(sums[who], found, touched["key"], who, settings)
            has_sum[who] |= _sums(found, settings)[1]
        left = left[~hit]
        if not left.size:
            break
    columns = {name: touched[name] for name in settings.schema.names}
    columns["count"] = pa.array(counts)
    if settings.amount is not None:
        columns["sum"] = pa.array(sums, mask=~has_sum)
    return pa.table(columns).cast(settings.schema).combine_chunks()


def _counted(settings: AggregateSettings) -> list[str]:
    return ["count"] if settings.amount is None else ["count", "sum"]


def _sums(rows: pa.Table, settings: AggregateSettings) -> tuple[Any, Any]:
    """The sums, 0 for null, and which of them are not null."""
    if settings.amount is None:
        return None, None
    filled = rows["sum"].combine_chunks().fill_null(0).to_numpy(zero_copy_only=False)
    return filled.copy(), rows["sum"].is_valid().to_numpy().copy()


def _added(new: Any, found: pa.Table, keys: pa.ChunkedArray, who: Any, settings: AggregateSettings) -> Any:
    old, _ = _sums(found, settings)
    total = new + old
    if total.dtype == np.int64:  # after an overflow its sign differs from both signs
        _check_overflow((new ^ total) & (old ^ total) < 0, keys.take(pa.array(who)), settings)
    return total


def positions(run: Run, wanted: pa.Table, settings: AggregateSettings) -> Any:
    """The rows of these keys in the run; -1 for missing keys. The time is proportional to the number of wanted keys."""
    at = np.full(wanted.num_rows, -1)
    if not run.hashes.size:
        return at
    hashes = wanted["hash"].to_numpy()
    first = np.searchsorted(run.hashes, hashes)
    inside = np.minimum(first, run.hashes.size - 1)
    hits = np.flatnonzero(run.hashes[inside] == hashes)
    hits = hits[first[hits] < run.hashes.size]
    same = _same(run.table, first[hits], wanted, hits, settings)
    at[hits[same]] = first[hits[same]]
    for who in hits[~same]:  # another key has this hash, which is very rare
        at[who] = _walk(run, int(first[who]) + 1, wanted, int(who), settings)
    return at


def _walk(run: Run, at: int, wanted: pa.Table, who: int, settings: AggregateSettings) -> int:
    identity = _identity(wanted, who, settings)
    while at < run.hashes.size and run.hashes[at] == wanted["hash"][who].as_py():
        if _identity(run.table, at, settings) == identity:
            return at
        at += 1
    return -1


def _identity(rows: pa.Table, at: int, settings: AggregateSettings) -> tuple[Any, ...]:
    return tuple(rows[name][at].as_py() for name in settings.identity)


def _same(one: pa.Table, at: Any, other: pa.Table, other_at: Any, settings: AggregateSettings) -> Any:
    """Whether these rows have the same key and window. Null is a key as well."""
    same = np.ones(len(at), bool)
    for name in settings.identity:
        mine = one[name].take(pa.array(at))
        yours = other[name].take(pa.array(other_at)).cast(mine.type)
        equal = pc.or_(pc.fill_null(pc.equal(mine, yours), False), pc.and_(mine.is_null(), yours.is_null()))
        same &= equal.to_numpy()
    return same


# -- merging runs ------------------------------------------------------------------------------------------------------


def to_merge(rows: int, older: Sequence[int]) -> int:
    """How many of the older runs, the newest first, are merged into a new one: as long as it is at least half of the
    next.

    So the number of runs is logarithmic in the size of the state, and a total is written again only when its run has
    about doubled.
    """
    count = 0
    while count < len(older) and rows * 2 >= older[count]:
        rows += older[count]
        count += 1
    return count


def merged(tables: Sequence[pa.Table], settings: AggregateSettings) -> pa.Table:
    """One run of several, the newest first: if a key is in more than one, the newest is kept."""
    if len(tables) == 1:
        return tables[0]
    rows = pa.concat_tables(tables).combine_chunks()
    hashes = rows["hash"].to_numpy()
    order = np.argsort(hashes, kind="stable")  # the runs are sorted: this is a merge
    hashes = hashes[order]
    again = np.flatnonzero(hashes[1:] == hashes[:-1]) + 1
    same = _same(rows, order[again], rows, order[again - 1], settings)
    kept = np.ones(len(order), bool)
    kept[again[same]] = False
    for hash_ in np.unique(hashes[again[~same]]):
        _keep_newest(rows, order, kept, hashes, hash_, settings)
    return rows.take(pa.array(order[kept]))


def _keep_newest(rows: pa.Table, order: Any, kept: Any, hashes: Any, hash_: Any, settings: AggregateSettings) -> None:
    """Equal keys among several keys with the same hash need not be adjacent."""
    seen = set()
    for at in range(np.searchsorted(hashes, hash_), np.searchsorted(hashes, hash_, "right")):
        identity = _identity(rows, int(order[at]), settings)
        kept[at] = identity not in seen
        seen.add(identity)
