"""What a member asks its coordinator, and which of its questions have no answer yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from holdfast.membership.phases import Phase
from holdfast.membership.seat import Seat
from holdfast.wire.apis.find_coordinator import FIND_COORDINATOR
from holdfast.wire.apis.heartbeat import HEARTBEAT
from holdfast.wire.apis.join_group import JOIN_GROUP
from holdfast.wire.apis.leave_group import LEAVE_GROUP
from holdfast.wire.apis.offset_commit import OFFSET_COMMIT
from holdfast.wire.apis.sync_group import SYNC_GROUP
from holdfast.wire.message import Api


class Question(Enum):
    """The kinds of requests; at most one of each is outstanding."""

    COORDINATOR = "who coordinates the group", FIND_COORDINATOR
    JOIN = "let me in", JOIN_GROUP
    SYNC = "what is mine", SYNC_GROUP
    RESYNC = "take more, all of you", SYNC_GROUP
    HEARTBEAT = "am I still in", HEARTBEAT
    COMMIT = "keep these offsets", OFFSET_COMMIT
    LEAVE = "goodbye", LEAVE_GROUP

    def __init__(self, _words: str, api: Api) -> None:
        self.api = api


@dataclass(frozen=True, slots=True)
class Ticket:
    number: int
    question: Question
    seat: Seat
    """The seat with which it was asked."""
    phase: Phase
    """The phase in which it was asked."""


@dataclass(slots=True)
class Outstanding:
    _tickets: dict[Question, Ticket] = field(default_factory=dict)
    _numbers: int = 0

    def __contains__(self, question: Question) -> bool:
        return question in self._tickets

    def ask(self, question: Question, seat: Seat, phase: Phase) -> Ticket:
        assert question not in self._tickets, question
        self._numbers += 1
        ticket = self._tickets[question] = Ticket(self._numbers, question, seat, phase)
        return ticket

    def forget(self, question: Question) -> None:
        """Nobody waits for its answer any more."""
        self._tickets.pop(question, None)

    def take(self, number: int) -> Ticket | None:
        """The ticket, unless nobody waits for its answer any more."""
        for question, ticket in self._tickets.items():
            if ticket.number == number:
                return self._tickets.pop(question)
        return None
