"""Members that come and go again and again.

A static member is known by its instance id. A dynamic one has another member id with every start, so it is taken for
the same if client id and host are: several of one process cannot be told apart, and are one.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final

from holdfast.spark.pipelines.forensics.ownership import Emit
from holdfast.spark.pipelines.forensics.rules import Rules

REJOINED: Final = "rejoined"
MOST_REMEMBERED: Final = 10_000
"""Those who have been quiet for long, and never flapped, are forgotten when there are more."""


@dataclass(slots=True)
class _Member:
    is_static: bool
    first_ms: int
    last_ms: int
    recent: deque[int] = field(default_factory=deque)
    most: int = 0
    counts: Counter[str] = field(default_factory=Counter)


class Flapping:
    def __init__(self, rules: Rules, emit: Emit) -> None:
        self._rules = rules
        self._emit = emit
        self._members: dict[str, _Member] = {}

    def on_gone(self, process: str, is_static: bool, how: str, at_ms: int) -> None:
        """How it went; or that it took its seat again, which shows that it had been away."""
        since_ms = self._rules.since_ms
        if since_ms is not None and at_ms < since_ms:
            return
        member = self._members.get(process)
        if member is None:
            if len(self._members) >= MOST_REMEMBERED:
                self._forget(at_ms)
            member = self._members[process] = _Member(is_static, at_ms, at_ms)
        member.counts[how] += 1
        member.last_ms = at_ms
        member.recent.append(at_ms)
        while member.recent[0] <= at_ms - self._rules.flap_within_ms:
            member.recent.popleft()
        member.most = max(member.most, len(member.recent))
        # Only whether there are more, and how many at most, is asked: a flood need not be kept.
        if len(member.recent) > MOST_REMEMBERED:
            member.recent.popleft()

    def finish(self) -> None:
        for process, member in self._members.items():
            if member.most > self._rules.flap_times:
                counts = {name: member.counts[name] for name in ("left", "expired", "dropped", "gone", REJOINED)}
                self._emit(
                    "flapping",
                    {
                        "member": process,
                        "is_static": member.is_static,
                        **counts,
                        "most_within": member.most,
                        "first_ms": member.first_ms,
                        "last_ms": member.last_ms,
                    },
                )

    def _forget(self, now_ms: int) -> None:
        quiet_since = now_ms - self._rules.flap_within_ms
        self._members = {
            process: member
            for process, member in self._members.items()
            if member.most > self._rules.flap_times or member.last_ms > quiet_since
        }
