"""Assignments of large groups: Holdfast's assignors compared with those of Apache Kafka's client, on the same
groups."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.assignor_groups import EVENTS, Event, Group, Shape, group_of
from benchmarks.measure import HOLDFAST, KAFKA, Plan, Result, Row, alternating
from benchmarks.results import REPOSITORY
from benchmarks.tables import Target, Verdict, figure, paragraph, table, times
from holdfast.assignors import Assignor, CopartitionedAssignor, MemberAssignment, assignor
from holdfast.wire.consumer_protocol import AssignmentWriter
from tests.support.java_assignors import JavaAnswer, JavaAssignors, JavaTooSlow, case

NAME: Final = "assignors"
MIB: Final = 1024 * 1024
JVM_OPTIONS: Final = ("-Xmx4G",)
WARM_UP_RUNS: Final = 5
WARM_UP_SECONDS: Final = 10
CAP_SECONDS: Final = 120
SLOW_SECONDS: Final = 10
"""A run that takes longer is not repeated, because rounds would take hours, and a warmer JVM would hardly change the
result."""
MEMORY_EVENTS: Final = ("full", "stable")
"""The smallest and the largest input: a new group, and one in which all members already have an assignment."""

STICKY_TARGET: Final = Target("at most", 1.0)
STATELESS_TARGET: Final = Target("at most", 1.5)
MEMORY_TARGET: Final = Target("at most", 1.0)


@dataclass(frozen=True)
class Contest:
    """One strategy on one kind of group, through its events."""

    strategy: str
    shape: Shape
    events: Sequence[Event]
    target: Target
    javas: str = ""
    """The strategy of Java that it is compared with, if it has another name."""
    memory: bool = False

    @property
    def opponent(self) -> str:
        return self.javas or self.strategy

    def series(self, event: Event) -> str:
        return f"{self.strategy}, {self.shape}: {event.name}"


def contests(plan: Plan) -> list[Contest]:
    small = 10 if plan.quick else 1
    large = Shape(500 // small, 2000 // small, 2000 // small)
    unequal = Shape(100 // small, 1000 // small, 1000 // small, equal=False)
    plain = Shape(100 // small, 1000 // small, 1000 // small)
    sticky = ("sticky", "cooperative-sticky")
    return [
        *(Contest(strategy, large, EVENTS, STICKY_TARGET, memory=True) for strategy in sticky),
        *(Contest(strategy, unequal, EVENTS, STICKY_TARGET) for strategy in sticky),
        # These ignore the previous assignment.
        *(Contest(strategy, plain, EVENTS[:1], STATELESS_TARGET) for strategy in ("range", "roundrobin")),
        Contest("copartitioned", plain, EVENTS[:1], STATELESS_TARGET, javas="range"),
    ]


def run(plan: Plan) -> Result:
    chosen = contests(plan)
    settings = {
        "cap_seconds": CAP_SECONDS,
        "slow_seconds": SLOW_SECONDS,
        "warm_up_runs": WARM_UP_RUNS,
        "jvm_options": list(JVM_OPTIONS),
        "contests": [[one.strategy, str(one.shape), [event.name for event in one.events]] for one in chosen],
    }
    return Result(NAME, settings, [row for one in chosen for row in _contest(one, plan)])


def _contest(contest: Contest, plan: Plan) -> Iterator[Row]:
    java: JavaAssignors | None = None
    try:
        for event in contest.events:
            print(f"benchmarks:   {contest.series(event)}", flush=True)
            java = java or JavaAssignors(*JVM_OPTIONS)
            group = group_of(contest.shape, event, contest.strategy)
            try:
                yield from _rounds(java, contest, event, group, plan)
            except JavaTooSlow:
                yield Row(contest.series(event), KAFKA, 1, {"ms": CAP_SECONDS * 1e3, "capped": 1.0})
                yield Row(contest.series(event), HOLDFAST, 1, _ours(contest, group))
                java.close()
                java = None
    finally:
        if java is not None:
            java.close()


def _rounds(java: JavaAssignors, contest: Contest, event: Event, group: Group, plan: Plan) -> Iterator[Row]:
    """Raises JavaTooSlow before the first row if no run ends in time."""
    warm = _warm_up(java, contest, group)
    series, rounds = contest.series(event), plan.rounds
    if warm.ns[-1] > SLOW_SECONDS * 1e9:
        yield Row(series, KAFKA, 1, _figures(warm))
        yield Row(series, HOLDFAST, 1, _ours(contest, group))
        rounds = 0
    for number in range(1, rounds + 1):
        for side in alternating((HOLDFAST, KAFKA), number):
            with plan.attempt(series, side, number):
                yield Row(series, side, number, _ours(contest, group) if side == HOLDFAST else _figures(java.again()))
    if contest.memory and event.name in MEMORY_EVENTS:
        question = case(contest.opponent, *group, assignments=False, memory=True)
        heap = java.answer(question, patience_s=2 * CAP_SECONDS)
        yield Row(f"{series}, memory", KAFKA, 1, {"mib": heap.heap_peak / MIB, "least_mib": heap.heap_after / MIB})
        yield Row(f"{series}, memory", HOLDFAST, 1, {"mib": _our_memory(contest, group) / MIB})


def _warm_up(java: JavaAssignors, contest: Contest, group: Group) -> JavaAnswer:
    """Sends the case and runs it a few times as a warm-up, unless that takes too long."""
    answer = java.answer(case(contest.opponent, *group, assignments=False), patience_s=CAP_SECONDS)
    began = time.monotonic()
    for _ in range(WARM_UP_RUNS - 1):
        if answer.ns[-1] > SLOW_SECONDS * 1e9 or time.monotonic() - began > WARM_UP_SECONDS:
            break
        answer = java.again(patience_s=CAP_SECONDS)
    return answer


def _figures(answer: JavaAnswer) -> dict[str, float]:
    return {"ms": answer.ns[-1] / 1e6, "written_ms": answer.written_ns[-1] / 1e6}


def _make(contest: Contest, group: Group) -> Assignor:
    if contest.strategy == "copartitioned":
        topics = list(group[0].partitions)
        return CopartitionedAssignor(groups=[topics[at : at + 2] for at in range(0, len(topics), 2)])
    return assignor(contest.strategy)


def _ours(contest: Contest, group: Group) -> dict[str, float]:
    strategy = _make(contest, group)
    began = time.perf_counter()
    answer = strategy.assign(*group)
    assigned = time.perf_counter()
    _write(answer)
    written = time.perf_counter()
    return {"ms": (assigned - began) * 1e3, "written_ms": (written - began) * 1e3}


def _write(answer: Mapping[str, MemberAssignment]) -> None:
    writer = AssignmentWriter()
    for given in answer.values():
        writer.write(given.partitions, given.user_data)


def _our_memory(contest: Contest, group: Group) -> int:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "group"
        with open(path, "wb") as file:
            pickle.dump(group, file)
        command = [sys.executable, "-m", "benchmarks.assignor_child", contest.strategy, str(path)]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=CAP_SECONDS, check=True)
    return int(done.stdout)


def section(result: Result) -> list[str]:
    settings = result.settings
    text = (
        "The assignors of Kafka's Java client and the assignors of Holdfast run on the same groups, with the same"
        " members, subscriptions and previous assignments. The Java client (`kafka-clients`) runs in a JVM"
        f" ({' '.join(settings['jvm_options'])}) that the benchmark controls over a pipe. “Assign” is the time of the"
        " call of `assign` alone. “Written” also includes the time to encode the assignments of all members. Every"
        f" strategy has its own JVM, with up to {settings['warm_up_runs']} runs of every event before the first counted"
        f" run. Python needs no warm-up. If a warm-up run of Java takes longer than {settings['slow_seconds']} s, this"
        f" run counts and is not repeated. A run that has not ended after {settings['cap_seconds']} s is stopped and"
        f" counts as {settings['cap_seconds']} s. “Full” is the first assignment of a new group. In all other events,"
        " the members have a previous assignment. “Stable” means that the group has not changed. “Many” means a tenth"
        " of the members. “Partitions added” means that a tenth of the partitions of every topic are new. Unequal"
        " subscriptions are nested. The first fifth of the members subscribes to a fifth of the topics, the next fifth"
        " to two fifths, and so on. The range, round-robin and co-partitioned assignors do not use previous"
        " assignments, so only the event “full” is measured for them. The co-partitioned assignor combines the topics"
        " in pairs. It is compared with Java's range assignor."
    )
    lines = [paragraph(text), ""]
    for strategy, shape, events in settings["contests"]:
        rows = []
        for event in events:
            series = f"{strategy}, {shape}: {event}"
            cells = (figure(result.values(series, side, what)) for what in ("ms", "written_ms") for side in _SIDES)
            ours, javas, ours_written, javas_written = cells
            capped = "≥ " if result.values(series, KAFKA, "capped") else ""
            ratio = times(result.ratio(series, "ms"))
            written = times(result.ratio(series, "written_ms"))
            rows.append((event, ours, capped + javas, ratio, ours_written, javas_written, written))
        head = (
            "event, times in ms",
            "assign: Holdfast",
            "assign: Java",
            "assign: ratio",
            "written: Holdfast",
            "written: Java",
            "written: ratio",
        )
        lines += [f"### {strategy}, {shape}", "", *table(head, rows), *_memory(result, strategy, shape, events)]
    return lines


_SIDES: Final = (HOLDFAST, KAFKA)


def _memory(result: Result, strategy: str, shape: str, events: Sequence[str]) -> list[str]:
    rows = []
    for event in events:
        series = f"{strategy}, {shape}: {event}, memory"
        if result.has(series, KAFKA):
            ours, javas = (figure(result.values(series, side, "mib")) for side in _SIDES)
            least = figure(result.values(series, KAFKA, "least_mib"))
            rows.append((event, ours, javas, times(result.ratio(series, "mib")), least))
    if not rows:
        return []
    text = (
        "Peak memory includes the group and the result. For Holdfast, it is the growth of the process (RSS). For Java,"
        " it is the heap in use, including garbage that has not been collected yet. The last column shows Java's heap"
        " after a garbage collection. It then contains only the group and the result."
    )
    return [
        paragraph(text),
        "",
        *table(
            ("event, memory in MiB", "Holdfast", "Java, heap in use", "ratio", "Java, after a garbage collection"), rows
        ),
    ]


def verdicts(result: Result) -> list[Verdict]:
    """One line for each strategy and kind of group: the worst of its events."""
    found: list[Verdict] = []
    for strategy, shape, events in result.settings["contests"]:
        target = STICKY_TARGET if "sticky" in strategy else STATELESS_TARGET
        series = [f"{strategy}, {shape}: {event}" for event in events]
        found += _worst(f"{strategy}, {shape}: time ÷ Java", target, result, series, "ms")
        found += _worst(
            f"{strategy}, {shape}: peak memory ÷ Java's heap",
            MEMORY_TARGET,
            result,
            [f"{one}, memory" for one in series],
            "mib",
        )
    return found


def _worst(what: str, target: Target, result: Result, series: Sequence[str], name: str) -> list[Verdict]:
    ratios = [(ratio.median, one, ratio) for one in series if (ratio := result.ratio(one, name)) is not None]
    if not ratios:
        return []
    _, one, ratio = max(ratios, key=lambda entry: entry[0])
    event = one.rpartition(": ")[2].removesuffix(", memory")
    return [Verdict(f"{what} ({event})" if len(ratios) > 1 else what, target, ratio)]
