"""A consumer that processes numbered records in a process of its own, and writes down everything that it does.

Its log is a file with one event per line: what it was assigned and lost, what it processed, what it was about to
commit and how that ended. A line is written in one piece, before what follows from it is done: whenever the process is
killed, the log says how far it came.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from examples.demo.stop_signal import StopSignal
from holdfast import Consumer
from holdfast.client.errors import HoldfastError

HOLDFAST, CONFLUENT = "holdfast", "confluent-kafka"
BATCH = 10
POLL_S = 0.1
HEARTBEAT_MS = 200
AUTO_COMMIT_MS = 100


@dataclass(frozen=True)
class WorkerConfig:
    name: str
    """Also its client.id: by that the wire knows it."""
    bootstrap: str
    group: str
    topic: str
    log: Path
    strategy: str = "range"
    client: str = HOLDFAST
    instance_id: str | None = None
    auto_commit: bool = False
    session_timeout_ms: int = 2_000


def live(config: WorkerConfig) -> None:
    """The whole life of the process: until SIGTERM, or until the consumer has failed for good."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the tests, which end their workers in order
    asked_to_stop = StopSignal()
    logging.basicConfig(filename=config.log.with_suffix(".log"), format="%(asctime)s %(message)s")
    parent = os.getppid()
    with config.log.open("ab", buffering=0) as file:
        worker = Worker(config, file.write)
        try:
            # A worker whose tests are gone ends as well.
            while not asked_to_stop.is_set() and os.getppid() == parent:
                worker.step()
        except (HoldfastError, KafkaException) as error:
            worker.report("failed", error=f"{type(error).__name__}: {error}")
        finally:
            worker.close()


class Worker:
    def __init__(self, config: WorkerConfig, write: Callable[[bytes], object]) -> None:
        self._config = config
        self._write = write
        self._pending: dict[int, int] = {}
        """Where to go on in each partition, of what was processed and not committed yet."""
        self._consumer: Any = _CONSUMERS[config.client](settings(config))
        self._consumer.subscribe(
            [config.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def step(self) -> None:
        try:
            messages = self._consumer.consume(BATCH, POLL_S)
        except HoldfastError as error:
            if not error.retriable:
                raise
            self.report("complaint", error=str(error))
            return
        self._process(messages)
        if not self._config.auto_commit:
            self._commit()

    def close(self) -> None:
        self._consumer.close()
        self.report("closed")

    def report(self, event: str, **fields: Any) -> None:
        line = {"event": event, "at_ms": time.time_ns() // 1_000_000} | fields
        self._write(json.dumps(line).encode() + b"\n")

    def _process(self, messages: list[Any]) -> None:
        records: dict[int, list[tuple[int, int]]] = {}
        for message in messages:
            if (error := message.error()) is not None:
                if error.code() == KafkaError._FATAL:
                    raise KafkaException(error)
                self.report("complaint", error=str(error))
                continue
            records.setdefault(message.partition(), []).append((message.offset(), int(message.value())))
        if not records:
            return
        self.report("processed", records=records)
        for partition, done in records.items():
            self._pending[partition] = done[-1][0] + 1

    def _commit(self) -> None:
        if not self._pending:
            return
        member_id = self._consumer.memberid()
        offsets = [
            # The metadata says whose it is to any member that reads the group's history.
            TopicPartition(self._config.topic, partition, offset, metadata=member_id)
            for partition, offset in self._pending.items()
        ]
        self.report("committing", offsets=self._pending, member_id=member_id)
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except (HoldfastError, KafkaException) as error:
            self.report("refused", error=f"{type(error).__name__}: {error}")
            return
        self.report("committed", offsets=self._pending)
        self._pending.clear()

    def _on_assign(self, _consumer: Any, partitions: list[TopicPartition]) -> None:
        member_id = self._consumer.memberid()
        self.report("assigned", partitions=[one.partition for one in partitions], member_id=member_id)

    def _on_revoke(self, _consumer: Any, partitions: list[TopicPartition]) -> None:
        if not self._config.auto_commit:
            self._commit()
        self._gone("revoked", partitions)

    def _on_lost(self, _consumer: Any, partitions: list[TopicPartition]) -> None:
        self._gone("lost", partitions)

    def _gone(self, how: str, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            self._pending.pop(one.partition, None)
        self.report(how, partitions=[one.partition for one in partitions])


def settings(config: WorkerConfig) -> dict[str, Any]:
    found: dict[str, Any] = {
        "bootstrap.servers": config.bootstrap,
        "client.id": config.name,
        "group.id": config.group,
        "partition.assignment.strategy": config.strategy,
        "session.timeout.ms": config.session_timeout_ms,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": config.auto_commit,
        "auto.commit.interval.ms": AUTO_COMMIT_MS,
        "fetch.wait.max.ms": 50,
        "reconnect.backoff.max.ms": 500,
    }
    return found if config.instance_id is None else found | {"group.instance.id": config.instance_id}


_CONSUMERS: dict[str, Callable[[dict[str, Any]], Any]] = {HOLDFAST: Consumer, CONFLUENT: confluent_kafka.Consumer}
