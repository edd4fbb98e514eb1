"""Many members of one group in one process: `python -m benchmarks.extension_members '{...}'`, with commands on stdin.

A line with a name on stdin starts the member of that instance id in its own thread. When stdin ends, the process ends
at once, so static members do not leave. Each event of a member is a line of JSON on stdout, with the time of the
machine's monotonic clock, which is the same in all processes. Events are assigned and revoked partitions, and the first
record of every partition since it was assigned.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiokafka
import confluent_kafka
import kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AiokafkaRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AiokafkaRoundRobin
from kafka.coordinator.assignors.range import RangePartitionAssignor as KafkaPythonRange
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as KafkaPythonRoundRobin

import holdfast

RANGE: Final = "range"
ROUND_ROBIN: Final = "roundrobin"

CONFLUENT: Final = "confluent-kafka"
KAFKA_PYTHON: Final = "kafka-python"
AIOKAFKA: Final = "aiokafka"
HOLDFAST_CLIENT: Final = "holdfast"
JAVA: Final = "Java"
"""Not here: `benchmarks/ExtensionMembers.java`."""

_KAFKA_PYTHON_ASSIGNORS: Final = {RANGE: KafkaPythonRange, ROUND_ROBIN: KafkaPythonRoundRobin}
_AIOKAFKA_ASSIGNORS: Final = {RANGE: AiokafkaRange, ROUND_ROBIN: AiokafkaRoundRobin}
_POLL_S: Final = 1.0
_KAFKA_PYTHON_POLL_MS: Final = 5_000
"""Long, because a poll that times out just when its join completes drops the result and joins again (kafka-python
3.0.12)."""


@dataclass(frozen=True)
class Settings:
    family: str
    bootstrap: str
    group: str
    topic: str
    heartbeat_ms: int
    session_ms: int
    metadata_max_age_ms: int = 300_000
    assignor: str = RANGE
    """A strategy that every family supports."""


class Watcher:
    """The events of one member."""

    _out: Final = threading.Lock()

    def __init__(self, name: str) -> None:
        self._name = name
        self._seen: set[int] = set()

    def assigned(self, partitions: Iterable[int]) -> None:
        given = sorted(partitions)
        self._seen.difference_update(given)
        self._report("assigned", given)

    def revoked(self, partitions: Iterable[int]) -> None:
        self._report("revoked", sorted(partitions))

    def consumed(self, partitions: Iterable[int]) -> None:
        first = sorted(set(partitions) - self._seen)
        if first:
            self._seen.update(first)
            self._report("consumed", first)

    def failed(self, error: BaseException) -> None:
        self._report("failed", [], error=repr(error))

    def _report(self, event: str, partitions: Sequence[int], **more: Any) -> None:
        said = {"at": time.monotonic(), "member": self._name, "event": event, "partitions": partitions, **more}
        with Watcher._out:
            print(json.dumps(said), flush=True)


# -- the families ------------------------------------------------------------------------------------------------------


def _run_polled(kind: Callable[[dict[str, Any]], Any]) -> Callable[[str, Settings], None]:
    """The two clients with the interface of confluent-kafka."""

    def run(name: str, settings: Settings) -> None:
        watcher = Watcher(name)
        consumer = kind(
            {
                "bootstrap.servers": settings.bootstrap,
                "group.id": settings.group,
                "group.instance.id": name,
                "session.timeout.ms": settings.session_ms,
                "heartbeat.interval.ms": settings.heartbeat_ms,
                "topic.metadata.refresh.interval.ms": settings.metadata_max_age_ms,
                "auto.offset.reset": "latest",
                "enable.auto.commit": False,
                "log_level": 0,
                "partition.assignment.strategy": settings.assignor,
            }
        )
        consumer.subscribe(
            [settings.topic],
            on_assign=lambda _, partitions: watcher.assigned(at.partition for at in partitions),
            on_revoke=lambda _, partitions: watcher.revoked(at.partition for at in partitions),
            on_lost=lambda _, partitions: watcher.revoked(at.partition for at in partitions),
        )
        while True:
            messages = consumer.consume(100, _POLL_S)
            watcher.consumed(message.partition() for message in messages if message.error() is None)

    return run


def _run_kafka_python(name: str, settings: Settings) -> None:
    watcher = Watcher(name)

    class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]  # the package has no types
        def on_partitions_revoked(self, revoked: Any) -> None:
            watcher.revoked(at.partition for at in revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            watcher.assigned(at.partition for at in assigned)

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=settings.bootstrap,
        group_id=settings.group,
        group_instance_id=name,
        partition_assignment_strategy=[_KAFKA_PYTHON_ASSIGNORS[settings.assignor]],
        session_timeout_ms=settings.session_ms,
        heartbeat_interval_ms=settings.heartbeat_ms,
        metadata_max_age_ms=settings.metadata_max_age_ms,
        enable_auto_commit=False,
    )
    consumer.subscribe([settings.topic], listener=Listener())
    while True:
        watcher.consumed(at.partition for at in consumer.poll(timeout_ms=_KAFKA_PYTHON_POLL_MS))


def _run_aiokafka(name: str, settings: Settings) -> None:
    watcher = Watcher(name)

    class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka does not type it
        def on_partitions_revoked(self, revoked: Any) -> None:
            watcher.revoked(at.partition for at in revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            watcher.assigned(at.partition for at in assigned)

    async def live() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=settings.bootstrap,
            group_id=settings.group,
            group_instance_id=name,
            partition_assignment_strategy=[_AIOKAFKA_ASSIGNORS[settings.assignor]],
            session_timeout_ms=settings.session_ms,
            heartbeat_interval_ms=settings.heartbeat_ms,
            metadata_max_age_ms=settings.metadata_max_age_ms,
            enable_auto_commit=False,
        )
        consumer.subscribe([settings.topic], listener=Listener())
        await consumer.start()
        while True:
            watcher.consumed(at.partition for at in await consumer.getmany(timeout_ms=round(_POLL_S * 1000)))

    asyncio.run(live())


FAMILIES: Final[dict[str, Callable[[str, Settings], None]]] = {
    CONFLUENT: _run_polled(confluent_kafka.Consumer),
    KAFKA_PYTHON: _run_kafka_python,
    AIOKAFKA: _run_aiokafka,
    HOLDFAST_CLIENT: _run_polled(holdfast.Consumer),
}


def main(settings: Settings) -> None:
    run = FAMILIES[settings.family]

    def live(name: str) -> None:
        try:
            run(name, settings)
        except BaseException as error:  # noqa: BLE001 - reported as an event
            Watcher(name).failed(error)

    for line in sys.stdin:
        threading.Thread(target=live, args=[line.strip()], daemon=True).start()
    os._exit(0)


if __name__ == "__main__":
    main(Settings(**json.loads(sys.argv[1])))
