"""``holdfast serve`` as a user starts it: a process of its own, known by its address and its exit code."""

import contextlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.child_process import end_child, start_child
from tests.support.held_ports import held_port

HOST = "127.0.0.1"

_START_TIMEOUT_S = 60
_STOP_TIMEOUT_S = 60
_POLL_INTERVAL_S = 0.01
_LOG_TAIL_LINES = 25


class HoldfastFailed(Exception):
    """The broker did not start or died; the message ends with the last lines of its log."""


class HoldfastBroker:
    """Context manager around one broker.

    ``settings`` become ``--set name=value``. Without ``directory`` everything lives in a temporary directory that
    goes with the broker; a given one is kept. ``file_limit`` is how many files the process may have open,
    ``python`` the interpreter that runs it.
    """

    _ready = re.compile(r"^holdfast listening on (\S+):(\d+)$", re.MULTILINE)

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        directory: Path | None = None,
        file_limit: int | None = None,
        python: str = sys.executable,
    ) -> None:
        self._settings = dict(settings or {})
        self._file_limit = file_limit
        self._python = python
        self._directory_is_ours = directory is None
        self._directory = directory or Path(tempfile.mkdtemp(prefix="holdfast-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._address: tuple[str, int] | None = None
        self._held: socket.socket | None = None
        self.data_dir = self._directory / "data"
        self.log_path = self._directory / "broker.log"
        self.started_in_seconds = 0.0

    @property
    def address(self) -> tuple[str, int]:
        if self._address is None:
            raise HoldfastFailed("the broker was never started")
        return self._address

    @property
    def bootstrap(self) -> str:
        """What clients call ``bootstrap.servers``."""
        host, port = self.address
        return f"{host}:{port}"

    @property
    def pid(self) -> int:
        return self._running().pid

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def start(self) -> None:
        """Start the broker and return when it says that it listens. A restart keeps data and port."""
        if self._process is not None:
            raise HoldfastFailed("the broker is running already")
        already_said = len(self.log_text())
        began = time.monotonic()
        self._process = start_child(self._command(), self.log_path)
        try:
            self._address = self._wait_for_address(already_said, began + _START_TIMEOUT_S)
        except BaseException:
            self.kill()
            raise
        self.started_in_seconds = time.monotonic() - began

    def stop(self) -> None:
        """Ask it to stop (SIGTERM); it must end with exit code 0. Does nothing when the broker is not running."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self.resume()  # a suspended process cannot obey
        exit_code = self._end(signal.SIGTERM)
        if exit_code != 0:
            raise self._failed(f"holdfast ended with exit code {exit_code} instead of 0")

    def kill(self) -> None:
        """End the broker as ``kill -9`` does. Does nothing when the broker is not running."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def suspend(self) -> None:
        """The process stands still as it is (SIGSTOP); its sockets stay open."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._remove_directory()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        finally:
            if self._held is not None:
                self._held.close()
            self._remove_directory()

    def _command(self) -> list[str]:
        host, port = self._address or (HOST, 0)
        serve = ["serve", "--listen", f"{host}:{port}", "--data", str(self.data_dir)]
        return self._holdfast(serve)

    def _holdfast(self, arguments: Sequence[str]) -> list[str]:
        """The command line of `holdfast` with these arguments and the settings."""
        sets = [word for name, value in self._settings.items() for word in ("--set", f"{name}={value}")]
        command = [self._python, "-m", "holdfast.cli.main", *arguments, *sets]
        if self._file_limit is None:
            return command
        return ["sh", "-c", f'ulimit -n {self._file_limit} && exec "$@"', "sh", *command]

    def _wait_for_address(self, already_said: int, deadline: float) -> tuple[str, int]:
        while True:
            exit_code = self._running().poll()
            if ready := self._ready.search(self.log_text(), already_said):
                return ready[1], int(ready[2])
            if exit_code is not None:
                raise self._failed(f"holdfast ended with exit code {exit_code} while starting")
            if time.monotonic() > deadline:
                raise self._failed(f"holdfast was not ready within {_START_TIMEOUT_S} s")
            time.sleep(_POLL_INTERVAL_S)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise HoldfastFailed("the broker is not running")
        return self._process

    def _end(self, number: signal.Signals) -> int | None:
        if self._process is None:
            return None
        exit_code = end_child(self._process, number, _STOP_TIMEOUT_S)
        self._process = None
        self._hold_port()
        return exit_code

    def _hold_port(self) -> None:
        """While the broker is down nobody else may be given its port: a restart needs it."""
        if self._held is None and self._address is not None and self._address[0] == HOST:
            with contextlib.suppress(OSError):  # somebody was quicker
                self._held = held_port(self._address[1])

    def _failed(self, what: str) -> HoldfastFailed:
        lines = self.log_text().splitlines()
        return HoldfastFailed("\n".join([f"{what}; its log ends with:", *lines[-_LOG_TAIL_LINES:]]))

    def _remove_directory(self) -> None:
        if self._directory_is_ours:
            shutil.rmtree(self._directory, ignore_errors=True)
