"""CPU time and memory of a process, from /proc."""

from __future__ import annotations

import os
import re
import resource
import sys
import time
from pathlib import Path
from typing import Final

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_OF_PROCESS: Final = 2
"""With the inverted process id, the number of the clock of its CPU time (clock_getcpuclockid, on Linux)."""
_OTHER_FILES: Final = 500
"""Room for everything that is not a connection: logs, indexes, jars."""
_FILES_PER_CONNECTION: Final = 2
"""Holdfast writes replies on a duplicate of the socket (docs/decisions/0001)."""
_MIB: Final = 1024
"""kB in a MiB: /proc counts in kB."""


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads so far, to the nanosecond."""
    return time.clock_gettime(~pid << 3 | _OF_PROCESS)


def cpu_seconds_with_children(pid: int) -> float:
    """The same, and that of the processes it has started that have ended; the kernel counts it in steps of 10 ms."""
    return sum(_times(pid)) / _TICKS_PER_SECOND


def _times(pid: int) -> list[int]:
    """User and system time, its own and its ended children's, in ticks."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    # The name in parentheses may contain spaces and parentheses, so parsing starts after its end.
    fields = stat[stat.rindex(")") + 2 :].split()
    return [int(field) for field in fields[11:15]]


def resident_mib(pid: int) -> float:
    """RSS: pages in memory, shared ones counted in full."""
    return _kib(Path(f"/proc/{pid}/status").read_text(), "VmRSS") / _MIB


def peak_resident_mib(pid: int) -> float:
    """The peak RSS since the start or `forget_peak`."""
    return _kib(Path(f"/proc/{pid}/status").read_text(), "VmHWM") / _MIB


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def connections_allowed() -> int:
    """The number of connections that a server may have here, besides its other files; in hundreds."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if allowed == resource.RLIM_INFINITY:
        return sys.maxsize
    return (allowed - _OTHER_FILES) // _FILES_PER_CONNECTION // 100 * 100


def allow_files(count: int) -> None:
    """Lets this process, and the processes that it starts from now on, open this many files and some more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < min(hard, count + _OTHER_FILES):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def proportional_mib(pid: int) -> float:
    """PSS: a page shared by n processes counts as one n-th of it."""
    return _kib(Path(f"/proc/{pid}/smaps_rollup").read_text(), "Pss") / _MIB


def _kib(text: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"the kernel does not report {name}")
    return int(found[1])
