"""Ten minutes of everything at a moderate rate: the broker's memory, files and threads must not grow."""

from __future__ import annotations

import statistics
import threading
import time
from types import TracebackType
from typing import Final, Self

from benchmarks import proc
from benchmarks.bounce import Member
from benchmarks.librdkafka import new_topic
from benchmarks.measure import HOLDFAST, Plan, Result, Row, growth, spread
from benchmarks.pace import Pace, Paced
from benchmarks.steady import records, until
from benchmarks.steady_producer import TICK_SECONDS, TICKS_AROUND
from benchmarks.tables import Target, Verdict, median, paragraph, table
from tests.support.holdfast_broker import HoldfastBroker

NAME: Final = "soak"
SERIES: Final = "soak"
TARGET: Final = Target("at most", 1.05)
RATE: Final = 1_000
MEMBERS: Final = 6
PARTITIONS: Final = 20
COMMIT_MS: Final = 500
HEARTBEAT_MS: Final = 1_000
WATCHED: Final = {"rss_mib": "memory (RSS), MiB", "open_files": "open files and sockets", "threads": "threads"}
QUARTERS: Final = 4
_GROUP: Final = "soak"
_PATIENCE_S: Final = 90.0


def run(plan: Plan) -> Result:
    seconds, sample_s = plan.pick(full=120, quick=20), plan.pick(full=1000, quick=500) / 1000
    restart_s = plan.pick(full=5000, quick=2000) / 1000
    rows: list[Row] = []
    for number in range(1, plan.pick(full=plan.rounds, quick=1) + 1):
        with plan.attempt(SERIES, HOLDFAST, number), HoldfastBroker() as broker:
            rows.append(Row(SERIES, HOLDFAST, number, _soak(broker, seconds, sample_s, restart_s)))
    settings = {
        "seconds": seconds,
        "sample_s": sample_s,
        "restart_s": restart_s,
        "rate": RATE,
        "members": MEMBERS,
        "partitions": PARTITIONS,
        "group_rate": round(PARTITIONS / (TICK_SECONDS * TICKS_AROUND)),
        "commit_ms": COMMIT_MS,
    }
    return Result(NAME, settings, rows)


def _soak(broker: HoldfastBroker, seconds: float, sample_s: float, restart_s: float) -> dict[str, float]:
    with new_topic(broker, 1) as topic, new_topic(broker, PARTITIONS) as group_topic:
        group = [
            Member(
                place,
                broker.bootstrap,
                _GROUP,
                group_topic,
                heartbeat_ms=HEARTBEAT_MS,
                static=place % 2 == 0,
                commit_ms=COMMIT_MS,
            )
            for place in range(MEMBERS)
        ]
        with (
            records(broker.bootstrap, group_topic, PARTITIONS, _PATIENCE_S),
            Paced(Pace(RATE, seconds + 2 * _PATIENCE_S), broker, topic) as load,
            Samples(broker.pid, sample_s) as samples,
        ):
            try:
                restarts = _restart_in_turn(group, time.monotonic() + seconds, restart_s)
            finally:
                for member in group:
                    member.stop()
            samples.end()
            paced = load.stop()
    return {**samples.figures(), "restarts": restarts, "cores": paced["server_cores"], "records": paced["records"]}


def _restart_in_turn(group: list[Member], deadline: float, every_s: float) -> int:
    for member in group:
        member.start()
    until(lambda: all(member.has_records for member in group), "all members have records", _PATIENCE_S)
    restarts = 0
    while (pause := min(every_s, deadline - time.monotonic())) > 0:
        time.sleep(pause)
        _restart(group[restarts % len(group)])
        restarts += 1
    return restarts


def _restart(member: Member) -> None:
    member.stop()
    member.start()
    until(lambda: member.has_records, "a restarted member has records", _PATIENCE_S)


class Samples:
    """Samples of the kernel's statistics of a process, taken by a thread."""

    def __init__(self, pid: int, every_s: float) -> None:
        self._pid, self._every_s = pid, every_s
        self._seen: dict[str, list[float]] = {name: [] for name in WATCHED}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def figures(self) -> dict[str, float]:
        figures: dict[str, float] = {}
        for name, seen in self._seen.items():
            figures[f"{name}_growth"] = growth(seen)
            quarter = len(seen) // QUARTERS
            for place in range(QUARTERS):
                figures[f"{name}_{place + 1}"] = statistics.median(seen[place * quarter : (place + 1) * quarter])
        return figures

    def _watch(self) -> None:
        while not self._over.wait(self._every_s):
            self._seen["rss_mib"].append(proc.resident_mib(self._pid))
            self._seen["open_files"].append(proc.open_files(self._pid))
            self._seen["threads"].append(proc.threads(self._pid))


def section(result: Result) -> list[str]:
    head = ("median of each quarter", "first", "second", "third", "last", "last ÷ second", "target")
    rows = [
        (
            shown,
            *(median(result.values(SERIES, HOLDFAST, f"{name}_{place + 1}")) for place in range(QUARTERS)),
            median(result.values(SERIES, HOLDFAST, f"{name}_growth")),
            str(TARGET),
        )
        for name, shown in WATCHED.items()
    ]
    return [paragraph(_method(result)), "", *table(head, rows)]


def _method(result: Result) -> str:
    settings = result.settings
    cores, restarts = (median(result.values(SERIES, HOLDFAST, name)) for name in ("cores", "restarts"))
    return (
        f"In every round, a new broker runs for {settings['seconds']} s. A producer sends {settings['rate']:,} records"
        " per second to a topic, and a consumer waits for each record (`benchmarks/pace.c`). A second producer sends"
        f" {settings['group_rate']} records per second to {settings['partitions']} partitions. A group of"
        f" {settings['members']} confluent-kafka consumers reads these partitions. Half of the consumers are static"
        f" members. Each consumer commits every {settings['commit_ms']} ms. Every {settings['restart_s']:g} s, one"
        f" member restarts. There are {restarts} restarts in total, and half of them rebalance the group. The broker"
        f" used {cores} of a core. Every {settings['sample_s']:g} s, the benchmark reads the memory, open files and"
        " threads of the broker from the kernel."
    )


def verdicts(result: Result) -> list[Verdict]:
    return [
        Verdict(
            f"soak, {result.settings['seconds']} s: {shown}, last quarter ÷ second quarter",
            TARGET,
            spread(result.values(SERIES, HOLDFAST, f"{name}_growth")),
        )
        for name, shown in WATCHED.items()
        if result.has(SERIES, HOLDFAST)
    ]
