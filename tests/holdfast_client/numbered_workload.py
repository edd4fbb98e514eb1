"""A group at work: a producer that numbers its records, and consumers in processes of their own that may be killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from holdfast import Admin
from tests.client_compat.servers import Server
from tests.groups.topics import make_topic
from tests.holdfast_client.consumer_process import WorkerConfig, live
from tests.holdfast_client.group_history import Commit, Generation, generations, read_history
from tests.holdfast_client.invariants import check_all
from tests.holdfast_client.worker_log import WorkerLog
from tests.support.eventually import DEADLINE_S, eventually
from tests.support.forks import FORKS

PARTITIONS = 4
PACE_S = 0.02
"""Between two records of a partition."""
STOP_PATIENCE_S = 30.0
FLUSH_PATIENCE_S = 60.0
IDLE_S = 1.0
"""How long a generation lasts that is not followed by another one at once."""


class Application(WorkerLog, ABC):
    """Whatever processes the records and keeps a log of it."""

    @property
    @abstractmethod
    def is_alive(self) -> bool: ...

    @abstractmethod
    def stop(self) -> None: ...

    @abstractmethod
    def kill(self) -> None: ...


class Worker(Application):
    """A consumer process as a test sees it: by its log."""

    def __init__(self, config: WorkerConfig) -> None:
        super().__init__(config.name, config.log)
        self.config = config
        self._process = FORKS.Process(target=live, args=(config,), name=config.name, daemon=True)
        self._process.start()

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def stop(self) -> None:
        """Ask it to close its consumer and end."""
        self._signal(signal.SIGTERM)
        self._process.join(STOP_PATIENCE_S)
        assert self._process.exitcode == 0, f"{self} ended with {self._process.exitcode}"

    def await_end(self) -> None:
        """It ends by itself."""
        eventually(lambda: not self.is_alive, "the end", of=self)

    def kill(self) -> None:
        if self._process.is_alive():
            self._process.kill()
        self._process.join(STOP_PATIENCE_S)

    def suspend(self) -> None:
        """It stands still; its sockets stay open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def __repr__(self) -> str:
        log = self.config.log.with_suffix(".log")
        said = log.read_text()[-1000:] if log.exists() else ""
        return f"<{self.name} owns {sorted(self.owned)}, {self.events[-3:]}, {said}>"


class Workload:
    """Numbered records to every partition of a topic, until it is stopped, and the group that reads them."""

    def __init__(self, server: Server, bootstrap: str, group: str, topic: str, directory: Path) -> None:
        self._server = server
        self._bootstrap = bootstrap
        self._group = group
        self._topic = topic
        self._directory = directory
        self.workers: list[Worker] = []
        """All that there ever were."""
        self.others: list[Application] = []
        """What else reads in the group, and is to be proven by the test itself."""
        self.acknowledged: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
        """How many records of each partition the broker has confirmed; they are numbered from 0."""
        self._next = 0
        self._stopping = threading.Event()
        self._failures: list[KafkaError] = []
        self._thread = threading.Thread(target=self._produce, name="workload", daemon=True)

    # -- the group -----------------------------------------------------------------------------------------------------

    def start(self, name: str, **settings: Any) -> Worker:
        """Another member. A name may come back, as its restarted process or as its double."""
        log = self._directory / f"{len(self.workers)}-{name}.jsonl"
        config = WorkerConfig(name, self._bootstrap, self._group, self._topic, log, **settings)
        self.workers.append(Worker(config))
        return self.workers[-1]

    def await_shared(self, *workers: Worker) -> None:
        """They have all partitions between them, each as many as the others or one more."""

        def look() -> bool:
            gone = [worker for worker in workers if not worker.is_alive]
            assert not gone, f"{gone} should be in the group"
            assigned = [worker.owned for worker in workers]
            sizes = [len(one) for one in assigned]
            held = sorted(partition for one in assigned for partition in one)
            return held == list(range(PARTITIONS)) and max(sizes) - min(sizes) <= 1

        eventually(look, f"{PARTITIONS} shared partitions", of=workers)

    def await_idle(self, *workers: Worker) -> None:
        """They share the work, and no rebalance is under way any more: a member that stops now can commit.

        librdkafka may join once more on its own, a moment after it has got its assignment; so it has to last.
        """
        self.await_shared(*workers)
        seen, since = -1, 0.0

        def look() -> bool:
            nonlocal seen, since
            now = generations(self.history())[-1]
            if now.number != seen:
                seen, since = now.number, time.monotonic()
            stored = {partition: now.clients[owner] for partition, owner in now.owners.items()}
            held = {partition: worker.name for worker in workers for partition in worker.owned}
            with Admin({"bootstrap.servers": self._bootstrap}) as admin:
                at_rest = stored == held and admin.describe_group(self._group).state == "Stable"
            return at_rest and time.monotonic() - since > IDLE_S

        eventually(look, "the rest", of=workers)

    def await_progress(self, within_s: float = DEADLINE_S) -> None:
        """A record of each partition that is not written yet when this is called has been processed."""
        beyond = self._next
        eventually(
            lambda: min(self._processed().values()) >= beyond,
            f"{beyond} processed",
            within_s,
            of=[*self.workers, *self.others],
        )

    def await_commits(self, workers: Sequence[Worker], beyond: Sequence[int]) -> None:
        """Each of them has committed more often than so many times."""

        def look() -> bool:
            return all(len(one.events_of("committed")) > count for one, count in zip(workers, beyond, strict=True))

        eventually(look, "new commits", of=workers)

    def _processed(self) -> dict[int, int]:
        """The highest number, by partition."""
        highest = dict.fromkeys(range(PARTITIONS), -1)
        for worker in [*self.workers, *self.others]:
            for event in worker.events_of("processed"):
                for partition, done in event.records.items():
                    highest[partition] = max(highest[partition], done[-1][1])
        return highest

    def history(self) -> list[Commit | Generation]:
        return read_history(self._server.bootstrap, self._group)

    def leader_and_follower(self, workers: Sequence[Worker]) -> tuple[Worker, Worker]:
        """Who leads the group now, and one who does not."""
        now = generations(self.history())[-1]
        name = now.clients[now.leader or ""]
        (leader,) = (worker for worker in workers if worker.name == name)
        return leader, next(worker for worker in workers if worker is not leader)

    # -- the records ---------------------------------------------------------------------------------------------------

    def _produce(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._server.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "reconnect.backoff.max.ms": 500,
                # Kafka says while it stops that nobody leads; librdkafka has been seen to leave it at that afterwards.
                "topic.metadata.refresh.interval.ms": 1_000,
            }
        )
        while not self._stopping.wait(PACE_S):
            for partition in range(PARTITIONS):
                producer.produce(self._topic, str(self._next), partition=partition, on_delivery=self._delivered)
            self._next += 1
            producer.poll(0)
        unsent = producer.flush(FLUSH_PATIENCE_S)
        assert unsent == 0, f"{unsent} records were not delivered"

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures.append(error)
            return
        partition = message.partition()
        assert partition is not None
        self.acknowledged[partition] += 1

    @contextmanager
    def running(self, within_s: float = DEADLINE_S) -> Iterator[Workload]:
        """In the end the producer stops, the group processes the rest, and the proofs are taken."""
        make_topic(self._server, self._topic, PARTITIONS)
        self._thread.start()
        try:
            yield self
            self._stopping.set()
            self._thread.join(FLUSH_PATIENCE_S)
            assert not self._failures and not self._thread.is_alive()
            ends = {partition: count - 1 for partition, count in self.acknowledged.items()}
            eventually(
                lambda: self._processed() == ends,
                f"everything up to {ends} processed",
                within_s,
                of=[*self.workers, *self.others],
            )
            everybody: list[Application] = [*self.workers, *self.others]
            for one in everybody:
                if one.is_alive:
                    one.stop()
            if not self.others:
                check_all(self.workers, self.acknowledged, self.history())
        finally:
            self._stopping.set()
            for one in [*self.workers, *self.others]:
                one.kill()
            self._thread.join(FLUSH_PATIENCE_S)
