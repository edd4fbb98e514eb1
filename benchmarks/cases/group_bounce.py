"""A rolling restart of static members, which must not affect the other members. The control is the same with dynamic
members."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from typing import Any, Final

from benchmarks.librdkafka import new_topic
from benchmarks.measure import HOLDFAST, KAFKA, Plan, Result, Row, alternating, spread
from benchmarks.results import REPOSITORY
from benchmarks.servers import Broker, both
from benchmarks.steady_producer import TICK_SECONDS, TICKS_AROUND
from benchmarks.tables import Target, Verdict, figure, paragraph, table

NAME: Final = "group-bounce"
STATIC: Final = "static members"
DYNAMIC: Final = "dynamic members"
REBALANCE_TARGET: Final = Target("at most", 0, " rebalances")
PAUSE_TARGET: Final = Target("at most", 2.0)
_CLIENT_TIMEOUT_SECONDS: Final = 600
_numbers: Final = itertools.count(1)


def run(plan: Plan) -> Result:
    members, partitions = plan.pick(full=40, quick=4), plan.pick(full=200, quick=20)
    bounces = {STATIC: members, DYNAMIC: plan.pick(full=3, quick=1)}
    heartbeat_ms = plan.pick(full=3000, quick=300)
    rounds = plan.pick(full=plan.rounds, quick=1)
    rows: list[Row] = []
    with both() as brokers:
        for number in range(1, rounds + 1):
            for series, count in bounces.items():
                for name in alternating(brokers, number):
                    with plan.attempt(series, name, number):
                        figures = _round(brokers[name], partitions, members, count, heartbeat_ms, series == STATIC)
                        rows.append(Row(series, name, number, figures))
    settings = {"members": members, "partitions": partitions, "bounces": bounces, "heartbeat_ms": heartbeat_ms}
    return Result(NAME, settings, rows)


def _round(
    broker: Broker, partitions: int, members: int, bounces: int, heartbeat_ms: int, static: bool
) -> dict[str, float]:
    with new_topic(broker, partitions) as topic:
        options: dict[str, Any] = {
            "bootstrap": broker.bootstrap,
            "group": f"bounce-{next(_numbers)}",
            "topic": topic,
            "partitions": partitions,
            "members": members,
            "bounces": bounces,
            "heartbeat_ms": heartbeat_ms,
            "static": static,
        }
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.bounce", json.dumps(options)],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=_CLIENT_TIMEOUT_SECONDS,
            check=False,
        )
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise RuntimeError(f"the bounced group failed: {said[-1]}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


_SHOWN: Final = (
    ("rebalances", "rebalances", 1.0),
    ("longest gap between two records of a member, ms", "gap_s", 1e3),
    ("longest gap without restarts, ms", "quiet_gap_s", 1e3),
    ("absence of a restarted member (median), s", "away_s", 1.0),
    ("duration of all restarts, s", "seconds", 1.0),
)


def section(result: Result) -> list[str]:
    settings = result.settings
    bounces = settings["bounces"]
    every_ms = round(TICK_SECONDS * TICKS_AROUND * 1000)
    text = (
        f"One process runs {settings['members']} confluent-kafka consumers in one group. The consumers read"
        f" {settings['partitions']} partitions. A producer in another process writes one record to every partition"
        f" every {every_ms} ms. The members restart one after the other. Each restart begins when the previous member"
        f" receives records again. All {bounces[STATIC]} members restart with `group.instance.id`. In the control,"
        f" {bounces[DYNAMIC]} members restart without `group.instance.id`. The session timeout is librdkafka's default,"
        f" 45 s. Members send heartbeats every {settings['heartbeat_ms']} ms (default: 3000 ms). The measurement ends"
        " two heartbeat intervals after the last restart. The number of rebalances is the number of revocations at the"
        " member with the most revocations. Revocations at a member that is restarting do not count. The longest gap is"
        " the longest time between two records of any member that is not restarting. The table also shows the longest"
        f" gap in a period of the same length without restarts. The longest gap must be at most {PAUSE_TARGET.value:g}"
        " times as long as the longest gap without restarts."
    )
    rows = [
        (
            f"{series}: {what}",
            *(figure([value * scale for value in result.values(series, server, name)]) for server in (HOLDFAST, KAFKA)),
        )
        for series in (STATIC, DYNAMIC)
        for what, name, scale in _SHOWN
    ]
    return [paragraph(text), "", *table(("", "Holdfast", "Apache Kafka"), rows)]


def verdicts(result: Result) -> list[Verdict]:
    if not result.has(STATIC, HOLDFAST):
        return []
    rebalances = result.values(STATIC, HOLDFAST, "rebalances")
    gaps = zip(result.values(STATIC, HOLDFAST, "gap_s"), result.values(STATIC, HOLDFAST, "quiet_gap_s"), strict=True)
    what = f"rolling restart of {result.settings['members']} static members"
    return [
        Verdict(f"{what}: rebalances", REBALANCE_TARGET, spread(rebalances)),
        Verdict(
            f"{what}: longest gap of the other members ÷ longest gap without restarts",
            PAUSE_TARGET,
            spread([a / b for a, b in gaps]),
        ),
    ]
