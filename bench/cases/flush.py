"""Acknowledged only when it is on the disk: one producer that waits for each append, and 32 that share flushes."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.librdkafka import end_offsets, new_topic
from bench.load import Load, send
from bench.measure import HOLDFAST, KAFKA, Plan, Result, Row, alternating
from bench.servers import Broker, both, settle
from bench.tables import figure, paragraph, table, times
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
                    rows.append(Row(series, name, number, _appends(brokers[name], Load(producers, 1, seconds))))
        for series, producers in PRODUCERS.items():
            for name, broker in brokers.items():
                shared = _appends_per_flush(broker, Load(producers, 1, 1))
                rows += [Row(series, name, 0, {"appends_per_flush": shared})] if shared else []
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
    """How many appends share one fsync, counted by strace in a round that is not timed; None where it cannot look."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    with tempfile.TemporaryDirectory() as directory:
        trace = Path(directory) / "trace"
        command = [strace, "-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", str(trace), "-p", str(broker.pid)]
        tracer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            time.sleep(_TRACE_ATTACHED_S)  # strace says nothing when it has attached
            if tracer.poll() is not None:
                return None
            appends = _appends(broker, load)["requests"]
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.wait(_TRACE_STOP_TIMEOUT_S)
        # A call that another thread interrupts in the trace stands there twice; only its begin has the opening.
        flushes = sum(1 for line in trace.read_text().splitlines() if "sync(" in line)
    return appends / flushes if flushes else None


_SHOWN: Final = (
    ("appends/s", "requests_per_s"),
    ("p50 µs", "p50_us"),
    ("p99 µs", "p99_us"),
    ("server CPU s per million", "server_cpu_per_million"),
    ("client CPU s per million", "client_cpu_per_million"),
    ("appends per flush", "appends_per_flush"),
)


def section(result: Result) -> list[str]:
    settings = result.settings
    text = (
        "Holdfast with `flush=always`, Kafka with `log.flush.interval.messages=1`: an acknowledgement then survives a"
        f" power cut. Each producer has one Produce request of one {settings['record_bytes']} B record in flight"
        " (`bench/load.c`, `acks=all`), all to one partition; afterwards the partition must hold exactly what was"
        f" acknowledged. Rounds of {settings['seconds']} s after {settings['warm_up_seconds']} s uncounted. Appends per"
        " flush are counted by strace in a round of their own that is not timed, and include the few flushes that come"
        " with the topic itself."
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
