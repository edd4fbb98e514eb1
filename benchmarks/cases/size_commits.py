"""Offset commits of few and of many groups."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from benchmarks import by_size, plots
from benchmarks.by_size import Cost, Shown
from benchmarks.cases.group_commits import commit_frames, send_commits
from benchmarks.librdkafka import create_topic
from benchmarks.measure import MILLION, Plan, Result
from benchmarks.servers import Broker
from benchmarks.tables import Verdict, paragraph
from benchmarks.wire import COMMIT_VERSION

NAME: Final = "size-commits"
SIZES: Final = (10, 1000, 10_000)
UNIT: Final = "groups"
COSTS: Final = (Cost("each_cpu_s", "a commit of every group", "server CPU s"),)
PARTITIONS: Final = 10
TOPIC: Final = "committed"

_NO_DELAY: Final = {"group.initial.rebalance.delay.ms": "0"}
_CONNECTIONS: Final = 32
"""The connections that form the groups. Kafka delays a request to batch it with others, and serves one request of each
connection at a time."""


def run(plan: Plan) -> Result:
    sizes = by_size.connected(SIZES) if not plan.quick else [10, 100, 300]
    seconds, warm_up_seconds = plan.pick(full=2, quick=1), plan.pick(full=5, quick=1)

    def prepare(broker: Broker, groups: int) -> list[bytes]:
        create_topic(broker, TOPIC, PARTITIONS)
        frames = _group_frames(broker, groups)
        send_commits(broker, frames, warm_up_seconds)
        return frames

    def measure(broker: Broker, groups: int, frames: list[bytes]) -> dict[str, float]:
        figures = send_commits(broker, frames, seconds)
        return {**figures, "each_cpu_s": figures["server_cpu_per_million"] * groups / MILLION}

    rows = by_size.take_rounds(plan, sizes, UNIT, _NO_DELAY, prepare, measure)
    settings = {
        "sizes": sizes,
        "unit": UNIT,
        "partitions": PARTITIONS,
        "seconds": seconds,
        "warm_up_seconds": warm_up_seconds,
    }
    return Result(NAME, settings, rows)


def _group_frames(broker: Broker, groups: int) -> list[bytes]:
    """The commit of the one member of each group."""
    names = [f"commits-{number:05}" for number in range(groups)]
    count = min(_CONNECTIONS, groups)
    with ThreadPoolExecutor(count) as pool:
        parts = list(
            pool.map(lambda first: commit_frames(broker, names[first::count], TOPIC, PARTITIONS), range(count))
        )
    return [frame for part in parts for frame in part]


_SHOWN: Final = (
    Shown("requests_per_s", "commits/s"),
    Shown("p99_us", "latency p99, ms", 1e-3),
    Shown("server_cpu_per_million", "CPU s per million commits"),
)


def section(result: Result) -> list[str]:
    settings = result.settings
    text = (
        "Each group has one static member with its own connection. Each member commits the offsets of"
        f" {settings['partitions']} partitions in one OffsetCommit request (v{COMMIT_VERSION}) and has one request in"
        f" flight. `benchmarks/load.c` sends the requests as fast as the server responds, for {settings['seconds']} s."
        f" Before the first round, the same load runs for {settings['warm_up_seconds']} s. This load and the CPU time"
        " for opening the connections are not counted. The total cost is the CPU time of the server for one commit of"
        " every group." + by_size.limited(result, max(SIZES)) + by_size.method()
    )
    ratio = Shown("server_cpu_per_million", "CPU time per commit")
    return [paragraph(text), "", *plots.image(result, COSTS), *by_size.tables(result, _SHOWN, COSTS, ratio)]


def verdicts(result: Result) -> list[Verdict]:
    return by_size.verdicts(result, COSTS)


def pictures(result: Result) -> dict[str, str]:
    return plots.pictures(result, COSTS)
