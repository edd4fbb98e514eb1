"""A plain consumer that uses confluent-kafka: `python -m examples.demo.consumer '{…}'`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from examples.demo.processes import EventLog, print_stacks_on_sigquit, wait_for_start
from examples.demo.stop_signal import StopSignal


def main(options: dict[str, Any]) -> None:
    print_stacks_on_sigquit()
    stopping = StopSignal()
    event_log = EventLog(Path(options["event_log"]))
    if not wait_for_start(event_log):
        return
    config = {
        "bootstrap.servers": options["bootstrap"],
        "group.id": options["group"],
        "client.id": options["name"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": options["session_ms"],
        "max.poll.interval.ms": max(options["session_ms"], 300_000),  # librdkafka requires at least the session timeout
        "heartbeat.interval.ms": 1000,
    }
    if options["static"]:
        config["group.instance.id"] = options["name"]
    consumer = Consumer(config)
    # With a callback, partitions are revoked inside consume(), never between processing and commit.
    consumer.subscribe([options["topic"]], on_revoke=lambda *_: None)
    while not stopping.is_set():
        messages = [one for one in consumer.consume(1000, 0.2) if one.error() is None]
        if messages:
            ranges = _ranges(messages)
            event_log.write("processed", ranges=ranges)
            _commit(consumer, options["topic"], ranges)
    consumer.close()


def _commit(consumer: Consumer, topic: str, ranges: list[tuple[int, int, int]]) -> None:
    try:
        offsets = [TopicPartition(topic, partition, end) for partition, _, end in ranges]
        consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException as error:  # its session has expired: another member processes these records again
        print(f"not committed: {error}", file=sys.stderr, flush=True)


def _ranges(messages: list[Any]) -> list[tuple[int, int, int]]:
    """For each partition, the first offset and the one after the last."""
    ranges: dict[int, tuple[int, int]] = {}
    for partition, offset in sorted((one.partition(), one.offset()) for one in messages):
        first, _ = ranges.get(partition, (offset, offset))
        ranges[partition] = first, offset + 1
    return [(partition, first, end) for partition, (first, end) in sorted(ranges.items())]


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
