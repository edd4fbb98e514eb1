"""The owners of partitions over time, from the stored assignments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.spark.pipelines.forensics.records import MemberRef, StoredGroup
from holdfast.types import TopicPartition

MOVED: Final = "moved"
EMPTIED: Final = "the group became empty"
DELETED: Final = "the group was deleted"
STILL_OWNED: Final = "goes on"

Emit = Callable[[str, dict[str, Any]], None]
"""A row of a table, by the table's name."""


@dataclass(frozen=True, slots=True)
class GroupChange:
    """The difference between two group records."""

    stored: StoredGroup
    is_first: bool
    """There is no earlier group record."""
    was_empty: bool
    joined: tuple[MemberRef, ...]
    departed: tuple[MemberRef, ...]
    replaced: tuple[tuple[MemberRef, MemberRef], ...]
    """The same instance id with another member id: before, after."""
    partitions: int
    moved: int
    """Partitions whose owner differs from their last one, which may have left earlier."""
    halted: int
    """Partitions that lose their current owner; more than `moved` while they are revoked before they move."""
    generation_before: int | None


@dataclass(slots=True)
class _Owned:
    member: MemberRef
    since_ms: int
    generation: int


@dataclass(slots=True)
class Ownership:
    emit: Emit
    members: dict[str, MemberRef] = field(default_factory=dict)
    """By label, from the last group record."""
    _owners: dict[TopicPartition, dict[str, _Owned]] = field(default_factory=dict)
    _last_owners: dict[TopicPartition, frozenset[str]] = field(default_factory=dict)
    _generation: int | None = None
    _double_owned: dict[TopicPartition, tuple[frozenset[str], int]] = field(default_factory=dict)

    def owners(self, where: TopicPartition) -> dict[str, int]:
        """The current owners, and since when."""
        return {label: held.since_ms for label, held in self._owners.get(where, {}).items()}

    def owned_by(self, label: str) -> list[TopicPartition]:
        return [where for where, held in self._owners.items() if label in held]

    def on_stored(self, stored: StoredGroup) -> GroupChange:
        after: dict[TopicPartition, dict[str, MemberRef]] = {}
        for member in stored.members:
            for where in member.partitions:
                after.setdefault(where, {})[member.label] = member
        moved, halted = self._apply_assignment(after, stored)
        members = {member.label: member for member in stored.members}
        before, self.members = self.members, members
        is_first, was, self._generation = self._generation is None, self._generation, stored.generation
        return GroupChange(
            stored,
            is_first,
            was_empty=not before and not is_first,
            joined=tuple(member for label, member in members.items() if label not in before),
            departed=tuple(member for label, member in before.items() if label not in members),
            replaced=tuple(
                (before[label], member)
                for label, member in members.items()
                if label in before and before[label].member_id != member.member_id
            ),
            partitions=len(after),
            moved=moved,
            halted=halted,
            generation_before=was,
        )

    def _apply_assignment(
        self, after: dict[TopicPartition, dict[str, MemberRef]], stored: StoredGroup
    ) -> tuple[int, int]:
        moved = halted = 0
        for where in [where for where in self._owners if where not in after]:
            self._close(where, [*self._owners[where]], stored.at_ms, MOVED if stored.members else EMPTIED)
            halted += 1
        for where, owners in after.items():
            held = self._owners.setdefault(where, {})
            labels = frozenset(owners)
            if held.keys() != labels:
                halted += 1
                self._close(where, [label for label in held if label not in labels], stored.at_ms, MOVED)
                held = self._owners.setdefault(where, {})
                for label in labels - held.keys():
                    held[label] = _Owned(owners[label], stored.at_ms, stored.generation)
            moved += where in self._last_owners and not labels <= self._last_owners[where]
            self._last_owners[where] = labels
            self._track_double_owned(where, labels, stored.at_ms)
        return moved, halted

    def on_gone(self, label: str, at_ms: int, how: str) -> list[TopicPartition]:
        """The ledger says that a member left, before the next group record. Its partitions have no owner."""
        lost = self.owned_by(label)
        for where in lost:
            self._close(where, [label], at_ms, how)
            self._track_double_owned(where, frozenset(self._owners.get(where, {})), at_ms)
        return lost

    def on_deleted(self, at_ms: int) -> None:
        for where in [*self._owners]:
            self._close(where, [*self._owners[where]], at_ms, DELETED)
            self._track_double_owned(where, frozenset(), at_ms)
        self.members = {}

    def finish(self) -> None:
        for where in [*self._owners]:
            self._close(where, [*self._owners[where]], None, STILL_OWNED)
            self._track_double_owned(where, frozenset(), None)

    def _close(self, where: TopicPartition, labels: list[str], at_ms: int | None, how: str) -> None:
        held = self._owners[where]
        for label in labels:
            one = held.pop(label)
            self.emit(
                "ownership",
                {
                    "topic": where[0],
                    "partition": where[1],
                    "member": label,
                    "member_id": one.member.member_id,
                    "instance_id": one.member.instance_id,
                    "client_id": one.member.client_id,
                    "client_host": one.member.client_host,
                    "from_ms": one.since_ms,
                    "to_ms": at_ms,
                    "generation": one.generation,
                    "ended_by": how,
                },
            )
        if not held:
            del self._owners[where]

    # -- double ownership ----------------------------------------------------------------------------------------------

    def _track_double_owned(self, where: TopicPartition, labels: frozenset[str], at_ms: int | None) -> None:
        known = self._double_owned.get(where)
        if known is not None and known[0] != labels:
            del self._double_owned[where]
            for row in _pairs(where, known[0], known[1], at_ms):
                self.emit("two_owners", row)
        if len(labels) > 1 and (known is None or known[0] != labels):
            assert at_ms is not None
            self._double_owned[where] = (labels, at_ms)


def _pairs(where: TopicPartition, labels: frozenset[str], from_ms: int, to_ms: int | None) -> Iterator[dict[str, Any]]:
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
