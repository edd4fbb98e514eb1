"""A plain consumer, as anybody would write one with confluent-kafka: `python -m examples.demo.consumer '{…}'`."""

from __future__ import annotations

import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from examples.demo.processes import Journal, is_to_begin


def main(options: dict[str, Any]) -> None:
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    journal = Journal(Path(options["journal"]))
    if not is_to_begin(journal):
        return
    config = {
        "bootstrap.servers": options["bootstrap"],
        "group.id": options["group"],
        "client.id": options["name"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": options["session_ms"],
        "max.poll.interval.ms": max(options["session_ms"], 300_000),  # librdkafka takes no shorter one
        "heartbeat.interval.ms": 1000,
    }
    if options["static"]:
        config["group.instance.id"] = options["name"]
    consumer = Consumer(config)
    # With a callback, partitions go while the consumer asks for records, never between their processing and the commit.
    consumer.subscribe([options["topic"]], on_revoke=lambda *_: None)
    while not stopping.is_set():
        messages = [one for one in consumer.consume(1000, 0.2) if one.error() is None]
        if messages:
            ranges = _ranges(messages)
            journal.tell("processed", ranges=ranges)
            _commit(consumer, options["topic"], ranges)
    consumer.close()


def _commit(consumer: Consumer, topic: str, ranges: list[tuple[int, int, int]]) -> None:
    try:
        offsets = [TopicPartition(topic, partition, end) for partition, _, end in ranges]
        consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException as error:  # it has missed its session: what is not committed, another one processes again
        print(f"not committed: {error}", file=sys.stderr, flush=True)


def _ranges(messages: list[Any]) -> list[tuple[int, int, int]]:
    """Of each partition, from the first offset to behind the last one."""
    ranges: dict[int, tuple[int, int]] = {}
    for partition, offset in sorted((one.partition(), one.offset()) for one in messages):
        first, _ = ranges.get(partition, (offset, offset))
        ranges[partition] = first, offset + 1
    return [(partition, first, end) for partition, (first, end) in sorted(ranges.items())]


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
