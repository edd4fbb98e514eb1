"""The only consumer of a group, in a separate process: `python -m benchmarks.group_reader holdfast '{...}'`.

Three clients read the same topic with the same settings. The timer starts when the partitions are assigned, so that
neither the start of Python nor the rebalance is counted, and stops with the last record.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any, Final, Protocol

import confluent_kafka
from kafka import ConsumerRebalanceListener, KafkaConsumer

import holdfast
from benchmarks.client import Stopwatch

AT_ONCE: Final = 10_000
PATIENCE_S: Final = 120.0

SETTINGS: Final[dict[str, Any]] = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": True,
    "isolation.level": "read_committed",
    "check.crcs": False,
    "fetch.min.bytes": 1,
    "fetch.max.bytes": 52_428_800,
    "max.partition.fetch.bytes": 1_048_576,
}
"""The same for all three clients, under the same names except for the punctuation."""
LIBRDKAFKA: Final[dict[str, Any]] = {"queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 1, "log_level": 0}
"""By default librdkafka pauses a whole second whenever 100,000 records wait for the application."""


class Reader(Protocol):
    def read(self, on_assign: Callable[[], None]) -> Callable[[], int]:
        """Subscribes. The returned function polls and returns the number of records."""

    def close(self) -> None: ...


class Polled:
    """The two clients with the interface of confluent-kafka."""

    def __init__(self, kind: Callable[[dict[str, Any]], Any], bootstrap: str, topic: str) -> None:
        group = {"bootstrap.servers": bootstrap, "group.id": f"bench-{uuid.uuid4().hex}"}
        self._consumer = kind({**SETTINGS, **LIBRDKAFKA, **group})
        self._topic = topic

    def read(self, on_assign: Callable[[], None]) -> Callable[[], int]:
        self._consumer.subscribe([self._topic], on_assign=lambda *_: on_assign())

        def take() -> int:
            messages = self._consumer.consume(AT_ONCE, 1.0)
            if messages and (error := messages[-1].error()) is not None:
                raise confluent_kafka.KafkaException(error)
            return len(messages)

        return take

    def close(self) -> None:
        self._consumer.close()


class KafkaPython:
    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {name.replace(".", "_"): value for name, value in SETTINGS.items()}
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, group_id=f"bench-{uuid.uuid4().hex}", max_poll_records=AT_ONCE, **settings
        )
        self._topic = topic

    def read(self, on_assign: Callable[[], None]) -> Callable[[], int]:
        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # the package has no types
            def on_partitions_revoked(self, revoked: Any) -> None: ...

            def on_partitions_assigned(self, assigned: Any) -> None:
                if assigned:  # it joins before it knows the partitions of the topic
                    on_assign()

        self._consumer.subscribe([self._topic], listener=Listener())
        return lambda: sum(len(records) for records in self._consumer.poll(timeout_ms=1000).values())

    def close(self) -> None:
        self._consumer.close()


READERS: Final[dict[str, Callable[[str, str], Reader]]] = {
    "holdfast": lambda bootstrap, topic: Polled(holdfast.Consumer, bootstrap, topic),
    "confluent-kafka": lambda bootstrap, topic: Polled(confluent_kafka.Consumer, bootstrap, topic),
    "kafka-python": KafkaPython,
}


def read(
    reader: Reader, records: int, record_bytes: int, server_pid: int, patience_s: float = PATIENCE_S
) -> dict[str, float]:
    watches: list[Stopwatch] = []
    take = reader.read(lambda: watches.append(Stopwatch(server_pid)))
    received = 0
    deadline = time.monotonic() + patience_s
    while received < records:
        received += take()
        if time.monotonic() > deadline:
            raise RuntimeError(f"{received} of {records} records came within {patience_s} s")
    (watch,) = watches  # a second assignment would mean a second start
    figures = watch.figures(received, record_bytes)
    reader.close()
    return figures


def main(client: str, options: dict[str, Any]) -> dict[str, float]:
    reader = READERS[client](options.pop("bootstrap"), options.pop("topic"))
    return read(reader, **options)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], json.loads(sys.argv[2]))))
