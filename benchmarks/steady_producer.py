"""A producer with a steady rate, as a process: `python -m benchmarks.steady_producer BOOTSTRAP TOPIC PARTITIONS`.

Every tick it sends one record to each tenth partition, until its stdin ends. Neighbouring partitions, which usually
have the same consumer, get their records one tick apart. Prints how many records were acknowledged.
"""

from __future__ import annotations

import select
import sys
import time
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

TICK_SECONDS: Final = 0.02
TICKS_AROUND: Final = 10
"""After this many ticks every partition has had a record."""
_PATIENCE_SECONDS: Final = 30


def delivered(error: KafkaError | None, message: Message) -> None:  # noqa: ARG001 - the client's signature
    if error is not None:
        raise KafkaException(error)


def run(bootstrap: str, topic: str, partitions: int) -> int:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all", "log_level": 0})
    sent = tick = 0
    due = time.monotonic()
    while not select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
        for partition in range(tick % TICKS_AROUND, partitions, TICKS_AROUND):
            producer.produce(topic, b"tick", partition=partition, on_delivery=delivered)
            sent += 1
        producer.poll(0)
        tick += 1
        due += TICK_SECONDS
    if left := producer.flush(_PATIENCE_SECONDS):
        raise RuntimeError(f"{left} of {sent} records were not acknowledged")
    return sent


if __name__ == "__main__":
    print(run(sys.argv[1], sys.argv[2], int(sys.argv[3])))
