"""On the executors: the records of a batch become totals, these are added to what the runs have, and a new run is made.

What goes wrong is told in a row like what went well, so that the user reads one sentence and not the stack of a task.
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
from holdfast.spark.offsets import Where
from holdfast.spark.pipelines.disk import Disk
from holdfast.spark.pipelines.enrich.cache import Cache
from holdfast.spark.pipelines.enrich.expiry import dropped_before, without_dropped
from holdfast.spark.pipelines.enrich.runs import encode_run, open_run, run_file_of
from holdfast.spark.pipelines.enrich.settings import Settings
from holdfast.spark.pipelines.enrich.store import StateStore
from holdfast.spark.pipelines.enrich.totals import Gathering, Run, advanced, merged, to_merge
from holdfast.spark.pipelines.enrich.version import RunFile, Version, run_file

REPORT: Final = "report STRING"
"""A line of JSON for each partition, or why there is none."""
_REPORT: Final = pa.schema([("report", pa.string())])


@dataclass(frozen=True, slots=True)
class Work:
    """What a task needs to know."""

    state: str
    cache: str
    began_s: float
    settings: Settings
    versions: Mapping[Where, Version]
    """What counts of the partitions that are wanted; records from their ends on are taken in."""
    at_once: int = 1
    """So many partitions of a task are worked on at the same time: most of it is waiting for the device."""
    keep_us: int | None = None
    """How long windows are kept after their end; None: forever."""


@dataclass(frozen=True, slots=True)
class Advanced:
    """What became of a partition: all the runs of its next version."""

    where: Where
    runs: tuple[RunFile, ...]
    records: int
    keys: int
    loaded_bytes: int
    written_bytes: int
    dropped_before_us: int | None = None


def enrich_rows(batches: Iterable[pa.RecordBatch], work: Work, disk: Disk | None = None) -> Iterator[pa.RecordBatch]:
    """Yields what `REPORT` says."""
    try:
        reports = [asdict(one) for one in _advance_all(_gather(batches, work), work, disk or Disk())]
    except (OSError, HoldfastError) as error:
        for _ in batches:  # Spark takes it for a fault of its own when a task does not read to the end
            continue
        reports = [_problem(error)]
    if reports:
        yield pa.RecordBatch.from_pylist([{"report": json.dumps(one)} for one in reports], _REPORT)


def read_report(line: str) -> Advanced:
    """Raises what the task could not raise itself: OSError, or an error of ours by its name."""
    said = json.loads(line)
    if "problem" not in said:
        topic, partition = said.pop("where")
        runs = tuple(run_file(one) for one in said.pop("runs"))
        return Advanced((str(topic), int(partition)), runs, **said)
    if said["errno"] is not None:
        raise OSError(said["errno"], said["problem"])
    error = _OURS[said["kind"]].__new__(_OURS[said["kind"]])
    HoldfastError.__init__(error, said["problem"])
    raise error


def _problem(error: OSError | HoldfastError) -> dict[str, Any]:
    if isinstance(error, OSError):
        return {"problem": f"{error.strerror or error}", "errno": error.errno or 0, "kind": "OSError"}
    return {"problem": str(error), "errno": None, "kind": type(error).__name__}


def _gather(batches: Iterable[pa.RecordBatch], work: Work) -> dict[Where, Gathering]:
    gathered: dict[Where, Gathering] = {}
    for batch in batches:
        for where, rows in split(batch):
            version = work.versions.get(where)
            kept = None if version is None else _from(rows, version.end)
            if kept is not None:
                gathered.setdefault(where, Gathering(work.settings)).add(kept)
    return gathered


def split(batch: pa.RecordBatch) -> list[tuple[Where, pa.RecordBatch]]:
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


def _from(rows: pa.RecordBatch, floor: int) -> pa.RecordBatch | None:
    offsets = rows.column("offset")
    if pc.min(offsets).as_py() < floor:
        rows = rows.filter(pc.greater_equal(offsets, floor))
    return rows if rows.num_rows else None


def _advance_all(gathered: Mapping[Where, Gathering], work: Work, disk: Disk) -> list[Advanced]:
    if work.at_once == 1 or len(gathered) == 1:
        return [_advance(where, one, work, disk) for where, one in sorted(gathered.items())]
    with ThreadPoolExecutor(work.at_once) as threads:
        return list(threads.map(lambda item: _advance(item[0], item[1], work, disk), sorted(gathered.items())))


def _advance(where: Where, gathered: Gathering, work: Work, disk: Disk) -> Advanced:
    version, settings = work.versions[where], work.settings
    store, cache = StateStore(Path(work.state), disk), Cache(Path(work.cache), work.began_s)
    cache.forget_others(where, {run.name for run in version.runs})
    loaded_bytes = sum(cache.load(where, run, store.run_path(where, run.name)) for run in version.runs)
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
    disk.create(store.run_path(where, name), content)
    cache.keep(where, name, content)
    new = run_file_of(name, table, content)
    return Advanced(where, (new, *version.runs[merge:]), gathered.records, keys, loaded_bytes, len(content), before_us)


def _ours() -> dict[str, type[HoldfastError]]:
    from holdfast.spark.pipelines.enrich.errors import RunGone, SumOverflow
    from holdfast.spark.pipelines.errors import Damaged, TooNew

    return {one.__name__: one for one in (RunGone, SumOverflow, Damaged, TooNew)}


_OURS: Final = _ours()
