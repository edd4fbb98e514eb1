"""librdkafka as the load, in its own process: `python -m benchmarks.client produce '{...}'` prints one JSON object.

The timed part begins when the client is connected and knows the topic, and the CPU time of both sides is read at its
ends, so that neither the start of Python nor that of the client is counted.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from benchmarks.measure import per_million
from benchmarks.proc import cpu_seconds

FULL_BATCHES: Final[dict[str, Any]] = {"acks": "all", "linger.ms": 1000}
"""For records that will be consumed. The size of batches must not depend on how fast a server acknowledges."""

PRODUCER: Final[dict[str, Any]] = {"acks": "all", "linger.ms": 5}
"""Everything else is librdkafka's default: batches of up to 10,000 records or 1 MB, five requests in flight."""

CONSUMER: Final[dict[str, Any]] = {
    "group.id": "bench",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    # By default librdkafka pauses a whole second whenever 100,000 records wait for the application.
    "queued.min.messages": 1_000_000,
    "fetch.queue.backoff.ms": 1,
}
RECORDS_PER_CALL: Final = 1_000
CONSUME_AT_ONCE: Final = 10_000
PATIENCE_SECONDS: Final = 60


class Stopwatch:
    """Wall time, own CPU time and the server's, from creation to `figures`."""

    def __init__(self, server_pid: int | None) -> None:
        self._server_pid = server_pid
        self._server_cpu = self._read_server()
        self._client_cpu = _own_cpu_seconds()
        self._began = time.perf_counter()

    def figures(self, records: int, record_bytes: int) -> dict[str, float]:
        seconds = time.perf_counter() - self._began
        client_cpu = _own_cpu_seconds() - self._client_cpu
        server_cpu = self._read_server() - self._server_cpu
        return {
            "records": records,
            "seconds": seconds,
            "records_per_s": records / seconds,
            "mb_per_s": records * record_bytes / seconds / 1e6,
            "server_cpu_per_million": per_million(server_cpu, records),
            "client_cpu_per_million": per_million(client_cpu, records),
            "server_cores": server_cpu / seconds,
            "client_cores": client_cpu / seconds,
        }

    def _read_server(self) -> float:
        return cpu_seconds(self._server_pid) if self._server_pid is not None else 0.0


class Deliveries:
    """Called only for failures; one is enough to end the measurement."""

    def __call__(self, error: KafkaError | None, message: Message) -> None:  # noqa: ARG002 - the client's signature
        if error is not None:
            raise KafkaException(error)


def produce(
    bootstrap: str,
    topic: str,
    partitions: int,
    records: int,
    record_bytes: int,
    server_pid: int | None,
    full_batches: bool = False,
    security: dict[str, str] | None = None,
) -> dict[str, float]:
    """Appends `records` records, batch by batch around the partitions, until all are acknowledged.

    Without a server's process, the records are sent to librdkafka's own mock broker in this process. `security` has the
    settings for TLS.
    """
    target = {"test.mock.num.brokers": 1} if server_pid is None else {"bootstrap.servers": bootstrap}
    failures = {"delivery.report.only.error": True, "on_delivery": Deliveries()}
    settings = FULL_BATCHES if full_batches else PRODUCER
    producer = Producer({**settings, **failures, **target, **(security or {}), "log_level": 0})
    producer.list_topics(topic, timeout=PATIENCE_SECONDS)
    messages = [{"value": bytes(record_bytes)} for _ in range(RECORDS_PER_CALL)]
    watch = Stopwatch(server_pid)
    queued = calls = 0
    while queued < records:
        taken = producer.produce_batch(topic, messages[: records - queued], partition=calls % partitions)
        queued += taken
        calls += 1
        if taken < RECORDS_PER_CALL:
            # The client's queue is full (its default, 100,000 records): let it drain a little.
            producer.poll(0.002)
            for message in messages:
                message.pop("_error", None)
    if left := producer.flush(PATIENCE_SECONDS):
        raise RuntimeError(f"{left} records were not acknowledged within {PATIENCE_SECONDS} s")
    return watch.figures(records, record_bytes)


def consume(
    bootstrap: str,
    topic: str,
    partitions: int,
    records: int,
    record_bytes: int,
    server_pid: int,
    security: dict[str, str] | None = None,
) -> dict[str, float]:
    """Reads all records of the topic from the beginning, by assignment."""
    consumer = Consumer({**CONSUMER, "bootstrap.servers": bootstrap, **(security or {}), "log_level": 0})
    consumer.list_topics(topic, timeout=PATIENCE_SECONDS)
    watch = Stopwatch(server_pid)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    received = 0
    deadline = time.monotonic() + PATIENCE_SECONDS
    while received < records:
        messages = consumer.consume(CONSUME_AT_ONCE, timeout=1.0)
        if messages and (error := messages[-1].error()) is not None:
            raise KafkaException(error)
        received += len(messages)
        if time.monotonic() > deadline:
            raise RuntimeError(f"{received} of {records} records came within {PATIENCE_SECONDS} s")
    figures = watch.figures(received, record_bytes)
    consumer.close()
    return figures


def latency(bootstrap: str, topic: str, samples: int, record_bytes: int, server_pid: int) -> dict[str, float]:
    """One record at a time: the time until it is acknowledged, and, in a second pass, until a waiting consumer has
    it."""
    producer = Producer({**PRODUCER, "linger.ms": 0, "bootstrap.servers": bootstrap, "log_level": 0})
    consumer = Consumer({**CONSUMER, "bootstrap.servers": bootstrap, "log_level": 0})
    value = bytes(record_bytes)
    acknowledged: list[bool] = []

    def delivered(error: KafkaError | None, message: Message) -> None:  # noqa: ARG001 - the client's signature
        if error is not None:
            raise KafkaException(error)
        acknowledged.append(True)

    def until_acknowledged() -> None:
        acknowledged.clear()
        producer.produce(topic, value, partition=0, on_delivery=delivered)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not acknowledged:
            producer.poll(1.0)
            if time.monotonic() > deadline:
                raise RuntimeError("a record was not acknowledged")

    def until_consumed() -> None:
        producer.produce(topic, value, partition=0)
        message = consumer.poll(PATIENCE_SECONDS)
        if message is None or message.error() is not None:
            raise RuntimeError("a record did not arrive")
        producer.poll(0)

    warm_up = max(20, samples // 5)
    _durations_ms(until_acknowledged, warm_up)
    watch = Stopwatch(server_pid)
    acks = _durations_ms(until_acknowledged, samples)
    figures = {f"ack_{name}": value for name, value in watch.figures(samples, record_bytes).items()}
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_SECONDS)
    consumer.assign([TopicPartition(topic, 0, end)])
    _durations_ms(until_consumed, warm_up)
    watch = Stopwatch(server_pid)
    trips = _durations_ms(until_consumed, samples)
    figures |= {f"trip_{name}": value for name, value in watch.figures(samples, record_bytes).items()}
    consumer.close()
    return {**figures, **_percentiles("ack", acks), **_percentiles("trip", trips)}


def _durations_ms(action: Callable[[], None], count: int) -> list[float]:
    durations = []
    for _ in range(count):
        began = time.perf_counter()
        action()
        durations.append((time.perf_counter() - began) * 1000)
    return durations


def _percentiles(name: str, durations: list[float]) -> dict[str, float]:
    return {
        f"{name}_p50_ms": statistics.median(durations),
        f"{name}_p99_ms": statistics.quantiles(durations, n=100)[98],
    }


def _own_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


COMMANDS: Final[dict[str, Callable[..., dict[str, float]]]] = {
    "produce": produce,
    "consume": consume,
    "latency": latency,
}

if __name__ == "__main__":
    print(json.dumps(COMMANDS[sys.argv[1]](**json.loads(sys.argv[2]))))
