"""The growth of a cost with the size: rounds over several sizes, and the exponent.

The total cost at a size is that of one operation of each element: a heartbeat of every member, a commit of every group.
The exponent between two sizes is the slope in a log-log plot: 1 if twice the size costs twice as much.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from benchmarks.measure import HOLDFAST, KAFKA, Plan, Result, Row, Spread, alternating, spread
from benchmarks.proc import connections_allowed
from benchmarks.servers import Broker, both, settle
from benchmarks.tables import Target, Verdict, figure, table, times

SERVERS: Final = {HOLDFAST: "Holdfast", KAFKA: "Apache Kafka"}
TARGET: Final = Target("at most", 1.1, "")
"""A cost of n log n has an exponent of at least 1.1 in the ranges that are measured."""
_GIVE_UP_AFTER: Final = 2
"""A server that failed in this many rounds of a size is not measured at it again, because each attempt takes
minutes."""

Prepared = TypeVar("Prepared")


@dataclass(frozen=True)
class Cost:
    """One line of a plot: the name of a total among the figures of a row, and how the page calls it."""

    name: str
    what: str
    unit: str


@dataclass(frozen=True)
class Shown:
    """One column of the table for each server."""

    name: str
    what: str
    scale: float = 1.0


def connected(wanted: Sequence[int]) -> list[int]:
    """The sizes that need a connection each, with the largest as large as this machine allows."""
    return [min(size, connections_allowed()) for size in wanted]


def limited(result: Result, wanted: int) -> str:
    """What the page says if the largest size is smaller than wanted."""
    largest = max(result.settings["sizes"])
    if largest >= wanted:
        return ""
    return (
        f" The limit on open files of this machine allows a server {largest:,} connections, because Holdfast needs two"
        f" open files for each connection. The largest size is therefore {largest:,} instead of {wanted:,}."
    )


def series(size: int, unit: str) -> str:
    return f"{size:,} {unit}"


def take_rounds(
    plan: Plan,
    sizes: Sequence[int],
    unit: str,
    settings: Mapping[str, str],
    prepare: Callable[[Broker, int], Prepared],
    measure: Callable[[Broker, int, Prepared], dict[str, float]],
    kafka: Mapping[str, str] | None = None,
) -> list[Row]:
    """All sizes in every round, each on its own broker, so that the data of one size does not affect another.

    `kafka`: settings for Apache Kafka alone.
    """
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        brokers: dict[tuple[int, str], tuple[Broker, Prepared]] = {}
        for size in sizes:
            for name, broker in stack.enter_context(both(settings, {**settings, **(kafka or {})})).items():
                with plan.attempt(series(size, unit), name, 0):
                    brokers[size, name] = (broker, prepare(broker, size))
                if (size, name) not in brokers:
                    broker.kill()  # its remaining work would slow down the others
        for number in range(1, plan.rounds + 1):
            for size in alternating(sizes, number):
                for name in alternating(SERVERS, number):
                    of = series(size, unit)
                    if (size, name) not in brokers or plan.has_failed(of, name) >= _GIVE_UP_AFTER:
                        continue
                    settle()
                    with plan.attempt(of, name, number):
                        broker, prepared = brokers[size, name]
                        rows.append(Row(of, name, number, measure(broker, size, prepared)))
    return rows


# -- the exponent ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Exponent:
    """Over the rounds in which the costs of at least two sizes were measured."""

    of_all: Spread
    """The slope of the line that fits all sizes best."""
    of_last_step: Spread
    """Between the two largest sizes, where a fixed part of the cost weighs least."""
    steepest: Spread
    """The larger one of both in each round. The targets apply to this."""


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The slope of the line through the logarithms that fits best."""
    return statistics.linear_regression([math.log(size) for size in sizes], [math.log(cost) for cost in costs]).slope


def exponents(result: Result, server: str, cost: str) -> Exponent | None:
    of_all, of_last_step = [], []
    for number in range(1, result.rounds + 1):
        points = [(size, found[number]) for size, found in _by_size(result, server, cost) if found.get(number)]
        if len(points) < 2:
            continue
        sizes, costs = zip(*points, strict=True)
        of_all.append(exponent(sizes, costs))
        of_last_step.append(exponent(sizes[-2:], costs[-2:]))
    if not of_all:
        return None
    steepest = [max(pair) for pair in zip(of_all, of_last_step, strict=True)]
    return Exponent(spread(of_all), spread(of_last_step), spread(steepest))


def _by_size(result: Result, server: str, cost: str) -> list[tuple[int, dict[int, float]]]:
    sizes, unit = result.settings["sizes"], result.settings["unit"]
    return [(size, result.by_round(series(size, unit), server, cost)) for size in sorted(sizes)]


def points(result: Result, server: str, cost: str) -> list[tuple[int, Spread]]:
    """The total cost at each size that was measured."""
    return [(size, spread(list(found.values()))) for size, found in _by_size(result, server, cost) if found]


# -- the page ----------------------------------------------------------------------------------------------------------


def tables(result: Result, shown: Sequence[Shown], costs: Sequence[Cost], ratio: Shown) -> list[str]:
    """The figures of each size, and the exponents."""
    sizes, unit = result.settings["sizes"], result.settings["unit"]
    head = ["", *(f"{name}: {column.what}" for name in SERVERS.values() for column in shown), f"ratio: {ratio.what}"]
    rows = [
        [
            series(size, unit),
            *(_cell(result, series(size, unit), server, column) for server in SERVERS for column in shown),
            times(result.ratio(series(size, unit), ratio.name)),
        ]
        for size in sizes
    ]
    return [*table(head, rows), *_exponents(result, costs)]


def _cell(result: Result, of: str, server: str, column: Shown) -> str:
    return figure([value * column.scale for value in result.values(of, server, column.name)])


def _exponents(result: Result, costs: Sequence[Cost]) -> list[str]:
    head = (
        "exponent of the total cost",
        "sizes",
        "over all sizes",
        "between the two largest sizes",
        "larger exponent",
        "target",
    )
    rows = []
    for cost in costs:
        for server, name in SERVERS.items():
            found, sizes = exponents(result, server, cost.name), [size for size, _ in points(result, server, cost.name)]
            if found is not None:
                spreads = (found.of_all, found.of_last_step, found.steepest)
                reached = f"{min(sizes):,} to {max(sizes):,}"
                target = str(TARGET) if server == HOLDFAST else ""
                rows.append((f"{cost.what}, {name}", reached, *(_shown(one) for one in spreads), target))
    return table(head, rows) if rows else []


def _shown(one: Spread) -> str:
    return f"{one.median:.2f} [{one.low:.2f} – {one.high:.2f}]"


def verdicts(result: Result, costs: Sequence[Cost]) -> list[Verdict]:
    """Whether no cost of Holdfast's grows faster than linearly."""
    sizes, unit = result.settings["sizes"], result.settings["unit"]
    measured = ((cost.what, exponents(result, HOLDFAST, cost.name)) for cost in costs)
    return [
        Verdict(f"{what}, {min(sizes):,} to {max(sizes):,} {unit}: exponent", TARGET, found.steepest)
        for what, found in measured
        if found is not None
    ]


def method() -> str:
    """The text of the page for all these cases."""
    return (
        " Every size has its own brokers. Each round measures all sizes, in an order that changes from round to round."
        " The exponent is the slope of the total cost in a log-log plot. It is computed for each round. With an"
        " exponent of 1, twice the size costs twice as much. A fixed part of the cost reduces the exponent over all"
        " sizes. The table therefore also shows the exponent between the two largest sizes. The larger of the two"
        f" exponents must be at most {TARGET.value:g}, because a cost of n log n would have an exponent of at least"
        f" {TARGET.value:g} for these sizes."
    )
