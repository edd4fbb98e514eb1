"""Rebalances that static membership would have avoided: dynamic members that rejoined within their session.

A member left, and one with the same client id and host joined within the session timeout: before the departure, if the
process was killed and its session had not expired yet, or after it, if the member left. With an instance id neither
would have caused a rebalance. A rebalance counts if *all* joins and departures in it are such restarts. The second
rebalance of a cooperative group counts with the first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.spark.pipelines.forensics.ownership import Emit
from holdfast.spark.pipelines.forensics.rebalances import Arrival, Departure, Rebalance
from holdfast.spark.pipelines.forensics.thresholds import ForensicsThresholds


@dataclass(slots=True, eq=False)
class _Movement:
    """A join or a departure, and whether it has been matched with its counterpart."""

    process: str
    label: str
    at_ms: int
    earliest_ms: int
    """The time range of its counterpart."""
    latest_ms: int
    is_join: bool
    is_matched: bool = False

    def fits(self, other: _Movement) -> bool:
        """Within the time ranges of each other, and not of the same member: a static member that rejoins late is."""
        in_time = (
            self.earliest_ms <= other.at_ms <= self.latest_ms and other.earliest_ms <= self.at_ms <= other.latest_ms
        )
        return in_time and self.label != other.label


@dataclass(slots=True)
class _Pending:
    rebalance: Rebalance
    movements: list[_Movement]
    decided_at_ms: int


@dataclass(slots=True)
class StaticMembershipSavings:
    """`decided` gets every rebalance, in order, and whether static membership would have avoided it."""

    thresholds: ForensicsThresholds
    emit: Emit
    decided: Callable[[Rebalance, bool], None]
    _unmatched: dict[tuple[str, bool], deque[_Movement]] = field(default_factory=dict)
    """By process, and whether they are joins."""
    _pending: deque[_Pending] = field(default_factory=deque)
    _previous_saved: bool = False

    def on_rebalance(self, one: Rebalance) -> None:
        self.settle(one.started_ms)
        movements = [self._departure(departure) for departure in one.departures] + [
            self._arrival(arrival) for arrival in one.arrivals
        ]
        latest = max((movement.latest_ms for movement in movements), default=one.started_ms)
        self._pending.append(_Pending(one, movements, latest))

    def settle(self, now_ms: int) -> None:
        while self._pending:
            first = self._pending[0]
            if first.decided_at_ms >= now_ms and not all(movement.is_matched for movement in first.movements):
                return
            self._decide(self._pending.popleft())

    def finish(self) -> None:
        while self._pending:
            self._decide(self._pending.popleft())

    def _departure(self, departure: Departure) -> _Movement:
        session_ms = departure.session_ms or self.thresholds.session_ms
        # The earliest time of its last activity; a member that left was active until then. `gone` may be either.
        earliest = departure.at_ms - (session_ms if departure.how != "left" else 0)
        latest = departure.at_ms + (session_ms if departure.how in ("left", "gone") else 0)
        return self._match(
            _Movement(departure.process, departure.label, departure.at_ms, earliest, latest, is_join=False)
        )

    def _arrival(self, arrival: Arrival) -> _Movement:
        session_ms = arrival.session_ms or self.thresholds.session_ms
        earliest, latest = arrival.at_ms - session_ms, arrival.at_ms + session_ms
        return self._match(_Movement(arrival.process, arrival.label, arrival.at_ms, earliest, latest, is_join=True))

    def _match(self, movement: _Movement) -> _Movement:
        others = self._unmatched.get((movement.process, not movement.is_join), ())
        for other in others:
            if movement.fits(other):
                movement.is_matched = other.is_matched = True
                self._remove_unmatched(other)
                return movement
        self._unmatched.setdefault((movement.process, movement.is_join), deque()).append(movement)
        return movement

    def _remove_unmatched(self, movement: _Movement) -> None:
        unmatched = self._unmatched.get((movement.process, movement.is_join))
        if unmatched is not None and movement in unmatched:
            unmatched.remove(movement)
            if not unmatched:
                del self._unmatched[movement.process, movement.is_join]

    def _decide(self, pending: _Pending) -> None:
        one = pending.rebalance
        for movement in pending.movements:
            if not movement.is_matched:
                self._remove_unmatched(movement)  # no counterpart within its time range
        if pending.movements:
            saved = one.is_rebalance and all(movement.is_matched for movement in pending.movements)
        else:  # the second rebalance of a cooperative group follows from the first
            saved = self._previous_saved and one.is_cooperative
        self._previous_saved = saved
        if saved:
            self.emit("savings", self._row(one, pending.movements))
        self.decided(one, saved)

    @staticmethod
    def _row(one: Rebalance, movements: list[_Movement]) -> dict[str, object]:
        names = ", ".join(sorted({movement.process for movement in movements})[:5]) or "the previous rebalance"
        return {
            "measure": "static membership",
            "at_ms": one.started_ms,
            "what": f"{names}: rejoined within the session" if movements else f"followed from {names}",
            "rebalances": 1,
            "unassigned_ms": one.unassigned_ms,
            "partition_ms": one.partition_ms,
            "moved": one.moved if one.moved is not None else one.moved_in_ledger,
        }
