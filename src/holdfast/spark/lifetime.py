"""Nothing is left behind: the process in which Spark runs a reader ends when it is told to and when Spark is gone.

Spark ends a query's process by SIGTERM, and does not call `stop` before. If Spark itself is killed, the process sees
its connection end, unless it waits for something else at that moment; then it is somebody else's child by now.
"""

from __future__ import annotations

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
LOOK_S: Final = 0.5
LONGEST_END_S: Final = 10
"""After that the process dies without ceremony."""


def is_runner() -> bool:
    """Whether this process is one that Spark made for a reader, and nothing else happens in it."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == _RUNNER


def end_with_spark(end: Callable[[], None]) -> None:
    """Have `end` called before this process ends. Elsewhere than in Spark's own process nothing is done."""
    if not is_runner():
        return
    parent = os.getppid()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # it may come twice
        signal.alarm(LONGEST_END_S)  # whatever the thread that is interrupted here holds on to
        try:
            end()
        finally:
            os._exit(0)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_S)
        try:
            end()
        finally:
            os._exit(1)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_signal)
    threading.Thread(target=watch, name="holdfast-lifetime", daemon=True).start()


def driver_age_s() -> float | None:
    """For how long the process that started this one, Spark's driver, has been running."""
    try:
        started = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[19])
        up_s = float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return max(0.0, up_s - started / os.sysconf("SC_CLK_TCK"))
