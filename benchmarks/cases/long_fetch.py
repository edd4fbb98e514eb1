"""A gigabyte from the page cache: the throughput of one reader, and the cost for the server."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from benchmarks.cases.throughput import Shape
from benchmarks.librdkafka import new_topic, run_client
from benchmarks.measure import HOLDFAST, KAFKA, Plan, Result, Row, alternating
from benchmarks.proc import forget_peak, peak_resident_mib, resident_mib
from benchmarks.servers import Broker, both, settle
from benchmarks.tables import Target, Verdict, figure, paragraph, table, times
from benchmarks.whole_topic import MAX_BYTES, MAX_PARTITION_BYTES

NAME: Final = "long-fetch"
TARGET: Final = Target("at least", 1.0)
RECORD_BYTES: Final = 1_000


def shapes(plan: Plan) -> list[Shape]:
    return [Shape(RECORD_BYTES, partitions, plan.pick(full=1_000_000, quick=50_000)) for partitions in (1, 12)]


def run(plan: Plan) -> Result:
    warm_ups = plan.pick(full=10, quick=1)
    rows: list[Row] = []
    with both() as brokers, contextlib.ExitStack() as stack:
        shelves = {
            (name, shape): _shelf(stack, broker, shape) for shape in shapes(plan) for name, broker in brokers.items()
        }
        settle()
        for (name, shape), topic in shelves.items():
            for _ in range(warm_ups):
                _round(brokers[name], topic, shape)
        for number in range(1, plan.rounds + 1):
            for shape in shapes(plan):
                for name in alternating(brokers, number):
                    with plan.attempt(shape.label, name, number):
                        rows.append(Row(shape.label, name, number, _round(brokers[name], shelves[name, shape], shape)))
    settings = {
        "records": {shape.label: shape.records for shape in shapes(plan)},
        "gigabytes": shapes(plan)[0].records * RECORD_BYTES / 1e9,
        "warm_ups": warm_ups,
        "fetch_max_bytes": MAX_BYTES,
        "max_partition_fetch_bytes": MAX_PARTITION_BYTES,
    }
    return Result(NAME, settings, rows)


def _shelf(stack: contextlib.ExitStack, broker: Broker, shape: Shape) -> str:
    """A topic in full batches, filled once; it is in the page cache because it has just been written."""
    topic = stack.enter_context(new_topic(broker, shape.partitions))
    run_client("produce", bootstrap=broker.bootstrap, **_options(broker, topic, shape), full_batches=True)
    return topic


def _round(broker: Broker, topic: str, shape: Shape) -> dict[str, float]:
    before = resident_mib(broker.pid)
    forget_peak(broker.pid)
    options = _options(broker, topic, shape)
    figures = run_client("read", module="benchmarks.whole_topic", address=broker.address, **options)
    return {**figures, "growth_mib": peak_resident_mib(broker.pid) - before}


def _options(broker: Broker, topic: str, shape: Shape) -> dict[str, Any]:
    return {
        "topic": topic,
        "partitions": shape.partitions,
        "records": shape.records,
        "record_bytes": shape.record_bytes,
        "server_pid": broker.pid,
    }


_SHOWN: Final = (
    ("MB/s", "mb_per_s"),
    ("server CPU s per GB", "server_cpu_per_gb"),
    ("server CPU s per million records", "server_cpu_per_million"),
    ("client CPU s per million records", "client_cpu_per_million"),
    ("Fetch requests", "fetches"),
    ("growth of the server's memory, MiB", "growth_mib"),
)


def section(result: Result) -> list[str]:
    rows = [
        (
            f"{shape}: {what}",
            figure(result.values(shape, HOLDFAST, name)),
            figure(result.values(shape, KAFKA, name)),
            "" if name == "growth_mib" else times(result.ratio(shape, name)),
            str(TARGET) if name == "mb_per_s" else "",
        )
        for shape in result.settings["records"]
        for what, name in _SHOWN
    ]
    return [paragraph(_method(result)), "", *table(("", "Holdfast", "Apache Kafka", "ratio", "target"), rows)]


def _method(result: Result) -> str:
    settings = result.settings
    return (
        f"The page cache holds {settings['gigabytes']:g} GB of records in full batches. One connection with one Fetch"
        " request in flight reads the records from the beginning to the end. It uses the default limits of Kafka's"
        f" clients (`fetch.max.bytes={settings['fetch_max_bytes']}`,"
        f" `max.partition.fetch.bytes={settings['max_partition_fetch_bytes']}`). Unlike the consumer in the section"
        " “Produce and consume”, this client (`benchmarks/whole_topic.py`) iterates over batches and does not decode"
        " the records. The benchmark therefore measures the server rather than the client. All rounds read the same"
        f" topic. Before the first round, the client reads the topic {settings['warm_ups']} times. These reads are not"
        " counted. The growth of the server's memory is the peak resident set size (RSS) during a read, minus the RSS"
        " before the read."
    )


def verdicts(result: Result) -> list[Verdict]:
    measured = ((shape, result.ratio(shape, "mb_per_s")) for shape in result.settings["records"])
    return [
        Verdict(f"{result.settings['gigabytes']:g} GB read completely, {shape}: MB/s ÷ Kafka", TARGET, ratio)
        for shape, ratio in measured
        if ratio is not None
    ]
