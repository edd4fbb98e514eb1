"""What static membership would have saved: dynamic members that came back within their session.

A member went, and one with the same client id and host came within the session time-out: before it had gone, if its
process was killed and its session had yet to end, or after, if it left. With an instance id neither would have been
noticed. A rebalance is counted if *all* who came or went in it are such returns. A cooperative group's second round is
counted with its first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.spark.pipelines.forensics.ownership import Emit
from holdfast.spark.pipelines.forensics.rebalances import Coming, Going, Rebalance
from holdfast.spark.pipelines.forensics.rules import Rules


@dataclass(slots=True, eq=False)
class _Turn:
    """A coming or a going, and whether it has found its counterpart."""

    process: str
    label: str
    at_ms: int
    earliest_ms: int
    """Of the time in which its counterpart must be."""
    latest_ms: int
    is_coming: bool
    is_matched: bool = False

    def fits(self, other: _Turn) -> bool:
        """In time for each other, and not of one and the same member: a static one that comes late is always that."""
        in_time = (
            self.earliest_ms <= other.at_ms <= self.latest_ms and other.earliest_ms <= self.at_ms <= other.latest_ms
        )
        return in_time and self.label != other.label


@dataclass(slots=True)
class _Pending:
    rebalance: Rebalance
    turns: list[_Turn]
    decided_at_ms: int


@dataclass(slots=True)
class Returns:
    """`decided` gets every rebalance, in their order, with whether static membership would have saved it."""

    rules: Rules
    emit: Emit
    decided: Callable[[Rebalance, bool], None]
    _unmatched: dict[tuple[str, bool], deque[_Turn]] = field(default_factory=dict)
    """By process, and whether they are comings."""
    _pending: deque[_Pending] = field(default_factory=deque)
    _previous: bool = False

    def on_rebalance(self, one: Rebalance) -> None:
        self.settle(one.started_ms)
        turns = [self._going(going) for going in one.went] + [self._coming(coming) for coming in one.came]
        latest = max((turn.latest_ms for turn in turns), default=one.started_ms)
        self._pending.append(_Pending(one, turns, latest))

    def settle(self, now_ms: int) -> None:
        while self._pending:
            first = self._pending[0]
            if first.decided_at_ms >= now_ms and not all(turn.is_matched for turn in first.turns):
                return
            self._decide(self._pending.popleft())

    def finish(self) -> None:
        while self._pending:
            self._decide(self._pending.popleft())

    def _going(self, going: Going) -> _Turn:
        session_ms = going.session_ms or self.rules.session_ms
        # Silent since then, at the earliest; who left, since it said so. Of a mere absence both is possible.
        earliest = going.at_ms - (session_ms if going.how != "left" else 0)
        latest = going.at_ms + (session_ms if going.how in ("left", "gone") else 0)
        return self._match(_Turn(going.process, going.label, going.at_ms, earliest, latest, is_coming=False))

    def _coming(self, coming: Coming) -> _Turn:
        session_ms = coming.session_ms or self.rules.session_ms
        earliest, latest = coming.at_ms - session_ms, coming.at_ms + session_ms
        return self._match(_Turn(coming.process, coming.label, coming.at_ms, earliest, latest, is_coming=True))

    def _match(self, turn: _Turn) -> _Turn:
        others = self._unmatched.get((turn.process, not turn.is_coming), ())
        for other in others:
            if turn.fits(other):
                turn.is_matched = other.is_matched = True
                self._forget(other)
                return turn
        self._unmatched.setdefault((turn.process, turn.is_coming), deque()).append(turn)
        return turn

    def _forget(self, turn: _Turn) -> None:
        waiting = self._unmatched.get((turn.process, turn.is_coming))
        if waiting is not None and turn in waiting:
            waiting.remove(turn)
            if not waiting:
                del self._unmatched[turn.process, turn.is_coming]

    def _decide(self, pending: _Pending) -> None:
        one = pending.rebalance
        for turn in pending.turns:
            if not turn.is_matched:
                self._forget(turn)  # its time is over
        if pending.turns:
            saved = one.is_one and all(turn.is_matched for turn in pending.turns)
        else:  # the second round of a cooperative hand-over is there because of the first
            saved = self._previous and one.is_cooperative
        self._previous = saved
        if saved:
            self.emit("savings", self._row(one, pending.turns))
        self.decided(one, saved)

    @staticmethod
    def _row(one: Rebalance, turns: list[_Turn]) -> dict[str, object]:
        names = ", ".join(sorted({turn.process for turn in turns})[:5]) or "the round before"
        return {
            "measure": "static membership",
            "at_ms": one.started_ms,
            "what": f"{names}: came back within the session" if turns else f"followed from {names}",
            "rebalances": 1,
            "stood_still_ms": one.stood_still_ms,
            "partition_ms": one.partition_ms,
            "moved": one.moved if one.moved is not None else one.moved_told,
        }
