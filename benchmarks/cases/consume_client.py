"""`holdfast.Consumer` compared with the clients that it replaces: the cost of Holdfast's membership for reading
records."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from benchmarks.cases.throughput import Shape
from benchmarks.group_reader import AT_ONCE, LIBRDKAFKA, READERS, SETTINGS
from benchmarks.librdkafka import new_topic, run_client
from benchmarks.measure import HOLDFAST, Plan, Result, Row, alternating
from benchmarks.servers import Broker, settle
from benchmarks.tables import Target, Verdict, figure, median, paragraph, table, times
from tests.support.holdfast_broker import HoldfastBroker

NAME: Final = "consume-client"
CONFLUENT: Final = "confluent-kafka"
KAFKA_PYTHON: Final = "kafka-python"
TARGETS: Final = {CONFLUENT: Target("at least", 0.9), KAFKA_PYTHON: Target("at least", 2.0)}

_SHOWN: Final = {HOLDFAST: "`holdfast.Consumer`", CONFLUENT: "confluent-kafka", KAFKA_PYTHON: "kafka-python"}


def shapes(plan: Plan) -> list[Shape]:
    return [Shape(100, partitions, plan.pick(full=1_500_000, quick=200_000)) for partitions in (1, 12)]


def run(plan: Plan) -> Result:
    rows: list[Row] = []
    with HoldfastBroker() as broker, contextlib.ExitStack() as stack:
        shelves = {shape: _shelf(stack, broker, shape) for shape in shapes(plan)}
        settle()
        for number in range(1, plan.rounds + 1):
            for shape, topic in shelves.items():
                for client in alternating(READERS, number):
                    with plan.attempt(shape.label, client, number):
                        rows.append(Row(shape.label, client, number, _round(broker, client, topic, shape)))
    settings = {
        "records": {shape.label: shape.records for shape in shapes(plan)},
        "consumer": SETTINGS,
        "librdkafka": LIBRDKAFKA,
        "consume_at_once": AT_ONCE,
    }
    return Result(NAME, settings, rows)


def _shelf(stack: contextlib.ExitStack, broker: Broker, shape: Shape) -> str:
    """A topic in full batches, filled once: every client reads the same bytes."""
    topic = stack.enter_context(new_topic(broker, shape.partitions))
    run_client("produce", **_options(broker, topic, shape), partitions=shape.partitions, full_batches=True)
    return topic


def _round(broker: Broker, client: str, topic: str, shape: Shape) -> dict[str, float]:
    return run_client(client, module="benchmarks.group_reader", **_options(broker, topic, shape))


def _options(broker: Broker, topic: str, shape: Shape) -> dict[str, Any]:
    return {
        "bootstrap": broker.bootstrap,
        "topic": topic,
        "records": shape.records,
        "record_bytes": shape.record_bytes,
        "server_pid": broker.pid,
    }


def section(result: Result) -> list[str]:
    head = (
        "",
        "records/s",
        "client CPU s/M",
        "server CPU s/M",
        "cores used by the client",
        "records/s: Holdfast ÷ this row",
        "target",
    )
    rows = [
        (
            f"{shape}: {shown}",
            figure(result.values(shape, client, "records_per_s")),
            figure(result.values(shape, client, "client_cpu_per_million")),
            figure(result.values(shape, client, "server_cpu_per_million")),
            median(result.values(shape, client, "client_cores")),
            "" if client == HOLDFAST else times(result.ratio(shape, "records_per_s", over=client)),
            str(TARGETS.get(client, "")),
        )
        for shape in result.settings["records"]
        for client, shown in _SHOWN.items()
    ]
    return [paragraph(_method(result)), "", *table(head, rows)]


def _method(result: Result) -> str:
    settings = result.settings
    records = "; ".join(f"{shape}: {count:,}" for shape, count in settings["records"].items())
    return (
        "Three clients take turns reading one topic of one Holdfast broker. Each client is the only member of its own"
        f" group, runs in its own process, and reads at most {settings['consume_at_once']:,} records per call. The time"
        " is measured from the assignment of the partitions until the client has the last record. Records per round:"
        f" {records}. All batches are full, and all clients read the same batches. All three clients have the settings"
        f" {_summary(settings['consumer'])}. The two clients that read through librdkafka also have the settings"
        f" {_summary(settings['librdkafka'])}. CPU time is given in seconds per million records."
    )


def _summary(settings: dict[str, Any]) -> str:
    return ", ".join(f"`{name}={str(value).lower()}`" for name, value in settings.items())


def verdicts(result: Result) -> list[Verdict]:
    measured = (
        (f"`Consumer.consume`, {shape}: records/s ÷ {client}", target, result.ratio(shape, "records_per_s", client))
        for shape in result.settings["records"]
        for client, target in TARGETS.items()
    )
    return [Verdict(what, target, ratio) for what, target, ratio in measured if ratio is not None]
