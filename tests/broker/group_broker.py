"""A broker in a child process that ends itself, as `kill -9` does, at a given step of a group's life.

`KillableBroker` ends at the n-th change to the disk, whatever that is; here the test names the record or the event, and
the point of writing it. It can also hold back the loading of the group log, to show what is answered meanwhile.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.groups.event_log import EventLogWriter
from holdfast.broker.groups.local_group_log import LocalGroupLog
from holdfast.broker.server import Broker
from holdfast.coordinator.events.group_event import GroupEvent
from holdfast.coordinator.runtime.effects import Record
from holdfast.log import disk
from tests.support.forks import FORKS

_PATIENCE_S = 30

FEW_PARTITIONS = {"offsets.topic.num.partitions": "2"}
"""They make a quick start."""


@dataclass(frozen=True)
class KillAt:
    """Either the event that is recorded, or the record (the class name of its key) and the point of writing it."""

    event: str | None = None
    record: str | None = None
    point: str = ""

    def __str__(self) -> str:
        return self.event or f"{self.record} {self.point}"


@dataclass(frozen=True)
class FailAt:
    """The next record of this kind (the class name of its key) finds a full disk."""

    record: str


@dataclass(frozen=True)
class Gate:
    """From this partition of the group log on, nothing is read before the test says so."""

    partition: int


# -- in the child ------------------------------------------------------------------------------------------------------


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _arm_event(kind: str) -> None:
    original = EventLogWriter.write

    def write(self: EventLogWriter, events: list[GroupEvent], now_ms: int) -> None:
        if any(event.kind == kind for event in events):
            _end()
        original(self, events, now_ms)

    EventLogWriter.write = write  # type: ignore[method-assign]  # in this child only


def _arm_record(key: str, point: str) -> None:
    original = LocalGroupLog.append

    def append(self: LocalGroupLog, group_id: str, records: Sequence[Record], now_ms: int) -> asyncio.Future[None]:
        if type(records[0][0]).__name__ == key:
            disk.fault = lambda reached: _end() if reached == point else None
        return original(self, group_id, records, now_ms)

    LocalGroupLog.append = append  # type: ignore[method-assign]  # in this child only


def _arm_failure(key: str) -> None:
    original = LocalGroupLog.append

    def full(_: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def append(self: LocalGroupLog, group_id: str, records: Sequence[Record], now_ms: int) -> asyncio.Future[None]:
        if type(records[0][0]).__name__ == key:
            disk.fault = full
            LocalGroupLog.append = original  # type: ignore[method-assign]  # once is enough
        try:
            return original(self, group_id, records, now_ms)
        finally:
            disk.fault = None

    LocalGroupLog.append = append  # type: ignore[method-assign]  # in this child only


def _close(gate: Gate, opened: threading.Event) -> None:
    original = LocalGroupLog.replay

    def replay(self: LocalGroupLog, partition: int) -> Iterator[Any]:
        if partition >= gate.partition:
            opened.wait()
        yield from original(self, partition)

    LocalGroupLog.replay = replay  # type: ignore[method-assign]  # in this child only


async def _serve(data: str, settings: Mapping[str, str], parent: Connection, opened: threading.Event) -> None:
    broker = Broker(BrokerConfig.of({"listeners": "PLAINTEXT://127.0.0.1:0", **settings}), Path(data))
    await broker.start()
    loop = asyncio.get_running_loop()

    def reported() -> None:
        try:
            wish = parent.recv()
        except EOFError:
            loop.remove_reader(parent.fileno())
            return
        if isinstance(wish, KillAt):
            _arm_event(wish.event) if wish.event else _arm_record(wish.record or "", wish.point)
        elif isinstance(wish, FailAt):
            _arm_failure(wish.record)
        else:
            opened.set()
        parent.send("done")

    loop.add_reader(parent.fileno(), reported)
    parent.send(broker.address)
    await asyncio.Event().wait()


def _child(data: str, settings: Mapping[str, str], parent: Connection, gate: Gate | None) -> None:
    opened = threading.Event()
    if gate is not None:
        _close(gate, opened)
    asyncio.run(_serve(data, settings, parent, opened))


# -- in the test -------------------------------------------------------------------------------------------------------


class GroupBroker:
    """Runs for the length of a `with` block and is killed at its end."""

    def __init__(self, data: Path, settings: Mapping[str, str] | None = None, gate: Gate | None = None) -> None:
        self._pipe, theirs = FORKS.Pipe()
        wanted = {**FEW_PARTITIONS, **(settings or {})}
        self._process = FORKS.Process(target=_child, args=(str(data), wanted, theirs, gate), daemon=True)
        self._process.start()
        theirs.close()
        self.address: tuple[str, int] = ("", 0)

    def __enter__(self) -> Self:
        assert self._pipe.poll(_PATIENCE_S), "the broker does not start"
        self.address = self._pipe.recv()
        return self

    @property
    def bootstrap(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    @property
    def settings_to_restart(self) -> dict[str, str]:
        """For a broker that takes the place of this one, where its clients look for it."""
        return {"listeners": f"PLAINTEXT://{self.bootstrap}"}

    def arm(self, kill: KillAt | FailAt) -> None:
        self._send(kill)

    def open_gate(self) -> None:
        self._send("open")

    def _send(self, wish: object) -> None:
        self._pipe.send(wish)
        assert self._pipe.recv() == "done"

    def kill(self) -> None:
        self._process.kill()
        self._process.join(_PATIENCE_S)

    def wait_until_killed(self) -> None:
        self._process.join(_PATIENCE_S)
        assert self._process.exitcode == -signal.SIGKILL, "the point was never reached: this test shows nothing"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
        self._pipe.close()
