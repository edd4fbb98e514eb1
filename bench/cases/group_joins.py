"""Thousands of static members that join one group at once: how long until each has its assignment."""

from __future__ import annotations

import itertools
from typing import Final

from bench.measure import HOLDFAST, KAFKA, Plan, Result, Row, alternating
from bench.members import JOIN_VERSION, join_all, remove_all
from bench.servers import Broker, both, settle
from bench.tables import Target, Verdict, figure, paragraph, table, times

NAME: Final = "group-joins"
TARGET: Final = Target("at most", 1.0)
HEARTBEAT_MS: Final = 100
MESSAGE_MAX_BYTES: Final = 20 * 1024 * 1024

_NO_DELAY: Final = {"group.initial.rebalance.delay.ms": "0"}
_numbers: Final = itertools.count(1)


def run(plan: Plan) -> Result:
    sizes = [plan.pick(full=1000, quick=50), plan.pick(full=5000, quick=200)]
    warm_ups = plan.pick(full=5, quick=1)
    rows: list[Row] = []
    # A group is one record, in Kafka of at most message.max.bytes; ours has room for a whole segment by default.
    with both(_NO_DELAY, {**_NO_DELAY, "message.max.bytes": str(MESSAGE_MAX_BYTES)}) as brokers:
        for broker in brokers.values():
            for _ in range(warm_ups):
                _round(broker, sizes[0])
        for number in range(1, plan.rounds + 1):
            for size in sizes:
                for name in alternating(brokers, number):
                    settle()
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
    ("until all are stable, s", "seconds"),
    ("generations on the way", "generations"),
    ("requests", "requests"),
    ("server CPU, s", "server_cpu_s"),
    ("client CPU, s", "client_cpu_s"),
    ("server CPU s per million members", "server_cpu_per_million"),
)


def section(result: Result) -> list[str]:
    sizes, limit = result.settings["sizes"], result.settings["message_max_bytes"]
    text = (
        f"Static members (JoinGroup v{JOIN_VERSION}), each on its own connection, join one new group at once;"
        " `group.initial.rebalance.delay.ms=0` on both servers. A load generator in C (`bench/members.c`) does what"
        f" clients do: join, sync, heartbeats every {HEARTBEAT_MS} ms, and join again on hearing of a rebalance. The"
        " clock runs from the first JoinGroup, when every connection has been answered an ApiVersions, until the leader"
        " was shown all members and each has its assignment of that generation; then DescribeGroups must say Stable"
        " with all of them. Without a delay the first to come is a generation of its own, so the others make a"
        " rebalance; how many generations that takes is part of the figure."
        f" A group is one record: for {max(sizes):,} members it is larger than the megabyte that Kafka allows by"
        f" default, so Kafka runs with `message.max.bytes={limit}`. Holdfast's journal allows as much as a segment"
        f" holds. {result.settings['warm_ups']} joins of {min(sizes):,} members each before the first round are not"
        " counted. What limits Holdfast is one core: it takes less CPU time than Kafka, which has all cores at work."
    )
    rows = [
        (
            f"{series(size)}: {what}",
            figure(result.values(series(size), HOLDFAST, name)),
            figure(result.values(series(size), KAFKA, name)),
            times(result.ratio(series(size), name)),
            str(TARGET) if name == "seconds" else "",
        )
        for size in sizes
        for what, name in _SHOWN
    ]
    return [paragraph(text), "", *table(("", "Holdfast", "Apache Kafka", "ratio", "target"), rows)]


def verdicts(result: Result) -> list[Verdict]:
    measured = ((series(size), result.ratio(series(size), "seconds")) for size in result.settings["sizes"])
    return [Verdict(f"{what} join until stable: time ÷ Kafka", TARGET, ratio) for what, ratio in measured if ratio]
