"""A group of real consumers in a few processes, as a measurement sees it: started, killed, suspended, listened to."""

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

from bench.extension_members import JAVA, Settings
from bench.member_events import MemberEvent, are_shared, owned, parsed, revocations
from bench.results import REPOSITORY
from bench.steady import until
from tests.support.java_assignors import java_command

PER_PROCESS: Final = 10
"""Members in one process: a hundred processes are too many for a machine that also runs the broker."""
PATIENCE_S: Final = 120.0
_STOP_S: Final = 20.0
_JAVA_MEMBERS: Final = REPOSITORY / "bench" / "ExtensionMembers.java"


class Fleet:
    """Processes with `per_process` members each. They are there at once; a member joins when it is started."""

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
        """In the order in which they were heard."""
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
        """One after the other, evenly; the last one when the time is over."""
        began = time.monotonic()
        for number, name in enumerate(names, 1):
            time.sleep(max(0.0, began + seconds * number / len(names) - time.monotonic()))
            self.start(name)

    def kill(self, name: str) -> float:
        """As `kill -9` does, with everybody in the same process. Returns when."""
        at = time.monotonic()
        self._processes[name].kill()
        self._processes[name].wait()
        return at

    def revive(self, name: str) -> None:
        """A process that was killed is there again, for this member alone."""
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
        """What a killed member told is not about its successor."""
        with self._lock:
            self._events = [event for event in self._events if event.member != name]

    def share(self, name: str) -> set[int]:
        return owned(self.events).get(name, set())

    # -- waiting -------------------------------------------------------------------------------------------------------

    def await_shared(self, names: Iterable[str], partitions: int) -> None:
        members = list(names)
        shared = f"{partitions} partitions shared by {len(members)} members"
        until(lambda: are_shared(self.events, members, partitions), shared, PATIENCE_S)

    def await_settled(self, names: Iterable[str], partitions: int) -> None:
        """Shared, and for longer than it takes to hear of a rebalance nothing has changed."""
        members, quiet_s = list(names), 1.5 * self._settings.heartbeat_ms / 1000
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self.await_shared(members, partitions)
            before = sum(revocations(self.events, members, 0.0).values())
            time.sleep(quiet_s)
            events = self.events
            if sum(revocations(events, members, 0.0).values()) == before and are_shared(events, members, partitions):
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
        listener = threading.Thread(target=self._listen, args=[process], daemon=True)
        listener.start()
        self._listeners.append(listener)

    def _listen(self, process: subprocess.Popen[str]) -> None:
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
        return [sys.executable, "-m", "bench.extension_members", json.dumps(asdict(settings))]
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
