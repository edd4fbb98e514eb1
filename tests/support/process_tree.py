"""The processes that a process has started, as the kernel knows them. Any of them may end while one looks."""

from __future__ import annotations

from pathlib import Path


def descendants(root: int) -> list[int]:
    """All below it."""
    parents = _parents()
    found: list[int] = []
    level = {root}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level}
        found += sorted(level)
    return found


def command_line(pid: int) -> str:
    """Empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _parents() -> dict[int, int]:
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    return found
