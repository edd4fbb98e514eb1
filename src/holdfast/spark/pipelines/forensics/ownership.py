"""Who owned which partition from when to when, by the assignments that were stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.spark.pipelines.forensics.facts import Seat, Stored, Where

MOVED: Final = "moved"
EMPTIED: Final = "the group became empty"
DELETED: Final = "the group was deleted"
OPEN: Final = "goes on"

Emit = Callable[[str, dict[str, Any]], None]
"""A row of a table, by the table's name."""


@dataclass(frozen=True, slots=True)
class Change:
    """What became of the group from one stored form to the next."""

    stored: Stored
    is_first: bool
    """Nothing is known of what was before."""
    was_empty: bool
    came: tuple[Seat, ...]
    went: tuple[Seat, ...]
    replaced: tuple[tuple[Seat, Seat], ...]
    """The same instance id under another member id: before, after."""
    partitions: int
    moved: int
    """Partitions whose owner is another than their last one, who may have been gone for a while."""
    halted: int
    """Partitions that have not the owner that they had until now; more than `moved` where they are handed over."""
    generation_before: int | None


@dataclass(slots=True)
class _Held:
    seat: Seat
    since_ms: int
    generation: int


@dataclass(slots=True)
class Ownership:
    emit: Emit
    seats: dict[str, Seat] = field(default_factory=dict)
    """By label, of the last stored form."""
    _held: dict[Where, dict[str, _Held]] = field(default_factory=dict)
    _last: dict[Where, frozenset[str]] = field(default_factory=dict)
    _generation: int | None = None
    _twice: dict[Where, tuple[frozenset[str], int]] = field(default_factory=dict)

    def owners(self, where: Where) -> dict[str, int]:
        """Who has it now, and since when."""
        return {label: held.since_ms for label, held in self._held.get(where, {}).items()}

    def held_by(self, label: str) -> list[Where]:
        return [where for where, held in self._held.items() if label in held]

    def on_stored(self, stored: Stored) -> Change:
        after: dict[Where, dict[str, Seat]] = {}
        for seat in stored.seats:
            for where in seat.partitions:
                after.setdefault(where, {})[seat.label] = seat
        moved, halted = self._hand_over(after, stored)
        seats = {seat.label: seat for seat in stored.seats}
        before, self.seats = self.seats, seats
        is_first, was, self._generation = self._generation is None, self._generation, stored.generation
        return Change(
            stored,
            is_first,
            was_empty=not before and not is_first,
            came=tuple(seat for label, seat in seats.items() if label not in before),
            went=tuple(seat for label, seat in before.items() if label not in seats),
            replaced=tuple(
                (before[label], seat)
                for label, seat in seats.items()
                if label in before and before[label].member_id != seat.member_id
            ),
            partitions=len(after),
            moved=moved,
            halted=halted,
            generation_before=was,
        )

    def _hand_over(self, after: dict[Where, dict[str, Seat]], stored: Stored) -> tuple[int, int]:
        moved = halted = 0
        for where in [where for where in self._held if where not in after]:
            self._close(where, [*self._held[where]], stored.at_ms, MOVED if stored.seats else EMPTIED)
            halted += 1
        for where, owners in after.items():
            held = self._held.setdefault(where, {})
            labels = frozenset(owners)
            if held.keys() != labels:
                halted += 1
                self._close(where, [label for label in held if label not in labels], stored.at_ms, MOVED)
                held = self._held.setdefault(where, {})
                for label in labels - held.keys():
                    held[label] = _Held(owners[label], stored.at_ms, stored.generation)
            moved += where in self._last and not labels <= self._last[where]
            self._last[where] = labels
            self._note_twice(where, labels, stored.at_ms)
        return moved, halted

    def on_gone(self, label: str, at_ms: int, how: str) -> list[Where]:
        """A member is gone, as the ledger tells before the group is stored anew. What it had is nobody's."""
        lost = self.held_by(label)
        for where in lost:
            self._close(where, [label], at_ms, how)
            self._note_twice(where, frozenset(self._held.get(where, {})), at_ms)
        return lost

    def on_deleted(self, at_ms: int) -> None:
        for where in [*self._held]:
            self._close(where, [*self._held[where]], at_ms, DELETED)
            self._note_twice(where, frozenset(), at_ms)
        self.seats = {}

    def finish(self) -> None:
        for where in [*self._held]:
            self._close(where, [*self._held[where]], None, OPEN)
            self._note_twice(where, frozenset(), None)

    def _close(self, where: Where, labels: list[str], at_ms: int | None, how: str) -> None:
        held = self._held[where]
        for label in labels:
            one = held.pop(label)
            self.emit(
                "ownership",
                {
                    "topic": where[0],
                    "partition": where[1],
                    "member": label,
                    "member_id": one.seat.member_id,
                    "instance_id": one.seat.instance_id,
                    "client_id": one.seat.client_id,
                    "client_host": one.seat.client_host,
                    "from_ms": one.since_ms,
                    "to_ms": at_ms,
                    "generation": one.generation,
                    "ended_by": how,
                },
            )
        if not held:
            del self._held[where]

    # -- assigned to two ----------------------------------------------------------------------------------------------

    def _note_twice(self, where: Where, labels: frozenset[str], at_ms: int | None) -> None:
        known = self._twice.get(where)
        if known is not None and known[0] != labels:
            del self._twice[where]
            for row in _pairs(where, known[0], known[1], at_ms):
                self.emit("two_owners", row)
        if len(labels) > 1 and (known is None or known[0] != labels):
            assert at_ms is not None
            self._twice[where] = (labels, at_ms)


def _pairs(where: Where, labels: frozenset[str], from_ms: int, to_ms: int | None) -> Iterator[dict[str, Any]]:
    ordered = sorted(labels)
    for other in ordered[1:]:
        yield {
            "topic": where[0],
            "partition": where[1],
            "member": ordered[0],
            "other": other,
            "from_ms": from_ms,
            "to_ms": to_ms,
            "evidence": "assigned to both in one generation",
        }
