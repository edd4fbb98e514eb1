"""Acknowledgements after a flush: one producer that waits for each append, and 32 with common flushes."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.librdkafka import end_offsets, new_topic
from benchmarks.load import Load, send
from benchmarks.measure import HOLDFAST, KAFKA, Plan, Result, Row, alternating
from benchmarks.servers import Broker, both, settle
from benchmarks.tables import figure, paragraph, table, times
from holdfast.wire.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast.wire.headers import encode_request
from holdfast.wire.records import Record, encode_batch

NAME: Final = "flush"
PRODUCERS: Final = {"1 producer": 1, "32 producers": 32}
RECORD_BYTES: Final = 100
PRODUCE_VERSION: Final = 9
_TIMEOUT_MS: Final = 10_000
_TRACE_ATTACHED_S: Final = 1.0
_TRACE_STOP_TIMEOUT_S: Final = 20


def run(plan: Plan) -> Result:
    seconds, warm_up_seconds = plan.pick(full=3, quick=1), plan.pick(full=10, quick=1)
    rows: list[Row] = []
    with both({"flush": "always"}, {"log.flush.interval.messages": "1"}) as brokers:
        for broker in brokers.values():
            _appends(broker, Load(32, 1, warm_up_seconds))
        for number in range(1, plan.rounds + 1):
            for series, producers in PRODUCERS.items():
                for name in alternating(brokers, number):
                    with plan.attempt(series, name, number):
                        rows.append(Row(series, name, number, _appends(brokers[name], Load(producers, 1, seconds))))
        for series, producers in PRODUCERS.items():
            for name, broker in brokers.items():
                appends = _appends_per_flush(broker, Load(producers, 1, 1))
                rows += [Row(series, name, 0, {"appends_per_flush": appends})] if appends else []
    settings = {"seconds": seconds, "warm_up_seconds": warm_up_seconds, "record_bytes": RECORD_BYTES}
    return Result(NAME, settings, rows)


def _appends(broker: Broker, load: Load) -> dict[str, float]:
    with new_topic(broker, partitions=1) as topic:
        settle()
        figures = send(load, broker, _produce_frame(topic))
        (stored,) = end_offsets(broker, topic, partitions=1)
        if stored != figures["requests"]:
            raise RuntimeError(f"{figures['requests']:.0f} appends were acknowledged, but {stored} records are stored")
        return figures


def _produce_frame(topic: str) -> bytes:
    batch = encode_batch([Record(0, time.time_ns() // 1_000_000, None, bytes(RECORD_BYTES), ())])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=[data])
    return encode_request(request, PRODUCE_VERSION, 0, "bench")


def _appends_per_flush(broker: Broker, load: Load) -> float | None:
    """The appends per fsync, counted by strace in a round that is not timed; None where strace cannot run."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    with tempfile.TemporaryDirectory() as directory:
        trace = Path(directory) / "trace"
        command = [strace, "-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", str(trace), "-p", str(broker.pid)]
        tracer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            time.sleep(_TRACE_ATTACHED_S)  # strace does not report when it has attached
            if tracer.poll() is not None:
                return None
            appends = _appends(broker, load)["requests"]
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.wait(_TRACE_STOP_TIMEOUT_S)
        # A call that another thread interrupts is in the trace twice; only its begin has the opening parenthesis.
        flushes = sum(1 for line in trace.read_text().splitlines() if "sync(" in line)
    return appends / flushes if flushes else None


_SHOWN: Final = (
    ("appends/s", "requests_per_s"),
    ("latency p50, µs", "p50_us"),
    ("latency p99, µs", "p99_us"),
    ("server CPU s per million appends", "server_cpu_per_million"),
    ("client CPU s per million appends", "client_cpu_per_million"),
    ("appends per flush", "appends_per_flush"),
)


def section(result: Result) -> list[str]:
    settings = result.settings
    text = (
        "Holdfast runs with `flush=always` and Kafka with `log.flush.interval.messages=1`. With these settings,"
        " acknowledged records survive a power failure. Each producer has one Produce request in flight, with one"
        f" record of {settings['record_bytes']} B (`benchmarks/load.c`, `acks=all`). All producers write to one"
        " partition. At the end, the partition must contain exactly the acknowledged records. A round takes"
        f" {settings['seconds']} s. Before the first round, each server serves the same load for"
        f" {settings['warm_up_seconds']} s. This load is not counted. strace counts the flushes in a separate round"
        " that is not timed. The count includes the few flushes for the topic itself."
    )
    rows = [
        (
            f"{series}: {what}",
            figure(result.values(series, HOLDFAST, name)),
            figure(result.values(series, KAFKA, name)),
            "" if name == "appends_per_flush" else times(result.ratio(series, name)),
        )
        for series in PRODUCERS
        for what, name in _SHOWN
    ]
    return [paragraph(text), "", *table(("", "Holdfast", "Apache Kafka", "ratio"), rows)]
