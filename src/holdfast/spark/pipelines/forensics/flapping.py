"""Members that leave and rejoin repeatedly.

A static member is identified by its instance id. A dynamic one has a new member id after every start, so it is
identified by client id and host: several members of one process cannot be distinguished, and count as one.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final

from holdfast.spark.pipelines.forensics.ownership import Emit
from holdfast.spark.pipelines.forensics.thresholds import ForensicsThresholds

REJOINED: Final = "rejoined"
MAX_REMEMBERED: Final = 10_000
"""If there are more members, those that have been stable for long are dropped."""


@dataclass(slots=True)
class _Member:
    is_static: bool
    first_ms: int
    last_ms: int
    recent: deque[int] = field(default_factory=deque)
    most_within: int = 0
    counts: Counter[str] = field(default_factory=Counter)


class Flapping:
    def __init__(self, rules: ForensicsThresholds, emit: Emit) -> None:
        self._thresholds = rules
        self._emit = emit
        self._members: dict[str, _Member] = {}

    def on_gone(self, process: str, is_static: bool, how: str, at_ms: int) -> None:
        """How the member left; or that it rejoined as a static member, which shows that it had been down."""
        since_ms = self._thresholds.since_ms
        if since_ms is not None and at_ms < since_ms:
            return
        member = self._members.get(process)
        if member is None:
            if len(self._members) >= MAX_REMEMBERED:
                self._evict(at_ms)
            member = self._members[process] = _Member(is_static, at_ms, at_ms)
        member.counts[how] += 1
        member.last_ms = at_ms
        member.recent.append(at_ms)
        while member.recent[0] <= at_ms - self._thresholds.flap_within_ms:
            member.recent.popleft()
        member.most_within = max(member.most_within, len(member.recent))
        # Only the maximum matters: not every departure has to be kept.
        if len(member.recent) > MAX_REMEMBERED:
            member.recent.popleft()

    def finish(self) -> None:
        for process, member in self._members.items():
            if member.most_within > self._thresholds.flap_times:
                counts = {name: member.counts[name] for name in ("left", "expired", "dropped", "gone", REJOINED)}
                self._emit(
                    "flapping",
                    {
                        "member": process,
                        "is_static": member.is_static,
                        **counts,
                        "most_within": member.most_within,
                        "first_ms": member.first_ms,
                        "last_ms": member.last_ms,
                    },
                )

    def _evict(self, now_ms: int) -> None:
        quiet_since = now_ms - self._thresholds.flap_within_ms
        self._members = {
            process: member
            for process, member in self._members.items()
            if member.most_within > self._thresholds.flap_times or member.last_ms > quiet_since
        }
