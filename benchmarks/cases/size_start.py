"""A broker is started again on a data directory with few and with many partitions."""

from __future__ import annotations

import time
from typing import Final

from benchmarks import by_size, plots
from benchmarks.by_size import Cost, Shown
from benchmarks.load import Load, send
from benchmarks.many_partitions import PER_TOPIC, await_led, create, produce_frames
from benchmarks.measure import Plan, Result
from benchmarks.proc import cpu_seconds, resident_mib
from benchmarks.servers import Broker
from benchmarks.tables import Verdict, paragraph
from tests.support.apache_kafka import ApacheKafka
from tests.support.holdfast_broker import HoldfastBroker

NAME: Final = "size-start"
UNIT: Final = "partitions"
COSTS: Final = (
    Cost("cpu_s", "start to ready, CPU time", "server CPU s"),
    Cost("seconds", "start to ready, elapsed time", "s"),
)
RECORD_BYTES: Final = 100


def run(plan: Plan) -> Result:
    sizes = [100, 1000, 20_000] if not plan.quick else [100, 300, 600]
    rows = by_size.take_rounds(plan, sizes, UNIT, {}, _prepare, _restart)
    return Result(NAME, {"sizes": sizes, "unit": UNIT, "per_topic": PER_TOPIC, "record_bytes": RECORD_BYTES}, rows)


def _prepare(broker: Broker, partitions: int) -> None:
    """One record in every partition, so that none is empty."""
    create(broker, partitions)
    connections = min(partitions, 1000)
    frames = produce_frames(partitions, partitions, RECORD_BYTES)
    for first in range(0, len(frames), connections):
        some = frames[first : first + connections]
        send(Load(len(some), 1, 30, max_requests=len(some)), broker, b"".join(some))


def _restart(broker: Broker, partitions: int, _: None) -> dict[str, float]:
    assert isinstance(broker, HoldfastBroker | ApacheKafka)
    broker.stop()
    began = time.monotonic()
    broker.start()
    await_led(broker, partitions)
    seconds = time.monotonic() - began
    return {"seconds": seconds, "cpu_s": cpu_seconds(broker.pid), "rss_mib": resident_mib(broker.pid)}


_SHOWN: Final = (
    Shown("seconds", "start to ready, s"),
    Shown("cpu_s", "CPU s"),
    Shown("rss_mib", "memory (RSS), MiB"),
)


def section(result: Result) -> list[str]:
    settings = result.settings
    text = (
        f"A broker has topics of {settings['per_topic']} partitions, with one record of {settings['record_bytes']} B in"
        " each partition. The benchmark stops the broker cleanly and starts it again on the same disk. The time is"
        " measured from the start of the process until Metadata names a leader for every partition. The CPU time is"
        " measured over the same period." + by_size.method()
    )
    ratio = Shown("seconds", "time from start to ready")
    return [paragraph(text), "", *plots.image(result, COSTS), *by_size.tables(result, _SHOWN, COSTS, ratio)]


def verdicts(result: Result) -> list[Verdict]:
    return by_size.verdicts(result, COSTS)


def pictures(result: Result) -> dict[str, str]:
    return plots.pictures(result, COSTS)
