"""A thousand records a second: the time until each is acknowledged and consumed, measured from when it was due."""

from __future__ import annotations

from typing import Final

from benchmarks.librdkafka import new_topic
from benchmarks.measure import HOLDFAST, KAFKA, Plan, Result, Row, alternating
from benchmarks.pace import MAX_WAIT_MS, Pace, keep_pace
from benchmarks.servers import Broker, both, settle
from benchmarks.tables import Target, Verdict, figure, paragraph, table, times

NAME: Final = "latency-rate"
SERIES: Final = "latency at a rate"
TARGET: Final = Target("at most", 1.0)
RATE: Final = 1_000
WARM_UP_RATE: Final = 4_000
_TARGETED: Final = {"trip_p50_ms": "p50", "trip_p99_ms": "p99"}


def run(plan: Plan) -> Result:
    seconds, warm_up_seconds = plan.pick(full=15, quick=3), plan.pick(full=45, quick=3)
    rows: list[Row] = []
    with both() as brokers:
        for broker in brokers.values():
            _round(broker, Pace(WARM_UP_RATE, warm_up_seconds))
        for number in range(1, plan.rounds + 1):
            for name in alternating(brokers, number):
                with plan.attempt(SERIES, name, number):
                    rows.append(Row(SERIES, name, number, _round(brokers[name], Pace(RATE, seconds))))
    settings = {
        "rate": RATE,
        "seconds": seconds,
        "record_bytes": Pace(RATE, seconds).record_bytes,
        "warm_up_rate": WARM_UP_RATE,
        "warm_up_seconds": warm_up_seconds,
        "max_wait_ms": MAX_WAIT_MS,
    }
    return Result(NAME, settings, rows)


def _round(broker: Broker, pace: Pace) -> dict[str, float]:
    with new_topic(broker, partitions=1) as topic:
        settle()
        return keep_pace(pace, broker, topic)


_SHOWN: Final = (
    ("due time to consumption, p50 ms", "trip_p50_ms"),
    ("due time to consumption, p99 ms", "trip_p99_ms"),
    ("due time to consumption, p99.9 ms", "trip_p999_ms"),
    ("due time to consumption, maximum ms", "trip_max_ms"),
    ("due time to acknowledgement, p50 ms", "ack_p50_ms"),
    ("due time to acknowledgement, p99 ms", "ack_p99_ms"),
    ("due time to acknowledgement, p99.9 ms", "ack_p999_ms"),
    ("client delay, due time to sending, p99 ms", "late_p99_ms"),
    ("client delay, due time to sending, maximum ms", "late_max_ms"),
    ("server CPU s per million records", "server_cpu_per_million"),
    ("client CPU s per million records", "client_cpu_per_million"),
)


def section(result: Result) -> list[str]:
    rows = [
        (
            what,
            figure(result.values(SERIES, HOLDFAST, name)),
            figure(result.values(SERIES, KAFKA, name)),
            times(result.ratio(SERIES, name)),
            str(TARGET) if name in _TARGETED else "",
        )
        for what, name in _SHOWN
    ]
    return [paragraph(_method(result)), "", *table(("", "Holdfast", "Apache Kafka", "ratio", "target"), rows)]


def _method(result: Result) -> str:
    settings = result.settings
    return (
        f"A producer sends {settings['rate']:,} records of {settings['record_bytes']} B per second to one partition."
        " Each record has its own request with `acks=all`. A consumer on another connection always has a Fetch request"
        f" pending (`max_wait_ms={settings['max_wait_ms']}`, `min_bytes=1`). One thread of `benchmarks/pace.c` is both"
        " the producer and the consumer. Only the clock determines when a record is due. All times start when the"
        " record is due, not when it is sent. A pause of the server therefore delays all records that are due during"
        " the pause. “Due time to consumption” is the time until the consumer has the record. “Due time to sending”"
        f" shows how much the machine delays a client that only follows the clock. A round takes {settings['seconds']}"
        f" s and uses a new topic. Before the first round, each server serves {settings['warm_up_rate']:,} records per"
        f" second for {settings['warm_up_seconds']} s. These records are not counted."
    )


def verdicts(result: Result) -> list[Verdict]:
    measured = ((shown, result.ratio(SERIES, name)) for name, shown in _TARGETED.items())
    return [
        Verdict(f"{result.settings['rate']:,} records/s, due time to consumption: {shown} ÷ Kafka", TARGET, ratio)
        for shown, ratio in measured
        if ratio is not None
    ]
