"""What the kernel knows about a process: CPU time and memory, from /proc."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_MIB: Final = 1024
"""kB in a MiB: /proc counts in kB."""


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads so far; the kernel counts in steps of 10 ms."""
    return sum(_times(pid)[:2]) / _TICKS_PER_SECOND


def cpu_seconds_with_children(pid: int) -> float:
    """The same, and that of the processes it has started that have ended."""
    return sum(_times(pid)) / _TICKS_PER_SECOND


def _times(pid: int) -> list[int]:
    """User and system time, its own and its ended children's, in ticks."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    # The name in parentheses may hold spaces and parentheses itself: what follows its end is regular.
    fields = stat[stat.rindex(")") + 2 :].split()
    return [int(field) for field in fields[11:15]]


def resident_mib(pid: int) -> float:
    """RSS: pages in memory, shared ones counted in full."""
    return _kib(Path(f"/proc/{pid}/status").read_text(), "VmRSS") / _MIB


def peak_resident_mib(pid: int) -> float:
    """The most that was resident since the start or `forget_peak`."""
    return _kib(Path(f"/proc/{pid}/status").read_text(), "VmHWM") / _MIB


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


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
        raise RuntimeError(f"the kernel does not tell {name}")
    return int(found[1])
