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
    stat = Path(f"/proc/{pid}/stat").read_text()
    # The name in parentheses may hold spaces and parentheses itself: what follows its end is regular.
    fields = stat[stat.rindex(")") + 2 :].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def resident_mib(pid: int) -> float:
    """RSS: pages in memory, shared ones counted in full."""
    return _kib(Path(f"/proc/{pid}/status").read_text(), "VmRSS") / _MIB


def proportional_mib(pid: int) -> float:
    """PSS: a page shared by n processes counts as one n-th of it."""
    return _kib(Path(f"/proc/{pid}/smaps_rollup").read_text(), "Pss") / _MIB


def _kib(text: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"the kernel does not tell {name}")
    return int(found[1])
