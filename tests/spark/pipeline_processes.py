"""`holdfast pipeline NAME` as processes of their own, and numbered records for them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.support.child_process import end_child, start_child
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.kafka_distribution import REPOSITORY
from tests.support.process_tree import command_line, descendants
from tests.support.spark_apps import QUIET, spark_environment

PATIENCE_S = 150.0
PACE_S = 0.02
SESSION_MS = 6_000
"""Shorter than an application takes to start: its partitions go to the other one, and come back."""
TERMINATED = 143
TOPIC, PARTITIONS = "numbers", 4


class PipelineProcess:
    """A pipeline with an instance id of its own. Like a service, it is started again when it fails."""

    def __init__(self, arguments: Sequence[str], bootstrap: str, group: str, instance_id: str, directory: Path) -> None:
        """`arguments` are the name of the pipeline and what is special to it."""
        self._instance_id = instance_id
        self._directory = directory
        self._command = _command(arguments, bootstrap, group, instance_id)
        self._logs: list[Path] = []
        self._process: Any = None
        self.start()

    def start(self) -> None:
        self._logs.append(self._directory / f"{self._instance_id}-{len(self._logs)}.log")
        self._process = start_child(self._command, self._logs[-1])

    def batches(self) -> list[dict[str, Any]]:
        """Everything that it ever reported, over all restarts."""
        return [batch for log in self._logs for batch in _reported(log)]

    def batches_now(self) -> list[dict[str, Any]]:
        """Since its last start."""
        return _reported(self._logs[-1])

    def keep_alive(self) -> None:
        if self._process.poll() is not None:
            self.start()

    def kill(self) -> None:
        everything = descendants(self._process.pid)
        end_child(self._process, signal.SIGKILL, PATIENCE_S)
        for pid in everything:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        eventually(lambda: not [pid for pid in everything if command_line(pid)], f"the end of {self._instance_id}")

    def stop(self) -> int:
        return end_child(self._process, signal.SIGTERM, PATIENCE_S)

    def __repr__(self) -> str:
        return f"<{self._instance_id}: {self._logs[-1].read_text(errors='replace')[-1500:]}>"


def _reported(log: Path) -> list[dict[str, Any]]:
    lines = log.read_text(errors="replace").splitlines()
    return [json.loads(line) for line in lines if line.startswith('{"batch"') and line.endswith("}")]


def _command(arguments: Sequence[str], bootstrap: str, group: str, instance_id: str) -> list[str]:
    python = Path(sys.executable)
    path = f"{REPOSITORY / 'src'}{os.pathsep}{REPOSITORY}"
    environment = spark_environment(python, PYSPARK_PYTHON=str(python), PYTHONPATH=path)
    options = {
        "kafka.session.timeout.ms": SESSION_MS,
        "kafka.heartbeat.interval.ms": 500,
        "kafka.reconnect.backoff.max.ms": 500,
        "revokeTimeout": "3s",
    }
    return [
        "env",
        *(f"{name}={value}" for name, value in environment.items()),
        *(str(python), "-m", "holdfast.cli.main", "pipeline", *arguments, "--json"),
        *("--bootstrap-server", bootstrap, "--topic", TOPIC, "--group", group, "--instance-id", instance_id),
        *("--every", "0.5", "--master", "local[1]"),
        *(f"--option={name}={value}" for name, value in options.items()),
        *(f"--conf={name}={value}" for name, value in QUIET.items()),
    ]


class TwoProcesses:
    """Two of one pipeline that share the topic, each with an instance id, while numbers flow."""

    def __init__(
        self,
        arguments: Sequence[str],
        bootstrap: str,
        group: str,
        directory: Path,
        numbers: Numbers,
        *,
        ends: Callable[[], dict[int, int]],
        unlisted: Callable[[], set[str]],
        records: str,
    ) -> None:
        """`ends` says up to where each partition is done, `unlisted` which files do not count, or not yet; `records` is
        the name under which a batch tells how many it has done."""
        self._ends = ends
        self._unlisted = unlisted
        self._records = records
        self._numbers = numbers
        self._left: set[str] = set()
        """Files that did not count when one of the two had just been killed."""
        self.first, self.second = (
            PipelineProcess(arguments, bootstrap, group, f"{group}-{number}", directory) for number in (1, 2)
        )

    @property
    def both(self) -> tuple[PipelineProcess, PipelineProcess]:
        return self.first, self.second

    def await_progress(self) -> None:
        """Every partition is done beyond what there is now, and each of the two has done something since its start."""
        beyond = self._numbers.count

        def look() -> bool:
            for one in self.both:
                one.keep_alive()
            there = self._ends()
            has_worked = all(any(batch[self._records] for batch in one.batches_now()) for one in self.both)
            return len(there) == PARTITIONS and min(there.values()) > beyond and has_worked

        eventually(look, f"progress beyond {beyond} by {self.both}", PATIENCE_S)

    def await_end(self) -> None:
        whole = dict.fromkeys(range(PARTITIONS), self._numbers.count)
        eventually(lambda: self._ends() == whole, f"{whole} done by {self.both}", PATIENCE_S)

    def kill_in_a_batch(self, victim: PipelineProcess) -> None:
        """When a file has just been written, and does not count yet."""
        left_before = self._unlisted()
        with contextlib.suppress(AssertionError):  # batches are short; then it is killed between two of them
            eventually(lambda: self._unlisted() - left_before, "a batch", 5)
        victim.kill()
        self._left |= self._unlisted()

    def has_cut_off(self) -> bool:
        """Whether a kill came in the middle of a batch: after some progress, what others were writing then counts."""
        return bool(self._left & self._unlisted())

    def sum_of(self, name: str) -> int:
        """Over all batches of both that were reported."""
        return sum(batch[name] for one in self.both for batch in one.batches())

    def live_through_kills(self, broker: HoldfastBroker, is_enough: Callable[[], bool] = lambda: True) -> None:
        """Two kills, and up to two more as long as none has hit what they are for."""
        # given two queries that share the topic
        self.await_progress()
        # when one is killed, and its partitions go to the other one and back
        self.kill_in_a_batch(self.first)
        self.await_progress()
        # and the broker, and the other one right behind it
        broker.kill()
        broker.start()
        self.kill_in_a_batch(self.second)
        self.await_progress()
        for victim in self.both:
            if is_enough():
                break
            self.kill_in_a_batch(victim)
            self.await_progress()


class Numbers:
    """Sequence numbers, the same in every partition, until it is asked to stop."""

    def __init__(self, bootstrap: str, keys: int | None = None) -> None:
        """`keys`: how many different ones they have; None for none."""
        self._bootstrap = bootstrap
        self._keys = keys
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._produce, daemon=True)
        self.count = 0
        self.unsent: int | None = None

    def _produce(self) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "reconnect.backoff.max.ms": 500}
        producer = Producer({**settings, "linger.ms": 5})
        while not self._stopping.wait(PACE_S):
            key = None if self._keys is None else f"key {self.count % self._keys}"
            for partition in range(PARTITIONS):
                producer.produce(TOPIC, str(self.count), key=key, partition=partition)
            self.count += 1
            producer.poll(0)
        self.unsent = producer.flush(60)

    @contextlib.contextmanager
    def flowing(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            self._thread.join(70)
