"""Thousands of static members join one group at once: the time until each has its assignment."""

from __future__ import annotations

import itertools
from typing import Final

from benchmarks.measure import HOLDFAST, KAFKA, Plan, Result, Row, alternating
from benchmarks.members import JOIN_VERSION, join_all, remove_all
from benchmarks.servers import Broker, both, settle
from benchmarks.tables import Target, Verdict, figure, paragraph, table, times

NAME: Final = "group-joins"
TARGET: Final = Target("at most", 0.9)
LARGE_TARGET: Final = Target("at most", 1.0)
"""For the largest group."""
HEARTBEAT_MS: Final = 100
MESSAGE_MAX_BYTES: Final = 20 * 1024 * 1024

_NO_DELAY: Final = {"group.initial.rebalance.delay.ms": "0"}
_numbers: Final = itertools.count(1)


def run(plan: Plan) -> Result:
    sizes = [plan.pick(full=1000, quick=50), plan.pick(full=5000, quick=200)]
    warm_ups = plan.pick(full=5, quick=1)
    rows: list[Row] = []
    # A group is one record, in Kafka of at most message.max.bytes; in Holdfast it can fill a whole segment by default.
    with both(_NO_DELAY, {**_NO_DELAY, "message.max.bytes": str(MESSAGE_MAX_BYTES)}) as brokers:
        for name, broker in brokers.items():
            for _ in range(warm_ups):
                with plan.attempt(series(sizes[0]), name, 0):
                    _round(broker, sizes[0])
        for number in range(1, plan.rounds + 1):
            for size in sizes:
                for name in alternating(brokers, number):
                    settle()
                    with plan.attempt(series(size), name, number):
                        rows.append(Row(series(size), name, number, _round(brokers[name], size)))
    return Result(NAME, {"sizes": sizes, "warm_ups": warm_ups, "message_max_bytes": MESSAGE_MAX_BYTES}, rows)


def series(members: int) -> str:
    return f"{members:,} static members"


def _round(broker: Broker, members: int) -> dict[str, float]:
    group = f"joins-{next(_numbers)}"
    figures = join_all(broker, group, members, HEARTBEAT_MS)
    remove_all(broker, group)
    return figures


_SHOWN: Final = (
    ("time until the group is stable, s", "seconds"),
    ("generations until the group is stable", "generations"),
    ("requests", "requests"),
    ("server CPU, s", "server_cpu_s"),
    ("client CPU, s", "client_cpu_s"),
    ("server CPU s per million members", "server_cpu_per_million"),
)


def section(result: Result) -> list[str]:
    sizes, limit = result.settings["sizes"], result.settings["message_max_bytes"]
    text = (
        f"Static members (JoinGroup v{JOIN_VERSION}), each on its own connection, join one new group at the same time."
        " Both servers have `group.initial.rebalance.delay.ms=0`. A load generator in C (`benchmarks/members.c`)"
        f" simulates the members. Each member joins, syncs, sends heartbeats every {HEARTBEAT_MS} ms, and rejoins when"
        " the group rebalances. Before the first JoinGroup, every connection has received an ApiVersions response. The"
        " time is measured from the first JoinGroup until a generation contains all members and each member has its"
        " assignment of that generation. DescribeGroups must then report the state Stable with all members. Without an"
        " initial delay, the first member forms a generation alone, and the other members cause a rebalance. The table"
        f" therefore also shows the number of generations. A group is stored as one record. For {max(sizes):,} members,"
        " this record is larger than the megabyte that Kafka allows by default. Kafka therefore runs with"
        f" `message.max.bytes={limit}`. Holdfast allows a record as large as a segment. Before the first round,"
        f" {result.settings['warm_ups']} groups of {min(sizes):,} members join on each server. These joins are not"
        " counted. Holdfast uses only one core, and Kafka uses all cores. In total, Holdfast uses less CPU time than"
        " Kafka."
    )
    rows = [
        (
            f"{series(size)}: {what}",
            figure(result.values(series(size), HOLDFAST, name)),
            figure(result.values(series(size), KAFKA, name)),
            times(result.ratio(series(size), name)),
            str(_target(result, size)) if name == "seconds" else "",
        )
        for size in sizes
        for what, name in _SHOWN
    ]
    return [paragraph(text), "", *table(("", "Holdfast", "Apache Kafka", "ratio", "target"), rows)]


def verdicts(result: Result) -> list[Verdict]:
    measured = ((size, result.ratio(series(size), "seconds")) for size in result.settings["sizes"])
    return [
        Verdict(f"{series(size)} join: time until the group is stable ÷ Kafka", _target(result, size), ratio)
        for size, ratio in measured
        if ratio
    ]


def _target(result: Result, size: int) -> Target:
    return LARGE_TARGET if size == max(result.settings["sizes"]) else TARGET
