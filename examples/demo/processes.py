"""The processes of the demo: each is started, told to end or killed, and watched by the journal that it writes.

A journal has a line of JSON for every event: `{"at_ms": …, "event": "processed", "ranges": [[partition, first, end]]}`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

PATIENCE_S: Final = 800.0
"""For one thing to happen. A busy machine takes minutes for what takes fifteen seconds, and that is no failure."""
TELL_EVERY_S: Final = 20.0
"""How often the demo says what it waits for."""
SOON_READY: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a Java that lives for a minute: better ready soon than fast later."""
BEGIN: Final = b"begin\n"
"""What a process reads before it joins the group. If it reads an end instead, there is no demo any more."""
_LOOK_EVERY_S: Final = 0.1

T = TypeVar("T")


class DemoFailed(Exception):
    """What did not happen, in a sentence."""


def wait_for(
    condition: Callable[[], T], what: str, patience_s: float = PATIENCE_S, tell_every_s: float = TELL_EVERY_S
) -> T:
    began = told = time.monotonic()
    while not (found := condition()):
        now = time.monotonic()
        if now - began > patience_s:
            raise DemoFailed(f"waited {patience_s:g} s in vain for {what}")
        if now - told > tell_every_s:
            told = now
            print(f"         still waiting for {what} ({now - began:.0f} s)", flush=True)
        time.sleep(_LOOK_EVERY_S)
    return found


def run_to_end(command: Sequence[str], what: str, log: Path, **waiting: float) -> None:
    """A command of its own; what it says goes to `log`. Raises DemoFailed with the end of that if it fails."""
    with log.open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_for(lambda: process.poll() is not None, what, **waiting)
    finally:
        _kill_all(process)
    if process.returncode != 0:
        raise DemoFailed(f"waited for {what}: {log.read_text(errors='replace')[-2000:]}")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Journal:
    """What a process tells. It is one line at a time, so that nothing is half told, whenever it is killed."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def tell(self, event: str, **fields: Any) -> None:
        self._file.write(json.dumps({"at_ms": now_ms(), "event": event, **fields}).encode() + b"\n")


def read_journal(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


class Worker:
    """A member of the group: a process that can be restarted."""

    def __init__(self, module: str, name: str, directory: Path, options: dict[str, Any]) -> None:
        self.name = name
        self.journal = directory / f"{name}.jsonl"
        self._log = directory / f"{name}.log"
        self._command = [sys.executable, "-m", f"examples.demo.{module}"]
        self._options = {**options, "name": name, "journal": str(self.journal)}
        self._process: subprocess.Popen[bytes] | None = None
        self._prepared_at_ms = 0
        self.started_at_ms = 0
        self.restarts: list[tuple[int, int]] = []
        """From when to when it was away."""

    def prepare(self) -> None:
        """Its process begins, and is not in the group before `start`."""
        if self._process is None:
            self._prepared_at_ms = now_ms()
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    [*self._command, json.dumps(self._options)],
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.PIPE,
                    start_new_session=True,  # so that nothing of it outlives it
                )

    def start(self) -> None:
        self.prepare()
        assert self._process is not None and self._process.stdin is not None
        self.started_at_ms = now_ms()
        with contextlib.suppress(BrokenPipeError):  # it has ended by itself: `has_worked` tells what it said
            self._process.stdin.write(BEGIN)
            self._process.stdin.close()

    def is_ready(self) -> bool:
        """To be started."""
        return self.told("ready", self._prepared_at_ms) > 0

    def has_worked(self) -> bool:
        """Since it was started."""
        return self.told("processed", self.started_at_ms) > 0

    def told(self, what: str, since_ms: int) -> int:
        """How many times. Raises if it has ended."""
        if self._process is None or self._process.poll() is not None:
            lines = self._log.read_text(errors="replace").splitlines()
            raise DemoFailed("\n".join([f"{self.name} has ended by itself; it said:", *lines[-20:]]))
        return sum(event["event"] == what and event["at_ms"] >= since_ms for event in read_journal(self.journal))

    def tell_to_end(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def stop(self) -> None:
        """As a deployment does it."""
        self.tell_to_end()
        process, self._process = self._process, None
        if process is None:
            return
        try:
            wait_for(lambda: process.poll() is not None, f"the end of {self.name}")
        finally:
            _kill_all(process)

    def kill(self) -> None:
        """`kill -9`, all of it."""
        process, self._process = self._process, None
        if process is not None:
            _kill_all(process)

    def restart(self, end: Callable[[], None]) -> None:
        """Ends it, one way or the other, and waits until it works again."""
        began = now_ms()
        end()
        self.start()
        wait_for(self.has_worked, f"records that {self.name} processes after its restart")
        self.restarts.append((began, now_ms()))


def _kill_all(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def is_to_begin(journal: Journal) -> bool:
    """Waits for the word, in the process that `prepare` began."""
    journal.tell("ready")
    return sys.stdin.buffer.readline() == BEGIN


@contextlib.contextmanager
def broker(data: Path, log: Path) -> Iterator[str]:
    """A broker on a free port; its first line says where."""
    command = [sys.executable, "-m", "holdfast", "serve", "--listen", "127.0.0.1:0", "--data", str(data)]
    # The first members start together: one generation has them all, and none waits for the first batches of another.
    command += ["--log-level", "warning", "--set", "group.initial.rebalance.delay.ms=3000"]
    with log.open("ab") as said:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline().strip()
        if not line:
            raise DemoFailed(f"the broker did not start: {log.read_text(errors='replace')[-1000:]}")
        yield line.rpartition(" ")[2]
    finally:
        process.terminate()
        try:
            wait_for(lambda: process.poll() is not None, "the broker to end")
        finally:
            process.kill()
            process.wait()
    if process.returncode != 0:
        raise DemoFailed(f"the broker ended with exit code {process.returncode}")
