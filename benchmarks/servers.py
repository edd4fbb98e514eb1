"""The servers under load. Each is a separate process, started as a user starts it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

from benchmarks.measure import HOLDFAST, KAFKA
from benchmarks.results import REPOSITORY
from tests.support import raw_wire
from tests.support.apache_kafka import ApacheKafka
from tests.support.child_process import end_child, start_child
from tests.support.holdfast_broker import HoldfastBroker

_SAME_FOR_BOTH: Final = {
    # The files of a deleted topic are removed soon, not after the default minute, because rounds leave gigabytes
    # behind.
    "log.segment.delete.delay.ms": "1000",
    # Kafka's default in code; the default of Holdfast is that of Kafka's shipped server.properties (differences, 10).
    "group.initial.rebalance.delay.ms": "3000",
}
_KAFKA_ONLY: Final = {
    # By default 50 connections can wait to be accepted. A load generator opens thousands at once. The system drops the
    # others, each of which tries again a second later, so 5,000 took longer than the timeout of the members.
    "socket.listen.backlog.size": "4096",
}
_ECHO_START_TIMEOUT_S: Final = 20
_STOP_TIMEOUT_S: Final = 10
_PAUSE: Final = re.compile(r"longest_pause_of_the_event_loop_ms=([\d.]+)")


class Server(Protocol):
    @property
    def pid(self) -> int: ...

    @property
    def address(self) -> tuple[str, int]: ...


class Broker(Server, Protocol):
    @property
    def bootstrap(self) -> str: ...

    @property
    def data_dir(self) -> Path: ...

    def kill(self) -> None: ...


@contextlib.contextmanager
def both(
    holdfast: Mapping[str, str] | None = None, kafka: Mapping[str, str] | None = None
) -> Iterator[dict[str, Broker]]:
    """Both brokers, up at the same time: while one is under load the other is idle."""
    with (
        HoldfastBroker({**_SAME_FOR_BOTH, **(holdfast or {})}) as ours,
        ApacheKafka({**_SAME_FOR_BOTH, **_KAFKA_ONLY, **(kafka or {})}) as theirs,
    ):
        yield {HOLDFAST: ours, KAFKA: theirs}


def start_holdfast(broker: HoldfastBroker) -> float:
    """Seconds from the start of the process until ApiVersions and Metadata are answered."""
    began = time.monotonic()
    broker.start()
    raw_wire.api_versions(broker.address)
    assert raw_wire.broker_count(broker.address) == 1
    return time.monotonic() - began


def start_kafka(broker: ApacheKafka) -> float:
    """The same for Apache Kafka; formatting its storage is not counted."""
    broker.start()
    return broker.started_in_seconds


def longest_pause_ms(log: str) -> float:
    """The log of a stopped Holdfast broker."""
    said = _PAUSE.findall(log)
    if not said:
        raise RuntimeError("holdfast did not log the longest pause of its event loop")
    return float(said[-1])


class EchoServer:
    """The bare protocol echo (benchmarks/echo_server.py) as a process."""

    def __init__(self, reply_bytes: int) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="echo-")
        self._log = Path(self._directory.name) / "echo.log"
        command = [sys.executable, str(REPOSITORY / "benchmarks" / "echo_server.py"), str(reply_bytes)]
        self._process = start_child(command, self._log)
        self.pid: int = self._process.pid
        self.address: tuple[str, int] = ("127.0.0.1", self._wait_for_port())

    def __enter__(self) -> EchoServer:
        return self

    def __exit__(self, *_: object) -> None:
        end_child(self._process, signal.SIGTERM, _STOP_TIMEOUT_S)
        self._directory.cleanup()

    def _wait_for_port(self) -> int:
        deadline = time.monotonic() + _ECHO_START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            if found := re.search(r"^(\d+)\n", self._log.read_text()):
                return int(found[1])
            time.sleep(0.01)
        end_child(self._process, signal.SIGKILL, _STOP_TIMEOUT_S)
        raise RuntimeError(f"the echo server did not start: {self._log.read_text()}")


def settle() -> None:
    """Write dirty pages to the disk, so that they do not affect the round of the other server."""
    os.sync()
