"""The answers to one JoinGroups request, which all go out together.

An entry may have its answer long before the last one has: a seat is given at once, a rebalance that another entry began
takes as long as its slowest member. Until then nobody has heard of any of them. So

- whoever has such an answer is not expected to do anything: its session does not end, unless its connection does;
- if a rebalance begins, its join counts as parked again. The join phase would otherwise wait for a member that waits
  for the join phase (`recall`);
- what it is told in the end is what is true in the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from holdfast.coordinator.members import Member, Parked
from holdfast.wire.apis.join_group import JoinGroupResponse
from holdfast.wire.apis.join_groups import AS_JOIN_GROUP_VERSION
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.coordinator.group import Group


class Slot:
    """The ticket of one entry, with its answer until that goes out."""

    __slots__ = ("answer", "batch", "ticket")

    def __init__(self, ticket: object, batch: Batch) -> None:
        self.ticket = ticket
        self.batch = batch
        self.answer: JoinGroupResponse | None = None

    def fill(self, answer: JoinGroupResponse) -> None:
        assert self.answer is None
        self.answer = answer
        self.batch.unanswered -= 1
        if answer.error_code == ErrorCode.NONE:
            self.batch.unheard[answer.member_id] += 1

    def clear(self) -> None:
        assert self.answer is not None
        if self.answer.error_code == ErrorCode.NONE:
            self.batch.unheard[self.answer.member_id] -= 1
        self.answer = None
        self.batch.unanswered += 1


class Batch:
    __slots__ = ("group", "slots", "unanswered", "unheard")

    def __init__(self, tickets: Sequence[object]) -> None:
        self.group: Group | None = None
        """None while all entries were refused before anybody asked for the group."""
        self.slots = [Slot(ticket, self) for ticket in tickets]
        self.unanswered = len(self.slots)
        self.unheard: Counter[str] = Counter()
        """How many good answers each member id has here: asked for every session that ends, of thousands at once."""

    def joined(self) -> Iterator[tuple[Member, Slot]]:
        """Members that have a good answer and have not heard it."""
        for slot in self.slots:
            if self.group is not None and slot.answer is not None and slot.answer.error_code == ErrorCode.NONE:
                member = self.group.roster.get(slot.answer.member_id)
                if member is not None:
                    yield member, slot


def has_unheard_answer(group: Group, member: Member) -> bool:
    return any(batch.unheard[member.id] for batch in group.batches)


def recall(group: Group) -> None:
    """A rebalance begins: whoever takes part in it and has not heard yet that it joined has not joined yet."""
    for batch in group.batches:
        for member, slot in batch.joined():
            if not member.waits and member.parked_join is None:
                slot.clear()
                group.roster.park_join(member, Parked(slot, AS_JOIN_GROUP_VERSION))
