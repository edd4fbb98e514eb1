"""One module per measurement: `run` measures the rounds, `section` shows them, `verdicts` compares them with the
targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from benchmarks.cases import (
    assignors,
    codec,
    compaction_pause,
    consume_client,
    flush,
    forming,
    gateway_commits,
    gateway_router,
    gateway_start,
    group_bounce,
    group_commits,
    group_heartbeats,
    group_joins,
    group_reload,
    growth,
    idle_extensions,
    land_commits,
    land_writers,
    latency,
    latency_rate,
    long_fetch,
    many_topics,
    pauses,
    requests,
    scale_up,
    size_commits,
    size_heartbeats,
    size_joins,
    size_partitions,
    size_start,
    soak,
    spark_aggregate,
    spark_aggregate_restart,
    spark_forensics,
    spark_land,
    spark_land_delta,
    spark_latency,
    spark_memory,
    spark_rolling_restart,
    spark_throughput,
    start,
    takeover,
    throughput,
)
from benchmarks.measure import Plan, Result
from benchmarks.tables import Verdict


@dataclass(frozen=True)
class Case:
    name: str
    title: str
    run: Callable[[Plan], Result]
    section: Callable[[Result], list[str]]
    verdicts: Callable[[Result], list[Verdict]]
    pictures: Callable[[Result], dict[str, str]] = lambda _: {}
    """By the names of their files, below the pictures of the page."""


def _no_target(_: Result) -> list[Verdict]:
    return []


_BY_SIZE: Final = tuple(
    Case(case.NAME, f"Cost by size: {what}", case.run, case.section, case.verdicts, case.pictures)
    for case, what in (
        (size_heartbeats, "heartbeats"),
        (size_commits, "offset commits"),
        (size_joins, "joins"),
        (size_partitions, "partitions"),
        (size_start, "start of a broker with partitions"),
    )
)

CASES: Final = (
    Case(start.NAME, "Start and idle memory", start.run, start.section, start.verdicts),
    Case(throughput.NAME, "Produce and consume", throughput.run, throughput.section, throughput.verdicts),
    Case(
        consume_client.NAME,
        "The Python client compared with other clients",
        consume_client.run,
        consume_client.section,
        consume_client.verdicts,
    ),
    Case(long_fetch.NAME, "Reading a gigabyte", long_fetch.run, long_fetch.section, long_fetch.verdicts),
    Case(requests.NAME, "Small requests", requests.run, requests.section, requests.verdicts),
    Case(many_topics.NAME, "Many topics in one request", many_topics.run, many_topics.section, many_topics.verdicts),
    Case(latency.NAME, "Latency of single records", latency.run, latency.section, _no_target),
    Case(
        latency_rate.NAME,
        "Latency at a thousand records per second",
        latency_rate.run,
        latency_rate.section,
        latency_rate.verdicts,
    ),
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
    *_BY_SIZE,
    Case(scale_up.NAME, "Beyond Kafka: a registered scale-up", scale_up.run, scale_up.section, scale_up.verdicts),
    Case(forming.NAME, "Beyond Kafka: a registered group forms", forming.run, forming.section, forming.verdicts),
    Case(takeover.NAME, "Beyond Kafka: a standby takes over", takeover.run, takeover.section, takeover.verdicts),
    Case(growth.NAME, "Beyond Kafka: a topic grows", growth.run, growth.section, growth.verdicts),
    Case(
        idle_extensions.NAME,
        "Beyond Kafka: idle registrations and standbys",
        idle_extensions.run,
        idle_extensions.section,
        idle_extensions.verdicts,
    ),
    Case(
        gateway_router.NAME,
        "Gateway: produce and consume",
        gateway_router.run,
        gateway_router.section,
        gateway_router.verdicts,
    ),
    Case(
        gateway_commits.NAME,
        "Gateway: offset commits",
        gateway_commits.run,
        gateway_commits.section,
        gateway_commits.verdicts,
    ),
    Case(
        gateway_start.NAME,
        "Gateway: start after a kill",
        gateway_start.run,
        gateway_start.section,
        gateway_start.verdicts,
    ),
    Case(assignors.NAME, "Assignors", assignors.run, assignors.section, assignors.verdicts),
    Case(
        spark_throughput.NAME,
        "Spark: throughput compared with Spark's own source",
        spark_throughput.run,
        spark_throughput.section,
        spark_throughput.verdicts,
    ),
    Case(
        spark_latency.NAME,
        "Spark: small batches compared with Spark's own source",
        spark_latency.run,
        spark_latency.section,
        spark_latency.verdicts,
    ),
    Case(spark_land.NAME, "Spark: landing a topic", spark_land.run, spark_land.section, spark_land.verdicts),
    Case(
        spark_land_delta.NAME,
        "Spark: landing compared with Spark's own source and delta-spark",
        spark_land_delta.run,
        spark_land_delta.section,
        spark_land_delta.verdicts,
    ),
    Case(
        land_commits.NAME,
        "Commits to a Delta table",
        land_commits.run,
        land_commits.section,
        land_commits.verdicts,
    ),
    Case(
        land_writers.NAME,
        "Several writers of a Delta table, with kills",
        land_writers.run,
        land_writers.section,
        land_writers.verdicts,
    ),
    Case(
        spark_aggregate.NAME,
        "Spark: totals per key",
        spark_aggregate.run,
        spark_aggregate.section,
        spark_aggregate.verdicts,
    ),
    Case(
        spark_aggregate_restart.NAME,
        "Spark: restart of a member with state",
        spark_aggregate_restart.run,
        spark_aggregate_restart.section,
        spark_aggregate_restart.verdicts,
    ),
    Case(
        spark_forensics.NAME,
        "Spark: forensics",
        spark_forensics.run,
        spark_forensics.section,
        spark_forensics.verdicts,
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
    Case(
        compaction_pause.NAME,
        "Waiting while a topic is compacted",
        compaction_pause.run,
        compaction_pause.section,
        _no_target,
    ),
    Case(soak.NAME, "Soak test: mixed load", soak.run, soak.section, soak.verdicts),
    Case(flush.NAME, "Flushing before every acknowledgement", flush.run, flush.section, _no_target),
    Case(codec.NAME, "Codec", codec.run, codec.section, _no_target),
)
"""In the order of the page."""
