"""Requests to a broker with few and with many partitions."""

from __future__ import annotations

from typing import Final

from benchmarks import by_size, plots
from benchmarks.by_size import Cost, Shown
from benchmarks.load import Load, send
from benchmarks.many_partitions import METADATA_VERSION, PER_TOPIC, create, metadata_frame, produce_frames
from benchmarks.measure import MILLION, Plan, Result
from benchmarks.pace import PRODUCE_VERSION
from benchmarks.proc import resident_mib
from benchmarks.servers import Broker
from benchmarks.tables import Verdict, paragraph

NAME: Final = "size-partitions"
UNIT: Final = "partitions"
COSTS: Final = (
    Cost("each_produce_cpu_s", "one record to every partition", "server CPU s"),
    Cost("metadata_cpu_s", "one Metadata response with all topics", "server CPU s"),
)
CONNECTIONS: Final = 100
RECORD_BYTES: Final = 100


def run(plan: Plan) -> Result:
    sizes = [100, 1000, 20_000] if not plan.quick else [100, 300, 600]
    seconds, warm_up_seconds = plan.pick(full=2, quick=1), plan.pick(full=5, quick=1)

    def prepare(broker: Broker, partitions: int) -> None:
        create(broker, partitions)
        _round(broker, partitions, warm_up_seconds)

    def measure(broker: Broker, partitions: int, _: None) -> dict[str, float]:
        return _round(broker, partitions, seconds)

    rows = by_size.take_rounds(plan, sizes, UNIT, {}, prepare, measure)
    settings = {
        "sizes": sizes,
        "unit": UNIT,
        "per_topic": PER_TOPIC,
        "connections": CONNECTIONS,
        "record_bytes": RECORD_BYTES,
        "seconds": seconds,
        "warm_up_seconds": warm_up_seconds,
    }
    return Result(NAME, settings, rows)


def _round(broker: Broker, partitions: int, seconds: float) -> dict[str, float]:
    frames = produce_frames(partitions, CONNECTIONS, RECORD_BYTES)
    produced = send(Load(len(frames), 1, seconds), broker, b"".join(frames))
    asked = send(Load(1, 1, seconds), broker, metadata_frame())
    return {
        "produce_per_s": produced["requests_per_s"],
        "produce_cpu_per_million": produced["server_cpu_per_million"],
        "each_produce_cpu_s": produced["server_cpu_per_million"] * partitions / MILLION,
        "metadata_per_s": asked["requests_per_s"],
        "metadata_bytes": asked["reply_bytes"],
        "metadata_cpu_s": asked["server_cpu_per_million"] / MILLION,
        "rss_mib": resident_mib(broker.pid),
    }


_SHOWN: Final = (
    Shown("produce_per_s", "produce requests/s"),
    Shown("produce_cpu_per_million", "CPU s per million produce requests"),
    Shown("metadata_cpu_s", "CPU ms per Metadata response", 1e3),
    Shown("rss_mib", "memory (RSS), MiB"),
)


def section(result: Result) -> list[str]:
    settings = result.settings
    text = (
        f"A broker has topics of {settings['per_topic']} partitions. Each of {settings['connections']} connections"
        " writes to its own partition. The partitions that receive records are spread evenly over all partitions."
        f" `benchmarks/load.c` keeps one Produce request (v{PRODUCE_VERSION}, one record of {settings['record_bytes']}"
        f" B, `acks=all`) in flight on each connection, for {settings['seconds']} s. Then, for the same time, one"
        f" connection sends Metadata requests (v{METADATA_VERSION}) for all topics. Before the first round, each of the"
        f" two loads runs for {settings['warm_up_seconds']} s and is not counted. The benchmark measures two total"
        " costs. The first is the CPU time of the server for one record to every partition. The second is the CPU time"
        " for one Metadata response with all partitions." + by_size.method()
    )
    ratio = Shown("produce_cpu_per_million", "CPU time per produce request")
    return [paragraph(text), "", *plots.image(result, COSTS), *by_size.tables(result, _SHOWN, COSTS, ratio)]


def verdicts(result: Result) -> list[Verdict]:
    return by_size.verdicts(result, COSTS)


def pictures(result: Result) -> dict[str, str]:
    return plots.pictures(result, COSTS)
