"""Spark applications of one group, restarted one after the other: static members must not affect the others."""

from __future__ import annotations

import itertools
from typing import Final

from benchmarks.librdkafka import new_topic
from benchmarks.measure import HOLDFAST, Plan, Result, Row, alternating, spread
from benchmarks.spark_rolling import SESSION_MS, TRIGGER_MS, rolling
from benchmarks.steady_producer import TICK_SECONDS, TICKS_AROUND
from benchmarks.tables import Target, Verdict, figure, paragraph, table
from tests.support.holdfast_broker import HoldfastBroker

NAME: Final = "spark-rolling-restart"
STATIC: Final = "static"
DYNAMIC: Final = "dynamic"
QUERIES: Final = 3
PARTITIONS: Final = 12
REBALANCE_TARGET: Final = Target("at most", 0, " rebalances")
GAP_TARGET: Final = Target("at most", 2.0)
_numbers: Final = itertools.count(1)


def run(plan: Plan) -> Result:
    rounds = plan.pick(full=plan.rounds, quick=1)
    rows: list[Row] = []
    with HoldfastBroker() as broker:
        for number in range(1, rounds + 1):
            for series in alternating((STATIC, DYNAMIC), number):
                with plan.attempt(series, HOLDFAST, number):
                    with new_topic(broker, PARTITIONS) as topic:
                        group = f"rolling-{next(_numbers)}"
                        figures = rolling(broker.bootstrap, topic, PARTITIONS, group, QUERIES, series == STATIC)
                    rows.append(Row(series, HOLDFAST, number, figures))
    return Result(
        NAME, {"queries": QUERIES, "partitions": PARTITIONS, "trigger_ms": TRIGGER_MS, "session_ms": SESSION_MS}, rows
    )


_SHOWN: Final = (
    ("rebalances of the group", "rebalances", 1.0),
    ("rebalances while an unrelated application restarts", "control_rebalances", 1.0),
    ("longest gap between two batches of the other queries, ms", "gap_s", 1e3),
    ("longest gap while an unrelated application restarts, ms", "control_gap_s", 1e3),
    ("longest wait of the other queries for their next offsets, ms", "latest_offset_s", 1e3),
    ("longest wait while an unrelated application restarts, ms", "control_latest_offset_s", 1e3),
    ("absence of a restarted query, s", "away_s", 1.0),
)


def section(result: Result) -> list[str]:
    settings = result.settings
    every_ms = round(TICK_SECONDS * TICKS_AROUND * 1000)
    text = (
        f"{settings['queries']} Spark applications with one query each read {settings['partitions']} partitions of a"
        f" Holdfast broker in one group. Every partition gets a record every {every_ms} ms. The trigger interval is"
        f" {settings['trigger_ms']} ms. The applications restart one after the other. Each restart begins when the"
        " query of the previous application receives rows again. In the column “static”, the queries have"
        " `kafka.group.instance.id`. The column “dynamic” is the control without this option. In both columns, the"
        f" queries have `kafka.session.timeout.ms={settings['session_ms']}`. The number of rebalances is the number of"
        " generations that the group forms during the restarts. The start of Spark uses both cores completely. A second"
        " control shows the effect of this load. In this control, an application of another group starts and stops. The"
        f" longest gap of the other queries must be at most {GAP_TARGET.value:g} times as long as the longest gap in"
        " the second control."
    )
    rows = [
        (
            what,
            *(
                figure([value * scale for value in result.values(series, HOLDFAST, name)])
                for series in (STATIC, DYNAMIC)
            ),
        )
        for what, name, scale in _SHOWN
    ]
    return [paragraph(text), "", *table(("", STATIC, DYNAMIC), rows)]


def verdicts(result: Result) -> list[Verdict]:
    if not result.has(STATIC, HOLDFAST):
        return []
    gaps, control = (result.values(STATIC, HOLDFAST, name) for name in ("gap_s", "control_gap_s"))
    what = f"Spark, rolling restart of {result.settings['queries']} static queries"
    ratio = spread([gap / alone for gap, alone in zip(gaps, control, strict=True)])
    return [
        Verdict(f"{what}: rebalances", REBALANCE_TARGET, spread(result.values(STATIC, HOLDFAST, "rebalances"))),
        Verdict(
            f"{what}: longest gap of the other queries ÷ longest gap while an unrelated application restarts",
            GAP_TARGET,
            ratio,
        ),
    ]
