"""Whether the machine is quiet enough to measure: before a run by its load, during it by the CPU of other processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.process_tree import adopt_orphans, total_seconds

QUIET_LOAD: Final = 0.5
"""The load average of the last minute must be below this before a run."""
QUIET_CORES: Final = 0.2
"""Other processes must use less than this before a case. A case during which they use more is noisy."""
PATIENCE_S: Final = 600.0
_LOOK_S: Final = 5.0
_SAMPLE_S: Final = 2.0
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_NOT_COUNTED: Final = frozenset({3, 4, 5, 6})
"""Fields of /proc/stat: idle, waiting for the disk, and interrupts, which our own packets cause."""
_COUNTED: Final = 8
"""The fields after these count guests, whose time is also in the first two."""


class Busy(Exception):
    """The machine did not become quiet; the message is one line that says how busy it is."""


def load_average() -> float:
    return round(os.getloadavg()[0], 2)


def await_quiet(
    say: Callable[[str], None],
    patience_s: float = PATIENCE_S,
    load: Callable[[], float] = load_average,
    pause: Callable[[float], None] = time.sleep,
) -> float:
    """Waits until the load average is low enough, and returns it."""
    waited = 0.0
    while (now := load()) >= QUIET_LOAD:
        if waited >= patience_s:
            raise Busy(f"the load average is {now} after {waited:.0f} s; it must be below {QUIET_LOAD}")
        say(f"waiting for a quiet machine: load average {now}, must be below {QUIET_LOAD} ({waited:.0f} s)")
        pause(_LOOK_S)
        waited += _LOOK_S
    return now


class OtherProcesses:
    """The cores that processes other than this one and those below it have used since this was created."""

    def __init__(self, own: Callable[[], float] | None = None) -> None:
        """`own` returns the CPU time that does not count."""
        adopt_orphans()
        self._own = own or own_seconds
        self._began = time.monotonic()
        self._before = busy_seconds() - self._own()

    def cores(self) -> float:
        """The kernel counts in steps of 10 ms, so that the figure may be off."""
        used = busy_seconds() - self._own() - self._before
        return round(max(0.0, used / (time.monotonic() - self._began)), 2)


def await_idle(say: Callable[[str], None], patience_s: float = PATIENCE_S) -> float:
    """Waits until other processes use hardly any CPU, and returns how many cores they use.

    The load average is not usable between two cases, because it is that of the previous case. Processes that the
    previous case has started, and that still run, count as others.
    """
    deadline = time.monotonic() + patience_s
    while True:
        others = OtherProcesses(time.process_time)
        time.sleep(_SAMPLE_S)
        if (cores := others.cores()) < QUIET_CORES:
            return cores
        if time.monotonic() > deadline:
            raise Busy(f"other processes use {cores} cores; it must be less than {QUIET_CORES}")
        say(f"waiting for a quiet machine: other processes use {cores} cores, must be less than {QUIET_CORES}")


def busy_seconds(stat: Path = Path("/proc/stat")) -> float:
    """The CPU time of all processes so far. Steal time counts as work."""
    fields = stat.read_text().split("\n", 1)[0].split()[1 : 1 + _COUNTED]
    return sum(int(ticks) for index, ticks in enumerate(fields) if index not in _NOT_COUNTED) / _TICKS_PER_SECOND


def own_seconds() -> float:
    """CPU time of this process and of everything below it. The parents of some processes do not wait for them: PySpark
    ends before its JVM, and the JVM ends before its Python workers. So it is not enough to ask for the children that
    have ended."""
    return total_seconds(os.getpid())
