"""Several writers land the same partitions into one Delta table and are killed: each record must be there once."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from deltalake import DeltaTable

from benchmarks.land_table import PARTITIONS, TOPIC, to_json
from benchmarks.measure import HOLDFAST, Plan, Result, Row, spread
from benchmarks.results import REPOSITORY
from benchmarks.tables import Target, Verdict, figure, paragraph, table
from holdfast.spark.pipelines.land.delta_entry import application_id
from holdfast.spark.pipelines.location import Location
from tests.support.s3_emulator import s3_emulator

NAME: Final = "land-writers"
DISK: Final = "disk"
S3: Final = "S3 emulator"
WRITERS: Final = 2
ZERO: Final = Target("at most", 0, "")
_PATIENCE_S: Final = 1800.0
_BATCHES_PER_KILL: Final = (1, 20)
_POLL_S: Final = 0.05


def run(plan: Plan) -> Result:
    """One round per store: the figures are counts, not times."""
    batches = plan.pick(full=1_000, quick=20)
    rows = []
    for store in (DISK, S3):
        with plan.attempt(store, HOLDFAST, 1), _table(store) as location:
            rows.append(Row(store, HOLDFAST, 1, _land(location, batches)))
    return Result(NAME, {"batches": batches, "writers": WRITERS, "partitions": PARTITIONS}, rows)


@contextlib.contextmanager
def _table(store: str) -> Iterator[Location]:
    if store == S3:
        with s3_emulator() as s3:
            yield Location.parse(f"s3://{s3.new_bucket()}/lake", "table", s3.options)
        return
    with tempfile.TemporaryDirectory(prefix="land-writers-") as directory:
        yield Location.parse(Path(directory) / "lake")


class _Writer:
    def __init__(self, location: Location, seed: int, last: int) -> None:
        self._output = tempfile.NamedTemporaryFile(prefix="land-writer-", suffix=".log")  # noqa: SIM115 - closed below
        command = [sys.executable, "-m", "benchmarks.land_writer", to_json(location), str(seed), str(last)]
        self.process = subprocess.Popen(command, cwd=REPOSITORY, stdout=self._output, stderr=subprocess.STDOUT)

    def batches(self) -> list[dict[str, Any]]:
        lines = Path(self._output.name).read_text().splitlines()
        failed = [line for line in lines if not line.startswith("{")]
        if failed and self.process.poll() not in (None, 0, -9):
            raise RuntimeError("\n".join(failed[-20:]))
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def _land(location: Location, batches: int) -> dict[str, float]:
    """Until all records are landed, which takes about this many batches."""
    last = batches * 3  # a batch advances a partition by about three records: the rest overlaps
    chance, kills, seed = random.Random(1), 0, WRITERS
    next_kill = chance.randint(*_BATCHES_PER_KILL)
    everyone = running = [_Writer(location, number, last) for number in range(WRITERS)]
    deadline = time.monotonic() + _PATIENCE_S
    try:
        while any(one.process.poll() is None for one in running):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the writers took longer than {_PATIENCE_S} s")
            time.sleep(chance.uniform(0, 2 * _POLL_S))
            alive = [one for one in running if one.process.poll() is None]
            if alive and next_kill <= sum(len(one.batches()) for one in everyone) < batches:
                next_kill += chance.randint(*_BATCHES_PER_KILL)
                chance.choice(alive).process.kill()
                kills, seed = kills + 1, seed + 1
                new = _Writer(location, seed, last)
                running = [*[one for one in running if one.process.poll() is None], new]
                everyone = [*everyone, new]
    finally:
        for one in everyone:
            one.process.kill()
            one.process.wait()
    done = [batch for one in everyone for batch in one.batches()]
    return {**_check(location, last), "batches": len(done), "kills": kills, **_sums(done)}


def _sums(done: list[dict[str, Any]]) -> dict[str, float]:
    return {
        "conflicts": sum(batch["conflicts"] for batch in done),
        "already": sum(batch["already"] for batch in done),
    }


def _check(location: Location, last: int) -> dict[str, float]:
    """Read by delta-rs."""
    landed = DeltaTable(location.url, storage_options=dict(location.storage_options) or None)
    rows = landed.to_pyarrow_table(columns=["partition", "offset", "value"])
    counted = Counter(zip(*(rows[name].to_pylist() for name in rows.column_names), strict=True))
    expected = {(at, offset, f"{at}@{offset}".encode()) for at in range(PARTITIONS) for offset in range(last)}
    ends = [landed.transaction_version(application_id((TOPIC, at))) for at in range(PARTITIONS)]
    if ends != [last] * PARTITIONS:
        raise RuntimeError(f"the partitions end at {ends}, and not at {last}")
    return {
        "rows": rows.num_rows,
        "duplicates": sum(counted.values()) - len(counted),
        "losses": len(expected - counted.keys()),
        "others": len(counted.keys() - expected),
        "entries": landed.version() + 1,
    }


def section(result: Result) -> list[str]:
    names = ("batches", "kills", "conflicts", "already", "entries", "rows", "duplicates", "losses")
    head = ("table", "batches", "kills", "conflicts", "records skipped", "entries of the log", "rows", *names[-2:])
    rows = [(store, *(figure(result.values(store, HOLDFAST, name)) for name in names)) for store in (DISK, S3)]
    return [paragraph(_method(result)), "", *table(head, rows)]


def _method(result: Result) -> str:
    settings = result.settings
    return (
        f"{settings['writers']} processes land the same {settings['partitions']} partitions into one table, without"
        " Spark. Their batches overlap, and each writer plans from the ends that it knew after its previous batch."
        f" Until there are {settings['batches']:,} batches, one of the writers is killed (SIGKILL) after every one to"
        " twenty batches, and another one is started. In the end, delta-rs reads the table. A conflict is a commit for"
        " which another writer was faster, so that the batch was compared with the table again and committed once more."
    )


def verdicts(result: Result) -> list[Verdict]:
    return [
        Verdict(f"Delta table, {WRITERS} writers with kills, {store}: {name}", ZERO, spread(values))
        for store in (DISK, S3)
        for name in ("duplicates", "losses")
        if (values := result.values(store, HOLDFAST, name))
    ]
