"""On the executors: the records of a batch become totals, which are added to those of the runs and written as a new
run.

Errors are reported in a row, like results, so that the user reads one sentence and not the stack trace of a task.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.client.errors import HoldfastError
from holdfast.spark.pipelines.aggregate.aggregate_settings import AggregateSettings
from holdfast.spark.pipelines.aggregate.expiry import dropped_before, without_dropped
from holdfast.spark.pipelines.aggregate.run_cache import RunCache
from holdfast.spark.pipelines.aggregate.run_files import encode_run, open_run, run_file_of
from holdfast.spark.pipelines.aggregate.state_store import StateStore
from holdfast.spark.pipelines.aggregate.totals import Run, TotalsBuilder, advanced, merged, to_merge
from holdfast.spark.pipelines.aggregate.version import RunFile, Version, run_file
from holdfast.spark.pipelines.location import Location
from holdfast.spark.pipelines.shared_files import SharedFiles
from holdfast.types import TopicPartition

REPORT: Final = "report STRING"
"""A line of JSON for each partition, or an error."""
_REPORT: Final = pa.schema([("report", pa.string())])


@dataclass(frozen=True, slots=True)
class Work:
    """The input of a task."""

    state: Location
    cache: str
    began_s: float
    settings: AggregateSettings
    versions: Mapping[TopicPartition, Version]
    """The current versions of the partitions to process; records from their ends on are added."""
    max_concurrent: int = 1
    """The number of partitions of a task that are processed concurrently. Most of that time is spent waiting for the
    device."""
    keep_us: int | None = None
    """How long windows are kept after their end; None: forever."""


@dataclass(frozen=True, slots=True)
class Advanced:
    """The result for a partition: all the runs of its next version."""

    where: TopicPartition
    runs: tuple[RunFile, ...]
    records: int
    keys: int
    loaded_bytes: int
    written_bytes: int
    dropped_before_us: int | None = None


def aggregate_rows(
    batches: Iterable[pa.RecordBatch], work: Work, files: SharedFiles | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields rows of `REPORT`."""
    try:
        store = StateStore(work.state, files)
        reports = [asdict(one) for one in _advance_all(_gather(batches, work), work, store)]
    except (OSError, HoldfastError) as error:
        for _ in batches:  # Spark reports another error if a task does not read its input to the end
            continue
        reports = [_problem(error)]
    if reports:
        yield pa.RecordBatch.from_pylist([{"report": json.dumps(one)} for one in reports], _REPORT)


def read_report(line: str) -> Advanced:
    """Raises the error that the task has reported: OSError, or an error of Holdfast by its name."""
    report = json.loads(line)
    if "problem" not in report:
        topic, partition = report.pop("where")
        runs = tuple(run_file(one) for one in report.pop("runs"))
        return Advanced((str(topic), int(partition)), runs, **report)
    if report["errno"] is not None:
        raise OSError(report["errno"], report["problem"])
    error = _ERRORS_BY_NAME[report["kind"]].__new__(_ERRORS_BY_NAME[report["kind"]])
    HoldfastError.__init__(error, report["problem"])
    raise error


def _problem(error: OSError | HoldfastError) -> dict[str, Any]:
    if isinstance(error, OSError):
        return {"problem": f"{error.strerror or error}", "errno": error.errno or 0, "kind": "OSError"}
    return {"problem": str(error), "errno": None, "kind": type(error).__name__}


def _gather(batches: Iterable[pa.RecordBatch], work: Work) -> dict[TopicPartition, TotalsBuilder]:
    gathered: dict[TopicPartition, TotalsBuilder] = {}
    for batch in batches:
        for where, rows in split(batch):
            version = work.versions.get(where)
            kept = None if version is None else _rows_from(rows, version.end)
            if kept is not None:
                gathered.setdefault(where, TotalsBuilder(work.settings)).add(kept)
    return gathered


def split(batch: pa.RecordBatch) -> list[tuple[TopicPartition, pa.RecordBatch]]:
    """By topic and partition. Most batches have one of each."""
    topics, numbers = (batch.column(name).dictionary_encode() for name in ("topic", "partition"))
    wheres = [(topic, number) for topic in topics.dictionary.to_pylist() for number in numbers.dictionary.to_pylist()]
    if len(wheres) <= 1:
        return [(where, batch) for where in wheres]
    parts = []
    for topic, number in wheres:
        is_here = pc.and_(pc.equal(batch.column("topic"), topic), pc.equal(batch.column("partition"), number))
        rows = batch.filter(is_here)
        if rows.num_rows:
            parts.append(((topic, number), rows))
    return parts


def _rows_from(rows: pa.RecordBatch, floor: int) -> pa.RecordBatch | None:
    offsets = rows.column("offset")
    if pc.min(offsets).as_py() < floor:
        rows = rows.filter(pc.greater_equal(offsets, floor))
    return rows if rows.num_rows else None


def _advance_all(gathered: Mapping[TopicPartition, TotalsBuilder], work: Work, store: StateStore) -> list[Advanced]:
    if work.max_concurrent == 1 or len(gathered) == 1:
        return [_advance(where, one, work, store) for where, one in sorted(gathered.items())]
    with ThreadPoolExecutor(work.max_concurrent) as threads:
        return list(threads.map(lambda item: _advance(item[0], item[1], work, store), sorted(gathered.items())))


def _advance(where: TopicPartition, gathered: TotalsBuilder, work: Work, store: StateStore) -> Advanced:
    version, settings = work.versions[where], work.settings
    cache = RunCache(Path(work.cache), work.began_s)
    cache.evict_others(where, {run.name for run in version.runs})
    loaded_bytes = sum(cache.load(where, run, store.run(where, run.name)) for run in version.runs)
    runs: list[Run] = [open_run(cache.path(where, run.name), settings) for run in version.runs]
    table = advanced(gathered.totals(), runs, settings)
    keys = table.num_rows
    merge = to_merge(keys, [run.rows for run in version.runs])
    table = merged([table, *(run.table for run in runs[:merge])], settings)
    before_us = dropped_before(
        version.dropped_before_us, gathered.newest_us, work.keep_us, settings, time.time_ns() // 1_000
    )
    table = without_dropped(table, before_us)
    name = f"{version.end:020d}-{uuid.uuid4().hex}.arrow"
    content = encode_run(table, settings)
    store.write_run(where, name, content)
    cache.put(where, name, content)
    new = run_file_of(name, table, content)
    return Advanced(where, (new, *version.runs[merge:]), gathered.records, keys, loaded_bytes, len(content), before_us)


def _errors_by_name() -> dict[str, type[HoldfastError]]:
    from holdfast.spark.pipelines.aggregate.errors import RunMissing, SumOverflow
    from holdfast.spark.pipelines.errors import Damaged, TooNew

    return {one.__name__: one for one in (RunMissing, SumOverflow, Damaged, TooNew)}


_ERRORS_BY_NAME: Final = _errors_by_name()
