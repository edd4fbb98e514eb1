"""The processes of the demo: each is started, terminated or killed, and observed by the event log that it writes.

An event log has a line of JSON for each event: `{"at_ms": …, "event": "processed", "ranges": [[partition, first,
end]]}`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

TIMEOUT_S: Final = 800.0
"""For one step. It usually takes fifteen seconds. On a busy machine it may take minutes, which is not a failure."""
EXIT_TIMEOUT_S: Final = 180.0
"""For the exit of a process, which usually takes two seconds: three times as long as a query waits for its batch."""
_STACKS_S: Final = 5.0
"""For a process to print its stacks. A JVM needs a moment until all of its threads have paused."""
PROGRESS_EVERY_S: Final = 20.0
"""How often the demo prints what it waits for."""
FAST_START_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that runs for a minute: fast start-up matters more than peak speed."""
START: Final = b"begin\n"
"""The line that a process reads from stdin before it joins the group. The end of stdin means that the demo has
exited."""
_LOOK_EVERY_S: Final = 0.1

T = TypeVar("T")


class DemoFailed(Exception):
    """A step that failed, in one sentence."""


def wait_for(
    condition: Callable[[], T], what: str, timeout_s: float = TIMEOUT_S, progress_every_s: float = PROGRESS_EVERY_S
) -> T:
    began = reported = time.monotonic()
    while not (found := condition()):
        now = time.monotonic()
        if now - began > timeout_s:
            raise DemoFailed(f"gave up waiting for {what} after {timeout_s:g} s")
        if now - reported > progress_every_s:
            reported = now
            print(f"         still waiting for {what} ({now - began:.0f} s)", flush=True)
        time.sleep(_LOOK_EVERY_S)
    return found


def run_to_end(command: Sequence[str], what: str, log: Path, **limits: float) -> None:
    """Runs a command with its output in `log`. Raises DemoFailed with the end of the output if it fails."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        wait_for(lambda: process.poll() is not None, what, **limits)
    finally:
        _kill_all(process)
    if process.returncode != 0:
        raise DemoFailed(f"waited for {what}: {log.read_text(errors='replace')[-2000:]}")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class EventLog:
    """Events of a process. Each is one write of one line, so that a kill never leaves a partial event."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def write(self, event: str, **fields: Any) -> None:
        self._file.write(json.dumps({"at_ms": now_ms(), "event": event, **fields}).encode() + b"\n")


def read_event_log(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


class Worker:
    """A member of the group: a process that can be restarted."""

    def __init__(self, module: str, name: str, directory: Path, options: dict[str, Any]) -> None:
        self.name = name
        self.event_log = directory / f"{name}.jsonl"
        self._log = directory / f"{name}.log"
        self._command = [sys.executable, "-m", f"examples.demo.{module}"]
        self._options = {**options, "name": name, "event_log": str(self.event_log)}
        self._process: subprocess.Popen[bytes] | None = None
        self._prepared_at_ms = 0
        self.started_at_ms = 0
        self.restarts: list[tuple[int, int]] = []
        """Start and end of each restart."""

    def prepare(self) -> None:
        """Starts the process, which does not join the group before `start`."""
        if self._process is None:
            self._prepared_at_ms = now_ms()
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    [*self._command, json.dumps(self._options)],
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.PIPE,
                    start_new_session=True,  # so that its children can be killed with it
                )

    def start(self) -> None:
        self.prepare()
        assert self._process is not None and self._process.stdin is not None
        self.started_at_ms = now_ms()
        with contextlib.suppress(BrokenPipeError):  # it has exited: `has_worked` raises with its output
            self._process.stdin.write(START)
            self._process.stdin.close()

    def is_ready(self) -> bool:
        """Whether it can be started."""
        return self.count_events("ready", self._prepared_at_ms) > 0

    def has_worked(self) -> bool:
        """Since it was started."""
        return self.count_events("processed", self.started_at_ms) > 0

    def count_events(self, what: str, since_ms: int) -> int:
        """How many events there are. Raises if the process has exited."""
        if self._process is None or self._process.poll() is not None:
            lines = self._log.read_text(errors="replace").splitlines()
            raise DemoFailed("\n".join([f"{self.name} has exited; its last output:", *lines[-20:]]))
        return sum(event["event"] == what and event["at_ms"] >= since_ms for event in read_event_log(self.event_log))

    def terminate(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def stop(self) -> None:
        """A graceful stop, as in a deployment."""
        self.terminate()
        self.await_exit()

    def await_exit(self, timeout_s: float = EXIT_TIMEOUT_S) -> None:
        """After `terminate`. If it does not exit, its log ends with the stacks of its threads."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            wait_for(lambda: process.poll() is not None, f"{self.name} to exit", timeout_s)
        except DemoFailed as failure:
            _request_stacks(process)
            raise DemoFailed(f"{failure}; its stacks are at the end of {self._log}") from failure
        finally:
            _kill_all(process)

    def kill(self) -> None:
        """`kill -9` for the process and its children."""
        process, self._process = self._process, None
        if process is not None:
            _kill_all(process)

    def restart(self, end: Callable[[], None]) -> None:
        """Stops it by `end`, starts it again, and waits until it processes records."""
        began = now_ms()
        end()
        self.start()
        wait_for(self.has_worked, f"{self.name} to process records after its restart")
        self.restarts.append((began, now_ms()))


def _request_stacks(process: subprocess.Popen[bytes]) -> None:
    """Of all in its process group: for a query that is Python, the JVM, and the process of the source."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGQUIT)
    time.sleep(_STACKS_S)


def _kill_all(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def print_stacks_on_sigquit() -> None:
    """As a JVM does."""
    faulthandler.register(signal.SIGQUIT)


def wait_for_start(event_log: EventLog) -> bool:
    """Waits for the start signal, in the process that `prepare` has started."""
    event_log.write("ready")
    return sys.stdin.buffer.readline() == START


@contextlib.contextmanager
def broker(data: Path, log: Path) -> Iterator[str]:
    """A broker on a free port, which its first line names."""
    command = [sys.executable, "-m", "holdfast", "serve", "--listen", "127.0.0.1:0", "--data", str(data)]
    # The first members start together: one generation has all of them, and none waits for the first batches of another.
    command += ["--log-level", "warning", "--set", "group.initial.rebalance.delay.ms=3000"]
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=output, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline().strip()
        if not line:
            raise DemoFailed(f"the broker did not start: {log.read_text(errors='replace')[-1000:]}")
        yield line.rpartition(" ")[2]
    finally:
        process.terminate()
        try:
            wait_for(lambda: process.poll() is not None, "the broker to end", EXIT_TIMEOUT_S)
        finally:
            process.kill()
            process.wait()
    if process.returncode != 0:
        raise DemoFailed(f"the broker ended with exit code {process.returncode}")
