"""Records per second through librdkafka, with one producer and one consumer."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.client import CONSUME_AT_ONCE, CONSUMER, PRODUCER
from benchmarks.librdkafka import new_topic, run_client
from benchmarks.measure import HOLDFAST, KAFKA, MOCK, Plan, Result, Row, alternating, spread
from benchmarks.servers import Broker, both, settle
from benchmarks.tables import Target, Verdict, figure, median, paragraph, table, times

NAME: Final = "throughput"
TARGET: Final = Target("at least", 1.0)
_BUSY: Final = 0.9
"""A core with this utilization counts as busy all the time."""


@dataclass(frozen=True)
class Shape:
    record_bytes: int
    partitions: int
    records: int

    @property
    def label(self) -> str:
        size = f"{self.record_bytes // 1000} kB" if self.record_bytes >= 1000 else f"{self.record_bytes} B"
        return f"{size}, {self.partitions} partition{'s' if self.partitions > 1 else ''}"


def shapes(plan: Plan) -> list[Shape]:
    """Enough records that a round of either server takes some seconds on two cores."""
    small, large = plan.pick(3_000_000, 100_000), plan.pick(800_000, 20_000)
    return [
        Shape(size, partitions, records) for size, records in ((100, small), (1000, large)) for partitions in (1, 12)
    ]


def run(plan: Plan) -> Result:
    warm_up_seconds = plan.pick(full=45, quick=3)
    rows: list[Row] = []
    with both() as brokers, contextlib.ExitStack() as stack:
        for broker in brokers.values():
            _warm_up(broker, shapes(plan), warm_up_seconds)
        shelves = {
            (name, shape): _shelf(stack, broker, shape) for shape in shapes(plan) for name, broker in brokers.items()
        }
        for number in range(1, plan.rounds + 1):
            for shape in shapes(plan):
                for name in alternating((*brokers, MOCK), number):
                    broker_or_none = brokers.get(name)
                    with plan.attempt(shape.label, name, number):
                        if broker_or_none is None:
                            rows += _mock(shape, number)
                        else:
                            rows += measure(broker_or_none, name, shape, number, shelves[name, shape])
    settings = {
        "warm_up_seconds": warm_up_seconds,
        "records": {shape.label: shape.records for shape in shapes(plan)},
        "producer": PRODUCER,
        "consumer": CONSUMER,
        "consume_at_once": CONSUME_AT_ONCE,
    }
    return Result(NAME, settings, rows)


def _warm_up(broker: Broker, all_shapes: list[Shape], seconds: float) -> None:
    """The warm-up is the measured load itself, with all shapes in turn, so that the JVM compiles the code that is
    measured."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for shape in all_shapes:
            measure(broker, "", shape, 0)


def _shelf(stack: contextlib.ExitStack, broker: Broker, shape: Shape) -> str:
    """A topic to consume from, in every round the same.

    A server that acknowledges faster gets smaller batches from its producer, which would slow down its consumer.
    """
    topic = stack.enter_context(new_topic(broker, shape.partitions))
    run_client("produce", **_options(broker, topic, shape), full_batches=True)
    return topic


def measure(broker: Broker, name: str, shape: Shape, number: int, shelf: str | None = None) -> list[Row]:
    """One round of one server: all records into a new topic, and as many out of the shelf, or else of the new topic."""
    with new_topic(broker, shape.partitions) as topic:
        settle()
        produced = run_client("produce", **_options(broker, topic, shape))
        settle()
        consumed = run_client("consume", **_options(broker, shelf or topic, shape))
    return [
        Row(f"produce, {shape.label}", name, number, produced),
        Row(f"consume, {shape.label}", name, number, consumed),
    ]


def _options(broker: Broker, topic: str, shape: Shape) -> dict[str, Any]:
    return {
        "bootstrap": broker.bootstrap,
        "topic": topic,
        "partitions": shape.partitions,
        "records": shape.records,
        "record_bytes": shape.record_bytes,
        "server_pid": broker.pid,
    }


def _mock(shape: Shape, number: int) -> list[Row]:
    """Only the client: librdkafka's own mock broker accepts the records in the client's process."""
    if shape.partitions > 1:
        return []
    figures = run_client(
        "produce",
        bootstrap="",
        topic="bench",
        partitions=1,
        records=shape.records,
        record_bytes=shape.record_bytes,
        server_pid=None,
    )
    return [Row(f"produce, {shape.label}", MOCK, number, figures)]


_NAMES: Final = {HOLDFAST: "Holdfast", KAFKA: "Apache Kafka", MOCK: "(client alone)"}
_HEAD: Final = (
    "",
    "records/s",
    "MB/s",
    "server CPU s/M",
    "client CPU s/M",
    "cores used: server + client",
    "limit",
    "ratio of records/s",
    "target",
)


def section(result: Result) -> list[str]:
    return [paragraph(_method(result)), "", *_phase(result, "produce"), *_phase(result, "consume")]


def _phase(result: Result, what: str) -> list[str]:
    rows = []
    for shape in result.settings["records"]:
        series = f"{what}, {shape}"
        for server, shown in _NAMES.items():
            if result.has(series, server):
                ours = server == HOLDFAST
                rows.append(
                    (
                        f"{shape}: {shown}",
                        figure(result.values(series, server, "records_per_s")),
                        median(result.values(series, server, "mb_per_s")),
                        "" if server == MOCK else figure(result.values(series, server, "server_cpu_per_million")),
                        figure(result.values(series, server, "client_cpu_per_million")),
                        _cores(result, series, server),
                        "" if server == MOCK else _limit(result, series, server),
                        times(result.ratio(series, "records_per_s")) if ours else "",
                        str(TARGET) if ours else "",
                    )
                )
    return [f"### {what.capitalize()}", "", *table(_HEAD, rows)]


def _cores(result: Result, series: str, server: str) -> str:
    client = median(result.values(series, server, "client_cores"))
    return client if server == MOCK else f"{median(result.values(series, server, 'server_cores'))} + {client}"


def _method(result: Result) -> str:
    settings = result.settings
    records = "; ".join(f"{shape}: {count:,}" for shape, count in settings["records"].items())
    return (
        "A separate Python process runs one librdkafka client. It calls `produce_batch` and"
        f" `consume({settings['consume_at_once']})` in the same way for both servers. The producer has the settings"
        f" {_summary(settings['producer'])}. The consumer uses manual assignment and has the settings"
        f" {_summary(settings['consumer'])}. All other settings have librdkafka's defaults. Records per round:"
        f" {records}. In every round, the producer writes to a new topic. Before each measurement, the benchmark writes"
        " dirty pages to disk. Before the first round, both servers serve the same load for"
        f" {settings['warm_up_seconds']} s, so that Kafka's JVM can compile its code. This load is not counted. The"
        " consumer reads full batches from the page cache. The batches are the same in every round and on both servers."
        " The consumer does not read the batches of the produce benchmark. A server that acknowledges faster receives"
        " smaller batches there, and smaller batches slow down the consumer ([decision"
        " 8](decisions/0008-consumers-are-measured-on-equal-batches.md)). CPU time is given in seconds per million"
        " records, separately for the server process and the client process. The column “limit” shows which process"
        " kept at least one core busy all the time: the client, the server, or neither. “Machine” means that the two"
        " processes together kept all cores busy. In the rows “client alone”, the same producer writes to librdkafka's"
        " mock broker, which runs in the client's process and stores nothing. These rows show the approximate maximum"
        " rate of this client."
    )


def _summary(settings: dict[str, object]) -> str:
    return ", ".join(f"`{name}={str(value).lower()}`" for name, value in settings.items() if name != "group.id")


def _limit(result: Result, series: str, server: str) -> str:
    """The side that was busy all the time, from the number of cores that each side used."""
    server_cores = spread(result.values(series, server, "server_cores")).median
    client_cores = spread(result.values(series, server, "client_cores")).median
    if server_cores + client_cores >= _BUSY * float(result.machine.get("cores") or 2):
        return "machine"
    if client_cores >= _BUSY:
        return "client"
    return "server" if server_cores >= _BUSY else "neither"


def verdicts(result: Result) -> list[Verdict]:
    measured = (
        (series, result.ratio(series, "records_per_s"))
        for series in (f"{what}, {shape}" for what in ("produce", "consume") for shape in result.settings["records"])
    )
    return [Verdict(f"{series}: records/s ÷ Kafka", TARGET, ratio) for series, ratio in measured if ratio is not None]
