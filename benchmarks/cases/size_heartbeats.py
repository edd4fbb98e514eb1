"""Heartbeats of small and large groups: whether the cost per member grows with the group."""

from __future__ import annotations

from typing import Final

from benchmarks import by_size, plots
from benchmarks.by_size import Cost, Shown
from benchmarks.cases.group_heartbeats import VERSION, heartbeat_frames, send_heartbeats
from benchmarks.measure import MILLION, Plan, Result
from benchmarks.servers import Broker
from benchmarks.tables import Verdict, paragraph

NAME: Final = "size-heartbeats"
SIZES: Final = (100, 1000, 10_000)
UNIT: Final = "members"
COSTS: Final = (Cost("each_cpu_s", "a heartbeat of every member", "server CPU s"),)
GROUP: Final = "heartbeats"
_NO_DELAY: Final = {"group.initial.rebalance.delay.ms": "0"}
_HEARTBEAT_MS: Final = 1000


def run(plan: Plan) -> Result:
    sizes = by_size.connected(SIZES) if not plan.quick else [10, 100, 500]
    seconds, warm_up_seconds = plan.pick(full=2, quick=1), plan.pick(full=5, quick=1)

    def prepare(broker: Broker, members: int) -> list[bytes]:
        frames = heartbeat_frames(broker, GROUP, members, _HEARTBEAT_MS)
        send_heartbeats(broker, frames, warm_up_seconds)
        return frames

    def measure(broker: Broker, members: int, frames: list[bytes]) -> dict[str, float]:
        figures = send_heartbeats(broker, frames, seconds)
        return {**figures, "each_cpu_s": figures["server_cpu_per_million"] * members / MILLION}

    rows = by_size.take_rounds(plan, sizes, UNIT, _NO_DELAY, prepare, measure)
    settings = {"sizes": sizes, "unit": UNIT, "seconds": seconds, "warm_up_seconds": warm_up_seconds}
    return Result(NAME, settings, rows)


_SHOWN: Final = (
    Shown("requests_per_s", "heartbeats/s"),
    Shown("p99_us", "latency p99, ms", 1e-3),
    Shown("server_cpu_per_million", "CPU s per million heartbeats"),
)


def section(result: Result) -> list[str]:
    settings = result.settings
    text = (
        f"Each static member of one stable group has its own connection, with one heartbeat (v{VERSION}) in flight."
        f" `benchmarks/load.c` sends the heartbeats as fast as the server responds, for {settings['seconds']} s. Before"
        f" the first round, the same load runs for {settings['warm_up_seconds']} s. This load and the CPU time for"
        " opening the connections are not counted. The total cost is the CPU time of the server for one heartbeat of"
        " every member." + by_size.limited(result, max(SIZES)) + by_size.method()
    )
    ratio = Shown("server_cpu_per_million", "CPU time per heartbeat")
    return [paragraph(text), "", *plots.image(result, COSTS), *by_size.tables(result, _SHOWN, COSTS, ratio)]


def verdicts(result: Result) -> list[Verdict]:
    return by_size.verdicts(result, COSTS)


def pictures(result: Result) -> dict[str, str]:
    return plots.pictures(result, COSTS)
