"""The cost of a process and its descendants by kind, from /proc."""

from __future__ import annotations

import ctypes
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_GONE: Final = (FileNotFoundError, ProcessLookupError)
_PR_SET_CHILD_SUBREAPER: Final = 36

Kind = Callable[[str], str]
"""Maps a command line, or the name of a thread, to the kind under which it is counted."""


@dataclass
class Usage:
    """CPU seconds so far."""

    by_kind: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Of existing processes, without their children."""
    ended: float = 0.0
    """Of processes that have ended meanwhile, as reported by their parents."""
    by_thread: dict[tuple[int, int], tuple[str, float]] = field(default_factory=dict)
    """Of existing threads: kind of process and name of thread, by process and thread."""

    def since(self, before: Usage) -> Usage:
        by_thread = {
            of: (name, seconds - before.by_thread[of][1] if of in before.by_thread else seconds)
            for of, (name, seconds) in self.by_thread.items()
        }
        # Also for kinds that no longer exist, because the time of their processes is now in `ended`.
        kinds = {*self.by_kind, *before.by_kind}
        by_kind = {kind: self.by_kind.get(kind, 0.0) - before.by_kind.get(kind, 0.0) for kind in kinds}
        return Usage(defaultdict(float, by_kind), self.ended - before.ended, by_thread)

    @property
    def total(self) -> float:
        return sum(self.by_kind.values()) + self.ended

    def threads(self, kind: str, group: Kind) -> dict[str, float]:
        """CPU seconds of the threads in processes of this kind, grouped by their names."""
        together: defaultdict[str, float] = defaultdict(float)
        for name, seconds in self.by_thread.values():
            of, _, thread = name.partition("/")
            if of == kind:
                together[group(thread)] += seconds
        return dict(together)


def usage(root: int, kind: Kind) -> Usage:
    found = Usage()
    for pid in tree(root):
        with suppress(*_GONE):  # ended while we looked; its parent reports it next time
            name = kind(_command(pid))
            own, reaped = _cpu_seconds(Path(f"/proc/{pid}/stat"))
            found.by_kind[name] += own
            found.ended += reaped
            for task in Path(f"/proc/{pid}/task").iterdir():
                with suppress(*_GONE):
                    thread = (task / "comm").read_text().strip()
                    found.by_thread[pid, int(task.name)] = (f"{name}/{thread}", _cpu_seconds(task / "stat")[0])
    return found


def total_seconds(root: int) -> float:
    """CPU time so far of the process and everything below it, also of processes that have ended."""
    total = 0.0
    for pid in tree(root):
        with suppress(*_GONE):
            total += sum(_cpu_seconds(Path(f"/proc/{pid}/stat")))
    return total


def adopt_orphans() -> None:
    """Processes below this one become its children when their parents end, instead of children of process 1. An ended
    one stays as a zombie, so that its CPU time is known, until this process ends."""
    # Linux: prctl(2)
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "the kernel does not support subreapers")


def tree(root: int) -> Iterator[int]:
    """The process and everything below it."""
    yield root
    children: list[str] = []
    with suppress(*_GONE):
        for task in Path(f"/proc/{root}/task").iterdir():
            with suppress(*_GONE):  # threads may end at any time, especially those of Java
                children += (task / "children").read_text().split()
    for child in children:
        yield from tree(int(child))


def of_kind(root: int, kind: Kind, wanted: str) -> list[int]:
    found = []
    for pid in tree(root):
        with suppress(*_GONE):
            if kind(_command(pid)) == wanted:
                found.append(pid)
    return found


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def _cpu_seconds(stat: Path) -> tuple[float, float]:
    """Its own, and that of the children it has waited for."""
    # The name in parentheses may contain spaces and parentheses, so parsing starts after its end.
    fields = re.sub(r"^.*\) ", "", stat.read_text(), flags=re.DOTALL).split()
    user, system, children_user, children_system = map(int, fields[11:15])
    return (user + system) / _TICKS_PER_SECOND, (children_user + children_system) / _TICKS_PER_SECOND
