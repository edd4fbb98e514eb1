"""One record at a time: the time until it is acknowledged, and until a waiting consumer has it."""

from __future__ import annotations

from typing import Final

from benchmarks.librdkafka import new_topic, run_client
from benchmarks.measure import HOLDFAST, KAFKA, Plan, Result, Row, alternating
from benchmarks.servers import Broker, both
from benchmarks.tables import figure, paragraph, table, times

NAME: Final = "latency"
SERIES: Final = "latency"
RECORD_BYTES: Final = 100


def run(plan: Plan) -> Result:
    samples, warm_up = plan.pick(full=1000, quick=100), plan.pick(full=3000, quick=100)
    rows: list[Row] = []
    with both() as brokers:
        for broker in brokers.values():
            _round(broker, warm_up)
        for number in range(1, plan.rounds + 1):
            for name in alternating(brokers, number):
                with plan.attempt(SERIES, name, number):
                    rows.append(Row(SERIES, name, number, _round(brokers[name], samples)))
    return Result(NAME, {"samples": samples, "warm_up": warm_up, "record_bytes": RECORD_BYTES}, rows)


def _round(broker: Broker, samples: int) -> dict[str, float]:
    with new_topic(broker, partitions=1) as topic:
        return run_client(
            "latency",
            bootstrap=broker.bootstrap,
            topic=topic,
            samples=samples,
            record_bytes=RECORD_BYTES,
            server_pid=broker.pid,
        )


_SHOWN: Final = (
    ("produce to acknowledgement, p50 ms", "ack_p50_ms"),
    ("produce to acknowledgement, p99 ms", "ack_p99_ms"),
    ("produce to acknowledgement, server CPU s per million records", "ack_server_cpu_per_million"),
    ("produce to acknowledgement, client CPU s per million records", "ack_client_cpu_per_million"),
    ("produce to consumption, p50 ms", "trip_p50_ms"),
    ("produce to consumption, p99 ms", "trip_p99_ms"),
    ("produce to consumption, server CPU s per million records", "trip_server_cpu_per_million"),
    ("produce to consumption, client CPU s per million records", "trip_client_cpu_per_million"),
)


def section(result: Result) -> list[str]:
    settings = result.settings
    text = (
        f"confluent-kafka sends records of {settings['record_bytes']} B one at a time to one partition, with `acks=all`"
        " and `linger.ms=0`. The first pass measures the time until the application has the acknowledgement. The second"
        " pass measures the time until a consumer in the same process has the record. The consumer waits in `poll()`."
        f" In each round, each pass sends {settings['samples']:,} records. Before the first round, each pass sends"
        f" {settings['warm_up']:,} records that are not counted. The times include the work of the client's threads."
        " This work is the same for both servers."
    )
    rows = [
        (
            what,
            figure(result.values(SERIES, HOLDFAST, name)),
            figure(result.values(SERIES, KAFKA, name)),
            times(result.ratio(SERIES, name)),
        )
        for what, name in _SHOWN
    ]
    return [paragraph(text), "", *table(("", "Holdfast", "Apache Kafka", "ratio"), rows)]
