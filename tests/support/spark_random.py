"""Queries and plain consumers of one group at work on numbered records, while everything is killed at random.

    python -m tests.support.spark_random --minutes 10 --seed 1

In the end: every record was processed; the group's offsets never went back and never passed what was processed; and
nobody read what the group had committed before they asked, so that only uncommitted work was done twice.

With `--refresh`, the group has committed records before the first query starts, and the queries have
newCheckpoint=startingOffsets. In the end these records were processed as well, and the group's offsets passed what was
processed only before the first query began again.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer, TopicPartition

from holdfast import Consumer
from holdfast.client.cluster_client import ClusterClient
from holdfast.client.coordinator_client import CoordinatorClient
from holdfast.client.errors import HoldfastError
from holdfast.client.runtime import SYSTEM
from holdfast.client.settings import NetworkSettings
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.quick_brokers import QUICK
from tests.support.spark_engine import Checkpoint, Engine, Killed, Point, QueryFailed
from tests.support.spark_harness import SparkHarness

PARTITIONS: Final = 5
PACE_S: Final = 0.02
SESSION_S: Final = 1.5
CALM_S: Final = 120.0
COMMITTED_BEFORE: Final = 100
"""How many records of each partition the group has committed before a refresh."""


class Processed:
    """What was done, by whom, and since when they knew where to begin."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.events: list[tuple[str, int, int, float]] = []
        self._seen: list[set[int]] = [set() for _ in range(PARTITIONS)]
        self._upto = [0] * PARTITIONS

    def add(self, who: str, partition: int, offset: int, since: float) -> None:
        with self._lock:
            self.events.append((who, partition, offset, since))
            self._seen[partition].add(offset)
            while self._upto[partition] in self._seen[partition]:
                self._upto[partition] += 1

    def upto(self) -> list[int]:
        """Everything before these offsets is done."""
        with self._lock:
            return list(self._upto)


class Watch(threading.Thread):
    """Looks at the group's offsets all the while."""

    def __init__(self, world: SparkHarness, processed: Processed, before: int) -> None:
        """`before`: what the group has committed of each partition before a refresh, or 0."""
        super().__init__(daemon=True)
        self._network = ClusterClient(
            NetworkSettings.from_config({"bootstrap.servers": world.server.bootstrap}), runtime=SYSTEM
        )
        self._harness = world
        self._processed = processed
        self._stopping = threading.Event()
        self.wrong: list[str] = []
        self._before = before
        self.now = [before] * PARTITIONS
        self._times: list[list[float]] = [[] for _ in range(PARTITIONS)]
        self._offsets: list[list[int]] = [[] for _ in range(PARTITIONS)]

    def run(self) -> None:
        coordinator = CoordinatorClient(self._network, self._harness.group)
        where = [(self._harness.topic, partition) for partition in range(PARTITIONS)]
        while not self._stopping.wait(0.02):
            try:
                found = coordinator.fetch_offsets(where, time.monotonic() + 1)
            except HoldfastError:
                coordinator.close()  # the broker is away
                continue
            self._compare({partition: committed.offset for (_, partition), committed in found.items()})

    def _compare(self, found: dict[int, int]) -> None:
        done, at = self._processed.upto(), time.monotonic()
        for partition, offset in found.items():
            not_read_again_yet = self._before > 0 and offset == self.now[partition] == self._before
            if offset < self.now[partition] and not self._before:
                self.wrong.append(f"{partition} went back from {self.now[partition]} to {offset}")
            if offset > done[partition] and not not_read_again_yet:
                self.wrong.append(f"{partition} is committed to {offset}, and processed to {done[partition]}")
            if offset != self.now[partition]:
                self._times[partition].append(at)
                self._offsets[partition].append(offset)
                self.now[partition] = offset

    def known_at(self, partition: int, when: float) -> int:
        """What was certainly committed by then."""
        index = bisect_right(self._times[partition], when)
        return self._offsets[partition][index - 1] if index else 0

    def stop(self) -> None:
        self._stopping.set()
        self.join(10)
        self._network.close()


class Queries(threading.Thread):
    """A query that is begun again whenever it was killed."""

    def __init__(self, run: RandomRun, name: str, static: bool, rng: random.Random) -> None:
        super().__init__(name=name, daemon=True)
        self._run = run
        self._rng = rng
        self.checkpoint = Checkpoint()
        self.failures: list[str] = []
        self.starts = 0
        self._options = {
            "kafka.session.timeout.ms": str(int(SESSION_S * 1000)),
            "kafka.client.id": name,
            "revokeTimeout": "400ms",
            "maxOffsetsPerTrigger": "60",
            "members": str(rng.choice([1, 1, 2])),
            **rng.choice([{}, {"minOffsetsPerTrigger": "30", "maxTriggerDelay": "500ms"}]),
            **({"kafka.group.instance.id": name} if static else {}),
            "newCheckpoint": "startingOffsets" if run.refresh else "group",
        }
        self._engine: Engine | None = None

    def run(self) -> None:
        while not self._run.over.is_set():
            self.starts += 1
            try:
                self._live_once()
            except Killed:
                pass
            except QueryFailed as failed:
                self.failures.append(str(failed))
            except Exception as error:  # noqa: BLE001 - the test fails by it
                self.failures.append(f"Traceback: {error!r}")
                return
            if self._run.chaos:  # within the session, or beyond it
                self._run.over.wait(self._rng.choice([0.0, 0.3, 1.5 * SESSION_S]))

    def _live_once(self) -> None:
        engine = self._engine = self._run.harness.query(self._options, self.checkpoint)
        engine.at_point = self._at_point
        try:
            self._live(engine)
            engine.stop()
        finally:
            engine.close()

    def _live(self, engine: Engine) -> None:
        for _ in range(self._rng.randrange(5, 60)):
            if self._run.over.is_set():
                return
            kill_at = self._rng.choice(list(Point)) if self._run.chaos and self._rng.random() < 0.12 else None
            engine.trigger(kill_at)
            self._run.over.wait(self._rng.uniform(0, 0.1))

    def _at_point(self, point: Point) -> None:
        if point is Point.READ and self._run.chaos and self._rng.random() < 0.35:
            self._run.over.wait(self._rng.uniform(0.2, 1.5))  # a batch that takes its time
        if point is Point.WRITTEN:
            batch = self.checkpoint.written[-1]
            for row in batch.rows:
                self._run.processed.add(self.name, row.partition, row.offset, batch.asked_at)

    def disturb(self) -> None:
        """Whatever it is doing: killed, or made to stand still for longer than its session."""
        engine = self._engine
        if engine is None or not engine.reader.is_alive:
            return
        if self._rng.random() < 0.6:
            with contextlib.suppress(OSError, ValueError):
                engine.reader.kill_only()
        else:
            with contextlib.suppress(OSError):
                engine.reader.suspend()
                self._run.over.wait(self._rng.uniform(0.3, 2 * SESSION_S))
                engine.reader.resume()


class PlainConsumer(threading.Thread):
    """Processes, then commits; comes and goes."""

    def __init__(self, run: RandomRun, name: str, rng: random.Random) -> None:
        super().__init__(name=name, daemon=True)
        self._run = run
        self._rng = rng
        self.failures: list[str] = []

    def run(self) -> None:
        while not self._run.over.wait(self._rng.uniform(0, 1)):
            try:
                self._live()
            except HoldfastError as error:
                if not error.retriable:  # the broker is away now and then
                    self.failures.append(str(error))

    def _live(self) -> None:
        world, since, asked = self._run.harness, dict[int, float](), 0.0
        consumer = Consumer(
            {
                "bootstrap.servers": world.server.bootstrap,
                "group.id": world.group,
                "client.id": self.name,
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": int(SESSION_S * 1000),
                "heartbeat.interval.ms": 150,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                "reconnect.backoff.max.ms": 300,
            }
        )

        def assigned(_consumer: Any, partitions: list[TopicPartition]) -> None:
            since.update({one.partition: asked for one in partitions})

        consumer.subscribe([world.topic], on_assign=assigned)
        until = time.monotonic() + self._rng.uniform(0.5, 3)
        try:
            while time.monotonic() < until and not self._run.over.is_set():
                asked = time.monotonic()
                ends: dict[int, int] = {}
                for message in consumer.consume(50, 0.05):
                    partition, offset = message.partition(), message.offset()
                    if message.error() is not None or partition is None or offset is None:
                        continue
                    self._run.processed.add(self.name, partition, offset, since[partition])
                    ends[partition] = offset + 1
                if ends:
                    offsets = [TopicPartition(world.topic, one, end) for one, end in ends.items()]
                    with contextlib.suppress(HoldfastError):  # then somebody else does it again
                        consumer.commit(offsets=offsets, asynchronous=False)
        finally:
            consumer.close()


class RandomRun:
    def __init__(self, broker: HoldfastBroker, seed: int, *, refresh: bool = False) -> None:
        self._rng = random.Random(seed)
        self.refresh = refresh
        self._broker = broker
        self.harness = SparkHarness(broker)
        self.processed = Processed()
        self.chaos = True
        self.over = threading.Event()
        self._still = threading.Event()
        self._acknowledged = [0] * PARTITIONS
        self._watch: Watch | None = None
        self.queries = [
            Queries(self, f"query-{number}", number % 2 == 0, random.Random(self._rng.random())) for number in range(3)
        ]
        # A plain consumer begins at the group's offset and moves it, so that its partitions are not read again.
        self.plain = [
            PlainConsumer(self, f"plain-{number}", random.Random(self._rng.random()))
            for number in range(0 if refresh else 2)
        ]

    def run(self, chaos_s: float, broker_kills: int) -> None:
        """Raises AssertionError if anything is wrong."""
        before = COMMITTED_BEFORE if self.refresh else 0
        self.harness.make_topic(PARTITIONS, each=before)
        self._acknowledged = [before] * PARTITIONS
        if self.refresh:
            self.harness.set_committed(dict.fromkeys(range(PARTITIONS), before))
        watch = self._watch = Watch(self.harness, self.processed, before)
        with self._running(watch):
            self._disturb(chaos_s, broker_kills)
            self.chaos = False
            self._still.set()
            self._producer.join(60)
            eventually(
                lambda: watch.wrong or watch.now == self._acknowledged, f"all of {self._acknowledged} committed", CALM_S
            )
        self._prove(watch)

    @contextlib.contextmanager
    def _running(self, watch: Watch) -> Iterator[None]:
        self._producer = threading.Thread(target=self._produce, daemon=True)
        threads = [self._producer, watch, *self.queries, *self.plain]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.over.set()
            self._still.set()
            for thread in [self._producer, *self.queries, *self.plain]:
                thread.join(60)
            watch.stop()
            self.harness.close()

    def _disturb(self, chaos_s: float, broker_kills: int) -> None:
        began = time.monotonic()
        kills = sorted(began + self._rng.uniform(0.1, 0.9) * chaos_s for _ in range(broker_kills))
        while time.monotonic() < began + chaos_s:
            self.over.wait(self._rng.uniform(0.2, 1.0))
            if kills and time.monotonic() > kills[0]:
                kills.pop(0)
                self._broker.kill()
                self.over.wait(self._rng.uniform(0, 2))
                self._broker.start()
            elif self._rng.random() < 0.5:
                self._rng.choice(self.queries).disturb()

    def _produce(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._broker.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "reconnect.backoff.max.ms": 300,
                "log_level": 0,
            }
        )
        number = 0
        while not self._still.wait(PACE_S):
            for partition in range(PARTITIONS):
                producer.produce(self.harness.topic, b"%d" % number, partition=partition, on_delivery=self._delivered)
            number += 1
            producer.poll(0)
        producer.flush(60)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        partition = message.partition()
        assert partition is not None
        self._acknowledged[partition] += 1

    def _prove(self, watch: Watch) -> None:
        assert not watch.wrong, watch.wrong[:10]
        assert self.processed.upto() == self._acknowledged
        for who, partition, offset, since in () if self.refresh else self.processed.events:
            known = watch.known_at(partition, since)
            assert offset >= known, f"{who} read {offset} of {partition}, and {known} was committed before it asked"
        assert any(query.checkpoint.written for query in self.queries), self.story()
        for query in self.queries:
            lost = [one for one in query.failures if "DataLoss" in one or "Traceback" in one or "fenced" in one]
            assert not lost, lost
        for consumer in self.plain:
            assert not consumer.failures, consumer.failures

    def story(self) -> str:
        """What it came to."""
        seen: dict[tuple[int, int], int] = {}
        for _, partition, offset, _ in self.processed.events:
            seen[partition, offset] = seen.get((partition, offset), 0) + 1
        again = sum(count - 1 for count in seen.values())
        starts = [query.starts for query in self.queries]
        batches = [len(query.checkpoint.written) for query in self.queries]
        by = {
            name: sum(1 for who, *_ in self.processed.events if who == name)
            for name in sorted({who for who, *_ in self.processed.events})
        }
        return f"{len(seen)} records, {again} again; queries' starts {starts}, batches {batches}; read by {by}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--refresh", action="store_true")
    given = parser.parse_args()
    until, seed = time.monotonic() + 60 * given.minutes, given.seed
    while time.monotonic() < until:
        with HoldfastBroker(QUICK) as broker:
            run = RandomRun(broker, seed, refresh=given.refresh)
            print(f"seed {seed}", flush=True)
            try:
                run.run(30.0, broker_kills=1)
            finally:
                print(f"  {run.story()}", flush=True)
                for query in run.queries:
                    for failure in query.failures:
                        print(f"  {query.name}: {failure.strip()[:300]}", flush=True)
        seed += 1


if __name__ == "__main__":
    main()
