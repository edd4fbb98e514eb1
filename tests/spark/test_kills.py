"""Whatever is killed while queries share a topic with plain consumers, no record is lost, and the group's offsets never
go back and never pass what was processed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.holdfast_client.group_history import Commit, commits
from tests.holdfast_client.invariants import commits_follow_processing, nothing_is_lost, processed_twice
from tests.holdfast_client.numbered_workload import Application, Worker, Workload
from tests.support.child_process import end_child, start_child
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.kafka_distribution import REPOSITORY
from tests.support.process_tree import command_line, descendants
from tests.support.quick_brokers import QUICK
from tests.support.spark_apps import APPS, QUIET, spark_environment

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

GROUP, TOPIC = "g", "numbers"
STATIC = ["spark-1", "spark-2"]
MISSED: Final[dict[str, Any]] = {"kafka.session.timeout.ms": 8_000, "revokeTimeout": "3s"}
"""A query that fails is back within its session; an application that is killed is not."""
WAITED_FOR: Final[dict[str, Any]] = {"kafka.session.timeout.ms": 60_000, "revokeTimeout": "60s"}
"""However long a process stands still, no partition goes before its batch is done."""
PATIENCE_S = 120.0
SEED = 20


class SparkApp(Application):
    """An application with its queries, as a test sees it: by its event log."""

    def __init__(self, bootstrap: str, directory: Path, number: int, times: Mapping[str, Any]) -> None:
        super().__init__(f"app-{number}", directory / f"app-{number}.jsonl")
        options = {
            "settings": QUIET,
            "event_log": str(directory / f"app-{number}.jsonl"),
            "directory": str(directory),
            "hold": str(directory / "hold"),
            "instance_ids": STATIC,
            "read": {
                "kafka.bootstrap.servers": bootstrap,
                "kafka.group.id": GROUP,
                "kafka.heartbeat.interval.ms": 500,
                "kafka.reconnect.backoff.max.ms": 500,
                "subscribe": TOPIC,
                "startingOffsets": "earliest",
                **times,
            },
        }
        python = Path(sys.executable)
        environment = spark_environment(python, PYSPARK_PYTHON=str(python), PYTHONPATH=str(REPOSITORY))
        self.log = directory / f"app-{number}.log"
        command = ["env", *(f"{name}={value}" for name, value in environment.items())]
        self._process = start_child(
            [*command, str(python), str(APPS / "numbered_queries.py"), json.dumps(options)], self.log
        )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def await_start(self) -> None:
        eventually(lambda: self.events_of("started"), "the queries", PATIENCE_S, of=self)

    def processes(self, what: str) -> list[int]:
        """Of all that belong to the application, those whose command line has this in it."""
        return [pid for pid in descendants(self._process.pid) if what in command_line(pid)]

    def stop(self) -> None:
        assert end_child(self._process, signal.SIGTERM, PATIENCE_S) == 0, repr(self)

    def kill(self) -> None:
        everything = descendants(self._process.pid)
        end_child(self._process, signal.SIGKILL, PATIENCE_S)
        for pid in everything:
            _signal(pid)

    def __repr__(self) -> str:
        return f"<{self.name}: {self.events[-2:]}, {self.log.read_text(errors='replace')[-1500:]}>"


def _signal(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def guest(workload: Workload, name: str, session_ms: int = 2_000) -> Worker:
    """A plain consumer that comes into the group and gets an assignment."""
    worker = workload.start(name, strategy="cooperative-sticky", session_timeout_ms=session_ms)
    eventually(lambda: worker.owned, "an assignment", PATIENCE_S, of=worker)
    return worker


class Stage:
    """The broker, the application that runs now, and what can be killed."""

    def __init__(
        self,
        broker: HoldfastBroker,
        workload: Workload,
        directory: Path,
        chance: random.Random,
        times: Mapping[str, Any] = MISSED,
    ) -> None:
        self._broker = broker
        self._workload = workload
        self._directory = directory
        self._chance = chance
        self._times = times
        self.app = self.start()

    def start(self) -> SparkApp:
        app = SparkApp(self._broker.bootstrap, self._directory, len(self._workload.others), self._times)
        self._workload.others.append(app)
        app.await_start()
        return app

    @contextlib.contextmanager
    def _in_a_batch(self) -> Iterator[None]:
        """A query has processed records, and its batch does not end: they come again."""
        hold = self._directory / "hold"
        hold.touch()
        try:
            eventually(lambda: self.app.events_of("held"), "a batch", PATIENCE_S, of=self.app)
            yield
        finally:
            hold.unlink()

    def _one_of(self, what: str) -> int:
        return self._chance.choice(eventually(lambda: self.app.processes(what), what, of=self.app))

    def _start_after(self, processes: list[int]) -> None:
        """Another application, when nothing of the last one is left."""
        gone = "the end of its processes"
        eventually(lambda: not [pid for pid in processes if command_line(pid)], gone, PATIENCE_S, of=self.app)
        self.app = self.start()

    def reader(self) -> None:
        _signal(self._one_of("python_streaming_source_runner"))

    def executor_worker(self) -> None:
        _signal(self._one_of("pyspark.daemon"))

    def broker(self) -> None:
        self._broker.kill()
        self._broker.start()

    def driver(self) -> None:
        """The process of the user's program. Spark's own ends by itself then, and the readers with it."""
        left = descendants(self.app._process.pid)
        with self._in_a_batch():
            end_child(self.app._process, signal.SIGKILL, PATIENCE_S)
        self._start_after(left)

    def java(self) -> None:
        left = descendants(self.app._process.pid)
        _signal(self._one_of("org.apache.spark.deploy.SparkSubmit"))
        end_child(self.app._process, signal.SIGKILL, PATIENCE_S)
        self._start_after(left)


def offsets_never_go_back(stored: list[Commit]) -> None:
    furthest: dict[int, int] = {}
    for commit in stored:
        assert commit.offset >= furthest.get(commit.partition, 0), f"{commit} after {furthest[commit.partition]}"
        furthest[commit.partition] = commit.offset


def test_nothing_is_lost_whatever_is_killed(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    with HoldfastBroker(QUICK) as broker:
        workload = Workload(broker, broker.bootstrap, GROUP, TOPIC, tmp_path)
        with workload.running(PATIENCE_S):
            stage = Stage(broker, workload, tmp_path, chance)
            workload.await_progress(PATIENCE_S)
            kills: list[Callable[[], None]] = [
                stage.reader,
                stage.executor_worker,
                stage.broker,
                stage.driver,
                stage.java,
            ]
            chance.shuffle(kills)
            for number, kill in enumerate(kills):
                # given a member that comes, and one that goes, in the middle of it
                visitor = guest(workload, f"guest-{number}")
                # when
                kill()
                visitor.stop() if chance.random() < 0.5 else visitor.kill()
                # then
                workload.await_progress(PATIENCE_S)
        everybody = [*workload.workers, *workload.others]
        history = commits(workload.history())

    assert {event.kind for one in workload.others for event in one.events} >= {"processed", "failed"}, (
        "kills were noticed"
    )
    nothing_is_lost(everybody, workload.acknowledged)
    commits_follow_processing(everybody, history)
    offsets_never_go_back(history)
    assert processed_twice(everybody), "the control: one of the kills came in the middle of a batch"


def test_without_a_kill_nothing_is_processed_twice(tmp_path: Path) -> None:
    """The control: members come and go, and every batch is finished and stored before its partition goes."""
    with HoldfastBroker(QUICK) as broker:
        workload = Workload(broker, broker.bootstrap, GROUP, TOPIC, tmp_path)
        with workload.running(PATIENCE_S):
            Stage(broker, workload, tmp_path, random.Random(SEED), WAITED_FOR)
            workload.await_progress(PATIENCE_S)
            for number in range(3):
                visitor = guest(workload, f"guest-{number}", WAITED_FOR["kafka.session.timeout.ms"])
                workload.await_progress(PATIENCE_S)
                visitor.stop()
        everybody = [*workload.workers, *workload.others]
        history = commits(workload.history())

    nothing_is_lost(everybody, workload.acknowledged)
    offsets_never_go_back(history)
    assert processed_twice(everybody) == set()
