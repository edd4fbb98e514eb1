"""A group of real consumers in a few processes, which a measurement starts, kills, suspends and observes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from types import TracebackType
from typing import Final, Self

from benchmarks.extension_members import JAVA, Settings
from benchmarks.member_events import MemberEvent, are_assigned, owned, parsed, revocations
from benchmarks.results import REPOSITORY
from benchmarks.steady import until
from tests.support.java_assignors import java_command

PER_PROCESS: Final = 10
"""Members in one process: a hundred processes are too many for a machine that also runs the broker."""
PATIENCE_S: Final = 120.0
_STOP_S: Final = 20.0
_JAVA_MEMBERS: Final = REPOSITORY / "benchmarks" / "ExtensionMembers.java"


class Fleet:
    """Processes with `per_process` members each. The processes start at once; a member joins when it is started."""

    def __init__(self, settings: Settings, names: Sequence[str], per_process: int = PER_PROCESS) -> None:
        self._settings = settings
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._listeners: list[threading.Thread] = []
        self._events: list[MemberEvent] = []
        self._failure: Exception | None = None
        self._lock = threading.Lock()
        for first in range(0, len(names), per_process):
            self._add_process(names[first : first + per_process])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in set(self._processes.values()):
            _end(process)
        for listener in self._listeners:
            listener.join(_STOP_S)

    @property
    def events(self) -> list[MemberEvent]:
        """In the order in which they were received."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            return list(self._events)

    def start(self, *names: str) -> None:
        for name in names:
            commands = self._processes[name].stdin
            assert commands is not None
            commands.write(f"{name}\n")
            commands.flush()

    def start_over(self, seconds: float, names: Sequence[str]) -> None:
        """Starts them one after the other, evenly distributed over the time."""
        began = time.monotonic()
        for number, name in enumerate(names, 1):
            time.sleep(max(0.0, began + seconds * number / len(names) - time.monotonic()))
            self.start(name)

    def kill(self, name: str) -> float:
        """Kills the process with all its members, as `kill -9` does. Returns the time."""
        at = time.monotonic()
        self._processes[name].kill()
        self._processes[name].wait()
        return at

    def revive(self, name: str) -> None:
        """Starts a killed process again, for only this member."""
        self._add_process([name])
        self.start(name)

    def suspend(self, name: str) -> float:
        self._processes[name].send_signal(signal.SIGSTOP)
        return time.monotonic()

    def resume(self, name: str) -> None:
        self._processes[name].send_signal(signal.SIGCONT)

    @property
    def names(self) -> list[str]:
        return list(self._processes)

    def forget(self, name: str) -> None:
        """The events of a killed member are not those of its successor."""
        with self._lock:
            self._events = [event for event in self._events if event.member != name]

    def assignment(self, name: str) -> set[int]:
        return owned(self.events).get(name, set())

    # -- waiting -------------------------------------------------------------------------------------------------------

    def await_assigned(self, names: Iterable[str], partitions: int) -> None:
        members = list(names)
        what = f"{partitions} partitions assigned to {len(members)} members"
        until(lambda: are_assigned(self.events, members, partitions), what, PATIENCE_S)

    def await_settled(self, names: Iterable[str], partitions: int) -> None:
        """All members have assignments, and nothing has changed for longer than it takes to notice a rebalance."""
        members, quiet_s = list(names), 1.5 * self._settings.heartbeat_ms / 1000
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self.await_assigned(members, partitions)
            before = sum(revocations(self.events, members, 0.0).values())
            time.sleep(quiet_s)
            events = self.events
            if sum(revocations(events, members, 0.0).values()) == before and are_assigned(events, members, partitions):
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"the group has not come to rest within {PATIENCE_S} s")

    def until(self, holds: Callable[[], bool], what: str) -> None:
        until(holds, what, PATIENCE_S)

    # -- processes -----------------------------------------------------------------------------------------------------

    def _add_process(self, names: Sequence[str]) -> None:
        process = subprocess.Popen(
            _command(self._settings),
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for name in names:
            self._processes[name] = process
        listener = threading.Thread(target=self._read_events, args=[process], daemon=True)
        listener.start()
        self._listeners.append(listener)

    def _read_events(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            try:
                event = parsed(line)
            except (RuntimeError, ValueError) as failure:
                with self._lock:
                    self._failure = failure
                return
            with self._lock:
                self._events.append(event)


def _command(settings: Settings) -> list[str]:
    if settings.family != JAVA:
        return [sys.executable, "-m", "benchmarks.extension_members", json.dumps(asdict(settings))]
    times = (settings.heartbeat_ms, settings.session_ms, settings.metadata_max_age_ms)
    arguments = [settings.bootstrap, settings.group, settings.topic, *map(str, times), settings.assignor]
    return [*java_command(_JAVA_MEMBERS), *arguments]


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        assert process.stdin is not None
        process.stdin.close()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
