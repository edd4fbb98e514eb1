"""Records per second through librdkafka: what one producer and one consumer get out of a broker."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import Any, Final

from bench.client import CONSUME_AT_ONCE, CONSUMER, PRODUCER
from bench.librdkafka import new_topic, run_client
from bench.measure import HOLDFAST, KAFKA, MOCK, Plan, Result, Row, alternating, spread
from bench.servers import Broker, both, settle
from bench.tables import Target, Verdict, figure, median, paragraph, table, times

NAME: Final = "throughput"
TARGET: Final = Target("at least", 1.0)
_BUSY: Final = 0.9
"""A core that is used to this share counts as busy all the time."""


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
    """So many records that a round of either server takes some seconds on two cores."""
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
    """The measured load itself, all shapes in turn: a JVM compiles what is run, and a cold Kafka is nobody's Kafka."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for shape in all_shapes:
            measure(broker, "", shape, 0)


def _shelf(stack: contextlib.ExitStack, broker: Broker, shape: Shape) -> str:
    """A topic to consume from, in every round the same.

    A server that acknowledges faster gets its producer's records in smaller batches, and would have its consumer pay.
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
    """The client alone: librdkafka's own mock of a broker takes the records in the client's process."""
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
    "cores: server + client",
    "limit",
    "ratio",
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
        "One librdkafka client in a process of its own, driven from Python by `produce_batch` and"
        f" `consume({settings['consume_at_once']})`; the same for both servers. Producer:"
        f" {_told(settings['producer'])}; consumer, by assignment: {_told(settings['consumer'])}; all else at"
        f" librdkafka's defaults. Records in a round: {records}. A new topic for every round; before it, what is dirty"
        " is written to the disk. Both servers first served the same load for"
        f" {settings['warm_up_seconds']} s each, uncounted, so that Kafka's JVM has compiled its way through it. What"
        " is consumed lies in the page cache in full batches, the same in every round and on both servers: a server"
        " that acknowledges faster gets smaller batches, and its consumer would pay for that"
        " (decisions/0008 has the figures of the other way). CPU is in seconds"
        " per million records, of the server's process and of the client's. The limit is who was at work all the time:"
        " the client or the server"
        " when it kept a core busy, the machine when all cores were, neither when both waited in between. “Client"
        " alone” is the same producer against librdkafka's mock of a broker, inside its own process, which stores"
        " nothing: about what this client can do at all."
    )


def _told(settings: dict[str, object]) -> str:
    return ", ".join(f"`{name}={str(value).lower()}`" for name, value in settings.items() if name != "group.id")


def _limit(result: Result, series: str, server: str) -> str:
    """Who was at work all the time, read from the cores that each side kept busy."""
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
