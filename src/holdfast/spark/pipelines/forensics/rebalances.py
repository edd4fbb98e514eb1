"""Rebalances: from the first member that was asked to rejoin until all members had their assignments.

If the ledger has events of a group, it says when and why. Otherwise (Apache Kafka; records older than the ledger) a
rebalance is inferred from its result, a new generation. Then its cause is inferred from the difference in members, and
its duration is known from the end of the join phase only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.coordinator.events.causes import CauseCode
from holdfast.coordinator.events.group_event import EventKind
from holdfast.spark.pipelines.forensics.inferred_causes import InferredCause, counted_code
from holdfast.spark.pipelines.forensics.ownership import GroupChange
from holdfast.spark.pipelines.forensics.records import LedgerEvent, MemberRef, process_of

ASSIGNED: Final = "assigned"
RESTARTED: Final = "began again"
EMPTY: Final = "became empty"
DELETED: Final = "the group was deleted"
UNDER_WAY: Final = "under way at the end"

DEPARTURE_KINDS: Final = {
    EventKind.MEMBER_LEFT: "left",
    EventKind.SESSION_EXPIRED: "expired",
    EventKind.DROPPED: "dropped",
}

_NEW_GENERATION_EVENTS: Final = (EventKind.GENERATION_FORMED, EventKind.ASSIGNED, EventKind.BECAME_EMPTY)
"""Events that start a generation."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A member that joined."""

    at_ms: int
    label: str
    process: str
    session_ms: int | None


@dataclass(frozen=True, slots=True)
class Departure:
    at_ms: int
    label: str
    process: str
    is_static: bool
    how: str
    """`left`, `expired`, `dropped`; or `gone`, if only its absence is known."""
    session_ms: int | None


@dataclass(slots=True)
class Rebalance:
    started_ms: int
    source: str
    cause_code: str
    cause: str
    """The sentence."""
    from_empty: bool
    member: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    reason: str | None = None
    outcome: str = UNDER_WAY
    ended_ms: int | None = None
    generation: int | None = None
    is_lower_bound: bool = False
    """Whether the duration is a lower bound."""
    protocol: str | None = None
    members: int | None = None
    partitions: int | None = None
    halted: int | None = None
    moved: int | None = None
    moved_in_ledger: int | None = None
    arrivals: list[Arrival] = field(default_factory=list)
    departures: list[Departure] = field(default_factory=list)

    @property
    def is_rebalance(self) -> bool:
        """A group without members has not been rebalanced."""
        return self.outcome not in (EMPTY, DELETED)

    @property
    def unassigned_ms(self) -> int | None:
        return None if self.ended_ms is None else max(0, self.ended_ms - self.started_ms)

    @property
    def is_cooperative(self) -> bool:
        return self.protocol is not None and "cooperative" in self.protocol

    @property
    def partition_ms(self) -> int | None:
        """Partitions times milliseconds. Cooperative members keep working on the partitions that they keep."""
        duration_ms, partitions = self.unassigned_ms, self.halted if self.is_cooperative else self.partitions
        return None if duration_ms is None or partitions is None else duration_ms * partitions

    def row(self) -> dict[str, Any]:
        return {
            "started_ms": self.started_ms,
            "ended_ms": self.ended_ms,
            "outcome": self.outcome,
            "generation": self.generation,
            "cause": self.cause,
            "cause_code": self.cause_code,
            "member": self.member,
            "client_id": self.client_id,
            "client_host": self.client_host,
            "reason": self.reason,
            "from_empty": self.from_empty,
            "source": self.source,
            "protocol": self.protocol,
            "members": self.members,
            "came": len(self.arrivals),
            "went": len(self.departures),
            "unassigned_ms": self.unassigned_ms,
            "is_lower_bound": self.is_lower_bound,
            "partitions": self.partitions,
            "partition_ms": self.partition_ms,
            "moved": self.moved if self.moved is not None else self.moved_in_ledger,
            "moved_in_ledger": self.moved_in_ledger,
        }


@dataclass(slots=True)
class Rebalances:
    """`done` gets each rebalance, in order, when all of its records have been processed."""

    done: Callable[[Rebalance], None]
    in_ledger: bool = False
    """Whether the ledger has events of the group."""
    missing_generations: int = 0
    """Generations without any record."""
    _open: Rebalance | None = None
    _ended: deque[Rebalance] = field(default_factory=deque)
    _departures: list[Departure] = field(default_factory=list)
    _generation: int | None = None
    _is_empty: bool = False

    @property
    def is_under_way(self) -> bool:
        return self._open is not None

    @property
    def generation(self) -> int | None:
        return self._generation

    @property
    def is_empty(self) -> bool:
        """According to the records so far."""
        return self._is_empty

    def settle(self, now_ms: int) -> None:
        """All records of rebalances that ended before this millisecond have been processed."""
        while self._ended and (self._ended[0].ended_ms or 0) < now_ms:
            self.done(self._ended.popleft())

    def finish(self) -> None:
        if self._open is not None:
            self._ended.append(self._open)
            self._open = None
        while self._ended:
            self.done(self._ended.popleft())

    # -- from the ledger -----------------------------------------------------------------------------------------------

    def on_event(self, event: LedgerEvent, session_ms: int | None) -> None:
        """`session_ms` is the session timeout of the member, if it is known."""
        self.in_ledger = True
        if event.kind == EventKind.REBALANCE_STARTED:
            self._on_started(event, session_ms)
        elif event.kind == EventKind.ASSIGNED:
            self._on_assigned(event)
        elif event.kind == EventKind.BECAME_EMPTY:
            self._end(EMPTY, event.at_ms, event.generation)
            self._is_empty = True
        elif event.kind == EventKind.DELETED:
            self._end(DELETED, event.at_ms, event.generation)
            self._is_empty = True
        elif event.kind in DEPARTURE_KINDS:
            self._on_departure(event, session_ms)
        self._track_generation(event.generation, is_new=event.kind in _NEW_GENERATION_EVENTS)

    def _track_generation(self, generation: int, *, is_new: bool) -> None:
        """`is_new`: this is the first record of the generation."""
        known = self._generation
        if known is not None and generation > known:
            self.missing_generations += generation - known - is_new
        self._generation = generation if known is None else max(known, generation)

    def _on_started(self, event: LedgerEvent, session_ms: int | None) -> None:
        self._end(RESTARTED, event.at_ms, None)
        first = self._is_empty or (self._generation is None and event.generation == 0)
        code = counted_code(event.text("cause_code"))
        one = self._open = Rebalance(event.at_ms, "ledger", code, event.cause, first, _label(event))
        one.client_id, one.client_host = event.text("client_id"), event.text("client_host")
        one.reason = event.text("reason")
        # A standby leaves without a rebalance; its departure is not part of this one.
        one.departures = [departure for departure in self._departures if departure.at_ms == event.at_ms]
        self._departures.clear()
        if code == CauseCode.MEMBER_JOINED:
            one.arrivals = [_arrival_of_event(event, session_ms)]
        self._is_empty = False

    def _on_assigned(self, event: LedgerEvent) -> None:
        if self._open is None:  # the ledger starts after the rebalance
            duration_ms = event.number("unassigned_ms") or 0
            unknown = InferredCause.UNKNOWN
            self._open = Rebalance(event.at_ms - duration_ms, "ledger", unknown, unknown.sentence, False)
        one = self._open
        one.moved_in_ledger = event.number("moved_partitions")
        one.members = event.number("members")
        one.protocol = event.text("cause_detail")
        self._end(ASSIGNED, event.at_ms, event.generation)
        self._is_empty = False

    def _on_departure(self, event: LedgerEvent, session_ms: int | None) -> None:
        departure = departure_of(event, session_ms)
        if self._open is not None:
            self._open.departures.append(departure)
        else:
            self._departures.append(departure)

    def _end(self, outcome: str, at_ms: int, generation: int | None) -> None:
        one, self._open = self._open, None
        if one is not None:
            one.outcome, one.ended_ms, one.generation = outcome, at_ms, generation
            self._ended.append(one)

    # -- from __consumer_offsets ---------------------------------------------------------------------------------------

    def on_change(self, change: GroupChange) -> None:
        stored = change.stored
        if not self.in_ledger:
            self._infer_rebalance(change)
            self._track_generation(stored.generation, is_new=True)
            self._is_empty = not stored.members
            return
        if stored.generation == change.generation_before:
            return  # a change within a generation is not part of its rebalance
        # A group record may be processed after the event that starts the next rebalance.
        ended = next((one for one in self._ended if one.generation == stored.generation), None)
        one = ended or self._open
        if one is not None and one.outcome in (UNDER_WAY, ASSIGNED):
            self._add_assignment(one, change)

    @staticmethod
    def _add_assignment(one: Rebalance, change: GroupChange) -> None:
        """Adds the details that only the assignments have."""
        one.protocol = change.stored.protocol
        if change.stored.is_decoded:
            one.partitions, one.moved, one.halted = change.partitions, change.moved, change.halted
        if not change.is_first or one.from_empty:
            one.arrivals = [_arrival_of_member(member, one.started_ms) for member in change.joined]

    def _infer_rebalance(self, change: GroupChange) -> None:
        stored = change.stored
        if stored.generation == change.generation_before or (change.is_first and not stored.members):
            return
        ended_ms = stored.at_ms
        started_ms = stored.state_ms if 0 < stored.state_ms <= ended_ms and stored.members else ended_ms
        from_empty = change.was_empty or (change.is_first and stored.generation <= 1)
        cause = _inferred_cause(change)
        one = Rebalance(started_ms, "offsets", cause, cause.sentence, from_empty, is_lower_bound=True)
        one.outcome, one.ended_ms, one.generation = ASSIGNED if stored.members else EMPTY, ended_ms, stored.generation
        one.members, one.protocol = len(stored.members), stored.protocol
        if stored.is_decoded:
            one.partitions, one.moved, one.halted = change.partitions, change.moved, change.halted
        if not change.is_first or from_empty:
            one.arrivals = [_arrival_of_member(member, ended_ms) for member in change.joined]
            one.departures = [_inferred_departure(member, ended_ms) for member in change.departed]
        self._ended.append(one)


def _inferred_cause(change: GroupChange) -> InferredCause:
    if not change.stored.members:
        return InferredCause.GROUP_EMPTIED
    if change.is_first and change.stored.generation > 1:
        return InferredCause.HISTORY_STARTS
    if change.joined and change.departed:
        return InferredCause.MEMBERS_CHANGED
    if change.joined:
        return InferredCause.MEMBERS_ADDED
    return InferredCause.MEMBERS_REMOVED if change.departed else InferredCause.SAME_MEMBERS


def _label(event: LedgerEvent) -> str | None:
    return event.text("instance_id") or event.text("member_id")


def departure_of(event: LedgerEvent, session_ms: int | None) -> Departure:
    """The kind of the event is one of `DEPARTURE_KINDS`."""
    instance_id = event.text("instance_id")
    process = process_of(instance_id, event.text("client_id"), event.text("client_host"))
    return Departure(
        event.at_ms,
        _label(event) or "?",
        process,
        instance_id is not None,
        DEPARTURE_KINDS[EventKind(event.kind)],
        session_ms,
    )


def _arrival_of_event(event: LedgerEvent, session_ms: int | None) -> Arrival:
    process = process_of(event.text("instance_id"), event.text("client_id"), event.text("client_host"))
    return Arrival(event.at_ms, _label(event) or "?", process, session_ms)


def _arrival_of_member(member: MemberRef, at_ms: int) -> Arrival:
    return Arrival(at_ms, member.label, member.process, member.session_ms)


def _inferred_departure(member: MemberRef, at_ms: int) -> Departure:
    return Departure(at_ms, member.label, member.process, member.instance_id is not None, "gone", member.session_ms)
