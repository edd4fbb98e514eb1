"""Rebalances: from the first member that was called to the moment in which all had their assignments.

Where the ledger tells of a group, it says when and why. Elsewhere (Apache Kafka; what is older than the ledger) a
rebalance is seen by its result alone: a new generation. Then its cause is what differs between the two, and how long
the group stood still is known from the end of the join phase on only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.coordinator.ledger import EventKind
from holdfast.spark.pipelines.forensics import causes
from holdfast.spark.pipelines.forensics.facts import Event, Seat, process_of
from holdfast.spark.pipelines.forensics.ownership import Change

ASSIGNED: Final = "assigned"
AGAIN: Final = "began again"
EMPTY: Final = "became empty"
DELETED: Final = "the group was deleted"
UNDER_WAY: Final = "under way at the end"

HOW: Final = {
    EventKind.MEMBER_LEFT: "left",
    EventKind.SESSION_EXPIRED: "expired",
    EventKind.DROPPED: "dropped",
}

_NEW: Final = (EventKind.GENERATION_FORMED, EventKind.ASSIGNED, EventKind.BECAME_EMPTY)
"""Events that begin a generation."""


@dataclass(frozen=True, slots=True)
class Coming:
    """A member that was not there before."""

    at_ms: int
    label: str
    process: str
    session_ms: int | None


@dataclass(frozen=True, slots=True)
class Going:
    at_ms: int
    label: str
    process: str
    is_static: bool
    how: str
    """`left`, `expired`, `dropped`; or `gone`, where only its absence was seen."""
    session_ms: int | None


@dataclass(slots=True)
class Rebalance:
    started_ms: int
    source: str
    cause: str
    from_empty: bool
    member: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    reason: str | None = None
    outcome: str = UNDER_WAY
    ended_ms: int | None = None
    generation: int | None = None
    is_lower_bound: bool = False
    """Of the time that it stood still."""
    protocol: str | None = None
    members: int | None = None
    partitions: int | None = None
    halted: int | None = None
    moved: int | None = None
    moved_told: int | None = None
    came: list[Coming] = field(default_factory=list)
    went: list[Going] = field(default_factory=list)

    @property
    def is_one(self) -> bool:
        """A group that nobody is left in has not been rebalanced."""
        return self.outcome not in (EMPTY, DELETED)

    @property
    def stood_still_ms(self) -> int | None:
        return None if self.ended_ms is None else max(0, self.ended_ms - self.started_ms)

    @property
    def is_cooperative(self) -> bool:
        return self.protocol is not None and "cooperative" in self.protocol

    @property
    def partition_ms(self) -> int | None:
        """Partitions times milliseconds. Cooperative members go on with what they keep."""
        stood, waiting = self.stood_still_ms, self.halted if self.is_cooperative else self.partitions
        return None if stood is None or waiting is None else stood * waiting

    def row(self) -> dict[str, Any]:
        return {
            "started_ms": self.started_ms,
            "ended_ms": self.ended_ms,
            "outcome": self.outcome,
            "generation": self.generation,
            "cause": self.cause,
            "kind": causes.kind_of(self.cause),
            "member": self.member,
            "client_id": self.client_id,
            "client_host": self.client_host,
            "reason": self.reason,
            "from_empty": self.from_empty,
            "source": self.source,
            "protocol": self.protocol,
            "members": self.members,
            "came": len(self.came),
            "went": len(self.went),
            "stood_still_ms": self.stood_still_ms,
            "is_lower_bound": self.is_lower_bound,
            "partitions": self.partitions,
            "partition_ms": self.partition_ms,
            "moved": self.moved if self.moved is not None else self.moved_told,
            "moved_told": self.moved_told,
        }


@dataclass(slots=True)
class Rebalances:
    """`done` gets each one, in their order, when nothing more can be said about it."""

    done: Callable[[Rebalance], None]
    is_told: bool = False
    """Whether the ledger has told of the group."""
    unseen: int = 0
    """Generations that must have been, and that nothing tells of."""
    _open: Rebalance | None = None
    _ended: deque[Rebalance] = field(default_factory=deque)
    _gone: list[Going] = field(default_factory=list)
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
        """As far as is known."""
        return self._is_empty

    def settle(self, now_ms: int) -> None:
        """What ended before this millisecond has been told in full."""
        while self._ended and (self._ended[0].ended_ms or 0) < now_ms:
            self.done(self._ended.popleft())

    def finish(self) -> None:
        if self._open is not None:
            self._ended.append(self._open)
            self._open = None
        while self._ended:
            self.done(self._ended.popleft())

    # -- as the ledger tells -------------------------------------------------------------------------------------------

    def on_event(self, event: Event, session_ms: int | None) -> None:
        """`session_ms` is that of the member behind it, where it is known."""
        self.is_told = True
        if event.kind == EventKind.REBALANCE_STARTED:
            self._started(event, session_ms)
        elif event.kind == EventKind.ASSIGNED:
            self._assigned(event)
        elif event.kind == EventKind.BECAME_EMPTY:
            self._end(EMPTY, event.at_ms, event.generation)
            self._is_empty = True
        elif event.kind == EventKind.DELETED:
            self._end(DELETED, event.at_ms, event.generation)
            self._is_empty = True
        elif event.kind in HOW:
            self._went(event, session_ms)
        self._note(event.generation, is_new=event.kind in _NEW)

    def _note(self, generation: int, *, is_new: bool) -> None:
        """`is_new`: this is the first that is told of it."""
        known = self._generation
        if known is not None and generation > known:
            self.unseen += generation - known - is_new
        self._generation = generation if known is None else max(known, generation)

    def _started(self, event: Event, session_ms: int | None) -> None:
        self._end(AGAIN, event.at_ms, None)
        first = self._is_empty or (self._generation is None and event.generation == 0)
        one = self._open = Rebalance(event.at_ms, "ledger", event.cause, first, _label(event))
        one.client_id, one.client_host = event.text("client_id"), event.text("client_host")
        one.reason = event.text("reason")
        # A member that only waited goes without a rebalance; what it left behind is of no concern to this one.
        one.went = [going for going in self._gone if going.at_ms == event.at_ms]
        self._gone.clear()
        if event.cause == causes.A_MEMBER_JOINED:
            one.came = [_coming(event, session_ms)]
        self._is_empty = False

    def _assigned(self, event: Event) -> None:
        if self._open is None:  # the ledger begins after it did
            stood_ms = event.number("stood_still_ms") or 0
            self._open = Rebalance(event.at_ms - stood_ms, "ledger", causes.UNKNOWN, False)
        one = self._open
        one.moved_told = event.number("moved_partitions")
        one.members = event.number("members")
        one.protocol = event.cause.removeprefix("protocol ")
        self._end(ASSIGNED, event.at_ms, event.generation)
        self._is_empty = False

    def _went(self, event: Event, session_ms: int | None) -> None:
        going = going_of(event, session_ms)
        if self._open is not None:
            self._open.went.append(going)
        else:
            self._gone.append(going)

    def _end(self, outcome: str, at_ms: int, generation: int | None) -> None:
        one, self._open = self._open, None
        if one is not None:
            one.outcome, one.ended_ms, one.generation = outcome, at_ms, generation
            self._ended.append(one)

    # -- as it is stored -----------------------------------------------------------------------------------------------

    def on_change(self, change: Change) -> None:
        stored = change.stored
        if not self.is_told:
            self._seen(change)
            self._note(stored.generation, is_new=True)
            self._is_empty = not stored.seats
            return
        if stored.generation == change.generation_before:
            return  # a change within a generation comes after its rebalance, and is none of it
        # What is stored as the next one begins may be told of after that began.
        ended = next((one for one in self._ended if one.generation == stored.generation), None)
        one = ended or self._open
        if one is not None and one.outcome in (UNDER_WAY, ASSIGNED):
            self._detail(one, change)

    @staticmethod
    def _detail(one: Rebalance, change: Change) -> None:
        """What only the assignments say."""
        one.protocol = change.stored.protocol
        if change.stored.is_read:
            one.partitions, one.moved, one.halted = change.partitions, change.moved, change.halted
        if not change.is_first or one.from_empty:
            one.came = [_came(seat, one.started_ms) for seat in change.came]

    def _seen(self, change: Change) -> None:
        stored = change.stored
        if stored.generation == change.generation_before or (change.is_first and not stored.seats):
            return
        ended_ms = stored.at_ms
        started_ms = stored.state_ms if 0 < stored.state_ms <= ended_ms and stored.seats else ended_ms
        from_empty = change.was_empty or (change.is_first and stored.generation <= 1)
        one = Rebalance(started_ms, "offsets", _seen_cause(change), from_empty, is_lower_bound=True)
        one.outcome, one.ended_ms, one.generation = ASSIGNED if stored.seats else EMPTY, ended_ms, stored.generation
        one.members, one.protocol = len(stored.seats), stored.protocol
        if stored.is_read:
            one.partitions, one.moved, one.halted = change.partitions, change.moved, change.halted
        if not change.is_first or from_empty:
            one.came = [_came(seat, ended_ms) for seat in change.came]
            one.went = [_seen_going(seat, ended_ms) for seat in change.went]
        self._ended.append(one)


def _seen_cause(change: Change) -> str:
    if not change.stored.seats:
        return causes.EMPTIED
    if change.is_first and change.stored.generation > 1:
        return causes.FIRST_SEEN
    if change.came and change.went:
        return causes.CAME_AND_WENT
    if change.came:
        return causes.CAME
    return causes.WENT if change.went else causes.SAME


def _label(event: Event) -> str | None:
    return event.text("instance_id") or event.text("member_id")


def going_of(event: Event, session_ms: int | None) -> Going:
    """The event is one of `HOW`."""
    instance_id = event.text("instance_id")
    process = process_of(instance_id, event.text("client_id"), event.text("client_host"))
    return Going(
        event.at_ms, _label(event) or "?", process, instance_id is not None, HOW[EventKind(event.kind)], session_ms
    )


def _coming(event: Event, session_ms: int | None) -> Coming:
    process = process_of(event.text("instance_id"), event.text("client_id"), event.text("client_host"))
    return Coming(event.at_ms, _label(event) or "?", process, session_ms)


def _came(seat: Seat, at_ms: int) -> Coming:
    return Coming(at_ms, seat.label, seat.process, seat.session_ms)


def _seen_going(seat: Seat, at_ms: int) -> Going:
    return Going(at_ms, seat.label, seat.process, seat.instance_id is not None, "gone", seat.session_ms)
