"""Consumers under test, polled together in one thread, with the callbacks that they got."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import TopicPartition
from kafka import KafkaAdminClient

from holdfast import Consumer
from tests.client_compat.servers import Server

PATIENCE_S = 60.0
QUICK = {
    "auto.offset.reset": "earliest",
    "session.timeout.ms": 30_000,
    "heartbeat.interval.ms": 200,
}
"""They learn of a rebalance soon, and keep their session when the machine pauses for a while."""


class Watched:
    """A consumer, its callbacks and its records."""

    def __init__(self, server: Server, group: str, **settings: Any) -> None:
        config = {"bootstrap.servers": server.bootstrap, "group.id": group, **QUICK, **dotted(settings)}
        self.consumer = Consumer(config)
        self.callbacks: list[tuple[str, list[int]]] = []
        self.records: list[tuple[int, int]] = []
        self.errors: list[Any] = []

    def subscribe(self, *topics: str, callbacks: bool = True) -> Watched:
        recorded = {name: self._recorder(name) for name in ("on_assign", "on_revoke", "on_lost")} if callbacks else {}
        self.consumer.subscribe(list(topics), **recorded)
        return self

    def _recorder(self, name: str) -> Callable[[Consumer, list[TopicPartition]], None]:
        return lambda _consumer, partitions: self.callbacks.append((name, sorted(one.partition for one in partitions)))

    @property
    def partitions(self) -> list[int]:
        return [one.partition for one in self.consumer.assignment()]

    def poll(self, timeout_s: float = 0.05) -> None:
        for message in self.consumer.consume(500, timeout_s):
            if message.error() is not None:
                self.errors.append(message.error())
            else:
                self.records.append((message.partition(), message.offset()))


def dotted(settings: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in settings.items()}


def poll_until(condition: Callable[[], Any], what: str, *watched: Watched, within_s: float = PATIENCE_S) -> None:
    """Poll these consumers in turn until the condition holds."""
    deadline = time.monotonic() + within_s
    while not condition():
        seen = [(one.partitions, one.callbacks[-3:]) for one in watched]
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}; last seen: {seen}"
        for one in watched:
            one.poll()


def evenly_assigned(partitions: int, *watched: Watched) -> Callable[[], bool]:
    """Whether these consumers have all partitions between them, each as many as the others or one more.

    A cooperative member that keeps what it has may be the last to learn of the generation in which the others got
    theirs; until it has, its generation is not what a test should take for the group's.
    """

    def holds() -> bool:
        assigned = [one.partitions for one in watched]
        counts = [len(one) for one in assigned]
        held = sorted(partition for one in assigned for partition in one)
        is_one = len({one.consumer.generation() for one in watched}) == 1
        return held == list(range(partitions)) and max(counts) - min(counts) <= 1 and is_one

    return holds


@contextmanager
def watching(*watched: Watched) -> Iterator[None]:
    """Close them in the end."""
    try:
        yield
    finally:
        for one in watched:
            one.consumer.close()


def grow_topic(server: Server, topic: str, partitions: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=server.bootstrap)
    try:
        admin.create_partitions({topic: partitions})
    finally:
        admin.close()
