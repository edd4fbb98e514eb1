"""The process in which Spark runs a streaming reader: it exits on SIGTERM and when Spark has exited.

Spark ends a query's process by SIGTERM, and does not call `stop` before. If Spark itself is killed, the process notices
that its connection was closed, unless it is blocked elsewhere; then its parent process id has changed. On SIGQUIT it
prints the stacks of its threads.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final

_RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
CHECK_INTERVAL_S: Final = 0.5
MAX_EXIT_S: Final = 10
"""After that SIGALRM ends the process."""


def is_runner() -> bool:
    """Whether Spark started this process for a streaming reader only."""
    return _main_module() == _RUNNER


def is_started_by_spark() -> bool:
    """Whether this process is a runner, a worker, or a process in which Spark plans."""
    return _main_module().startswith("pyspark.")


def _main_module() -> str:
    """The module that was started by `python -m`; empty if the process was started otherwise."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return "" if spec is None else str(spec.name)


def exit_with_spark(end: Callable[[], None]) -> None:
    """Calls `end` before this process exits. Has no effect in other processes than Spark's runner."""
    if not is_runner():
        return
    parent = os.getppid()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # it may be sent twice
        signal.alarm(MAX_EXIT_S)  # the interrupted thread may hold a lock that `end` needs
        try:
            end()
        finally:
            os._exit(0)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(CHECK_INTERVAL_S)
        try:
            end()
        finally:
            os._exit(1)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_signal)
    _print_stacks_on_sigquit()
    threading.Thread(target=watch, name="holdfast-lifetime", daemon=True).start()


def _print_stacks_on_sigquit() -> None:
    """As the driver's JVM does. Spark copies this stderr to its own."""
    faulthandler.register(signal.SIGQUIT, file=2)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGQUIT})  # inherited from a JVM thread, which blocks it


def driver_age_s() -> float | None:
    """The age of the parent process, Spark's driver."""
    try:
        started = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[19])
        up_s = float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return max(0.0, up_s - started / os.sysconf("SC_CLK_TCK"))
