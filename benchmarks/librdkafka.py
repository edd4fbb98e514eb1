"""Topics for a round, and the load of `benchmarks.client` put on a broker."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]  # public, but not in __all__

from benchmarks.results import REPOSITORY
from benchmarks.servers import Broker

_PATIENCE_SECONDS: Final = 60
_CLIENT_TIMEOUT_SECONDS: Final = 180
_POLL_SECONDS: Final = 0.05
_numbers: Final = itertools.count(1)


@contextlib.contextmanager
def new_topic(broker: Broker, partitions: int, config: Mapping[str, str] | None = None) -> Iterator[str]:
    """A separate topic for a round. It is deleted afterwards, so that disk and page cache do not fill up."""
    topic = f"bench-{next(_numbers)}"
    admin = _create(broker, topic, partitions, config)
    try:
        _wait_until_led(broker, topic, partitions)
        yield topic
    finally:
        admin.delete_topics([topic])[topic].result(_PATIENCE_SECONDS)


def create_topic(broker: Broker, topic: str, partitions: int) -> None:
    """A topic that exists as long as the broker."""
    _create(broker, topic, partitions, None)
    _wait_until_led(broker, topic, partitions)


def _create(broker: Broker, topic: str, partitions: int, config: Mapping[str, str] | None) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    wanted = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
    admin.create_topics([wanted])[topic].result(_PATIENCE_SECONDS)
    return admin


def _wait_until_led(broker: Broker, topic: str, partitions: int) -> None:
    """Kafka reports that a topic is created before its partitions accept records."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            end_offsets(broker, topic, partitions)
            return
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_SECONDS)


def end_offsets(broker: Broker, topic: str, partitions: int) -> list[int]:
    """The number of records in each partition of a new topic."""
    # A new client, because one that already knows the topic may not request its metadata again.
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = {TopicPartition(topic, partition): latest for partition in range(partitions)}
    listed = admin.list_offsets(asked, request_timeout=_PATIENCE_SECONDS)
    return [future.result(_PATIENCE_SECONDS).offset for future in listed.values()]


def run_client(command: str, *, module: str = "benchmarks.client", **options: Any) -> dict[str, float]:
    """One measurement in a fresh client process."""
    done = subprocess.run(
        [sys.executable, "-m", module, command, json.dumps(options)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=_CLIENT_TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise RuntimeError(f"the client failed to {command}: {said[-1]}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures
