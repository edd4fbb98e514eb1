"""One module per measurement: `run` takes the rounds, `section` shows them, `verdicts` holds them to the targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bench.cases import (
    assignors,
    codec,
    consume_client,
    flush,
    group_bounce,
    group_commits,
    group_heartbeats,
    group_joins,
    group_reload,
    latency,
    pauses,
    requests,
    spark_latency,
    spark_memory,
    spark_rolling_restart,
    spark_throughput,
    start,
    throughput,
)
from bench.measure import Plan, Result
from bench.tables import Verdict


@dataclass(frozen=True)
class Case:
    name: str
    title: str
    run: Callable[[Plan], Result]
    section: Callable[[Result], list[str]]
    verdicts: Callable[[Result], list[Verdict]]


def _no_target(_: Result) -> list[Verdict]:
    return []


CASES: Final = (
    Case(start.NAME, "Start and idle memory", start.run, start.section, start.verdicts),
    Case(throughput.NAME, "Produce and consume", throughput.run, throughput.section, throughput.verdicts),
    Case(
        consume_client.NAME,
        "The Python client",
        consume_client.run,
        consume_client.section,
        consume_client.verdicts,
    ),
    Case(requests.NAME, "Small requests", requests.run, requests.section, requests.verdicts),
    Case(latency.NAME, "Latency of single records", latency.run, latency.section, _no_target),
    Case(
        group_joins.NAME,
        "Groups: many members join at once",
        group_joins.run,
        group_joins.section,
        group_joins.verdicts,
    ),
    Case(
        group_heartbeats.NAME,
        "Groups: heartbeats",
        group_heartbeats.run,
        group_heartbeats.section,
        group_heartbeats.verdicts,
    ),
    Case(
        group_commits.NAME, "Groups: offset commits", group_commits.run, group_commits.section, group_commits.verdicts
    ),
    Case(group_bounce.NAME, "Groups: a rolling restart", group_bounce.run, group_bounce.section, group_bounce.verdicts),
    Case(
        group_reload.NAME, "Groups: reload after a kill", group_reload.run, group_reload.section, group_reload.verdicts
    ),
    Case(assignors.NAME, "Assignors", assignors.run, assignors.section, assignors.verdicts),
    Case(
        spark_throughput.NAME,
        "Spark: rows beside Spark's own source",
        spark_throughput.run,
        spark_throughput.section,
        spark_throughput.verdicts,
    ),
    Case(
        spark_latency.NAME,
        "Spark: tiny batches beside Spark's own source",
        spark_latency.run,
        spark_latency.section,
        spark_latency.verdicts,
    ),
    Case(
        spark_rolling_restart.NAME,
        "Spark: a rolling restart",
        spark_rolling_restart.run,
        spark_rolling_restart.section,
        spark_rolling_restart.verdicts,
    ),
    Case(
        spark_memory.NAME,
        "Spark: memory over many batches",
        spark_memory.run,
        spark_memory.section,
        spark_memory.verdicts,
    ),
    Case(pauses.NAME, "Pauses of the event loop", pauses.run, pauses.section, _no_target),
    Case(flush.NAME, "Flushing before every acknowledgement", flush.run, flush.section, _no_target),
    Case(codec.NAME, "Codec", codec.run, codec.section, _no_target),
)
"""In the order of the page."""
