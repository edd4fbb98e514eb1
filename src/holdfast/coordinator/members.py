"""Who is in a group right now: members, their instance ids, what they support, and whose request is parked.

The counters (votes for protocols, parked joins) are kept exact by every change, so that no join looks at the whole
group. All of this is volatile: after a restart it is built from what is stored.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from holdfast.coordinator.timers import Timer

if TYPE_CHECKING:
    from holdfast.coordinator.presence import Presence


@dataclass(frozen=True, slots=True)
class Protocol:
    """An assignment strategy that a member offers, with its subscription in that strategy's format."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Client:
    """Who sends a request."""

    client_id: str
    host: str
    presence: Presence | None = field(default=None, compare=False, repr=False)
    """The connection over which it was sent, where that is known."""
    software: str = field(default="", compare=False, repr=False)
    """As the client named it in ApiVersions; empty if it did not."""


@dataclass(frozen=True, slots=True)
class Parked:
    """A request whose answer waits. The ticket is the caller's own; it comes back with the answer."""

    ticket: object
    api_version: int
    has_tags: bool = False
    """It was asked in Holdfast's own tagged fields, so it may be answered in them."""


class Call(Enum):
    """Where a member is that was called to join again within its generation (see `calls`)."""

    NOT = "not called"
    CALLED = "its next heartbeat tells it to join"
    JOINED = "it has joined; its SyncGroup brings the new share"


@dataclass(slots=True, eq=False)
class Member:
    id: str
    instance_id: str | None
    client: Client
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    appeared_ms: int = 0
    """When its process first joined, or took its seat; 0 if that was before this broker started."""
    is_new: bool = False
    """Added in this rebalance: its first join may wait for longer than a session."""
    was_absent: bool = False
    """A static member that did not take part in the last join phase."""
    parked_join: Parked | None = None
    parked_sync: Parked | None = None
    session: Timer | None = field(default=None, repr=False)
    is_loaded: bool = False
    """As the journal knows it: of its protocols only the one that was chosen. Its next join brings the others."""
    waits: bool = False
    """It has a seat and no share (see `seats`)."""
    had_seat: bool = False
    """It waited, and takes part in the rebalance that is under way."""
    told_to_join: bool = False
    """It has a seat or had one, and its last heartbeat was answered REBALANCE_IN_PROGRESS."""
    in_generation: bool = False
    """It was in a generation with a share of its own, which may be empty."""
    call: Call = Call.NOT
    call_timer: Timer | None = field(default=None, repr=False)
    number: int = 0
    """Who came later has a higher one."""
    presence: Presence | None = field(default=None, repr=False)
    """The connection over which it was last heard of."""
    is_away: bool = False
    """That connection is closed, and it has not been heard of since."""
    takeover_timer: Timer | None = field(default=None, repr=False)
    patience: Timer | None = field(default=None, repr=False)
    """Ends before the client's own patience with a parked join does."""

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    def metadata_for(self, protocol_name: str | None) -> bytes:
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        return b""


class Roster:
    """The members of one group.

    Who iterates sees those who have a share or are to have one; those who only wait have a list of their own. Looked up
    by an id, everybody is found; and everybody has a vote, because whoever waits may have to take another's place.
    """

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self.waiting: dict[str, Member] = {}
        """Those who have a seat and no share, by member id."""
        self._numbers = itertools.count(1)
        self._instances: dict[str, str] = {}
        self._votes: Counter[str] = Counter()
        """How many members offer a protocol."""
        self._parked_joins = 0
        self.pending: dict[str, Timer] = {}
        """Ids that were handed out (KIP-394) and whose owners have not joined with them yet."""
        self.awaiting_sync: set[str] = set()
        """Members that have not sent SyncGroup in this generation."""

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    @property
    def everybody(self) -> Iterable[Member]:
        return itertools.chain(self._members.values(), self.waiting.values())

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id) or self.waiting.get(member_id)

    def holder_of(self, instance_id: str | None) -> Member | None:
        """The member that sits on this instance id."""
        if instance_id is None:
            return None
        member_id = self._instances.get(instance_id)
        return None if member_id is None else self.get(member_id)

    # -- changing ------------------------------------------------------------------------------------------------------

    def add(self, member: Member) -> None:
        assert self.get(member.id) is None
        assert member.instance_id is None or member.instance_id not in self._instances
        member.number = next(self._numbers)
        self._of(member)[member.id] = member
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.id
        self._votes.update(protocol.name for protocol in member.protocols)
        self._parked_joins += member.parked_join is not None

    def _of(self, member: Member) -> dict[str, Member]:
        return self.waiting if member.waits else self._members

    def seat(self, member: Member) -> None:
        """From now on it only waits."""
        assert not member.waits and member.parked_join is None
        del self._members[member.id]
        member.waits = True
        self.waiting[member.id] = member
        self.awaiting_sync.discard(member.id)

    def promote(self, member: Member) -> None:
        """From now on it takes part."""
        del self.waiting[member.id]
        member.waits = False
        member.had_seat = True
        member.told_to_join = False
        self._members[member.id] = member

    def remove(self, member: Member) -> None:
        del self._of(member)[member.id]
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        self._unvote(member.protocols)
        self._parked_joins -= member.parked_join is not None
        self.awaiting_sync.discard(member.id)

    def rename(self, member: Member, new_id: str) -> None:
        """KIP-345: a restarted static member takes its own seat under a new member id."""
        members = self._of(member)
        del members[member.id]
        members[new_id] = member
        if member.instance_id is not None:
            self._instances[member.instance_id] = new_id
        if member.id in self.awaiting_sync:
            self.awaiting_sync.discard(member.id)
            self.awaiting_sync.add(new_id)
        member.id = new_id

    def set_protocols(self, member: Member, protocols: tuple[Protocol, ...]) -> None:
        self._unvote(member.protocols)
        member.protocols = protocols
        member.is_loaded = False
        self._votes.update(protocol.name for protocol in protocols)

    def _unvote(self, protocols: Iterable[Protocol]) -> None:
        for protocol in protocols:
            self._votes[protocol.name] -= 1
            if not self._votes[protocol.name]:
                del self._votes[protocol.name]

    def park_join(self, member: Member, parked: Parked | None) -> Parked | None:
        """Parks a join, or with None takes the parked one out; returns the one that was parked before."""
        before = member.parked_join
        if member.patience is not None:
            member.patience.cancel()
            member.patience = None
        self._parked_joins += (parked is not None) - (before is not None)
        member.parked_join = parked
        return before

    # -- counting ------------------------------------------------------------------------------------------------------

    @property
    def parked_joins(self) -> int:
        return self._parked_joins

    @property
    def seats_taken(self) -> int:
        """Parked joins, the seats of static members that are away, and those who wait."""
        if len(self._instances) == 0:
            return self._parked_joins + len(self.waiting)
        away = sum(member.parked_join is None for member in self._members.values() if member.is_static)
        return self._parked_joins + away + len(self.waiting)

    @property
    def static_members(self) -> int:
        return len(self._instances)

    @property
    def all_joined(self) -> bool:
        """Nobody is waited for: every member's join is parked, and every id that was handed out has been used."""
        return self._parked_joins == len(self._members) and not self.pending

    def can_agree_on(self, names: Iterable[str]) -> bool:
        """Whether every member offers one of these protocols."""
        count = len(self._members) + len(self.waiting)
        return any(self._votes[name] == count for name in names)

    def elect_protocol(self) -> str | None:
        """Each member votes for the first of its protocols that all offer; the most votes win, ties by name."""
        count = len(self._members) + len(self.waiting)
        candidates = {name for name, votes in self._votes.items() if votes == count}
        ballot = Counter(
            next(protocol.name for protocol in member.protocols if protocol.name in candidates)
            for member in self.everybody
            if candidates
        )
        return min(ballot, key=lambda name: (-ballot[name], name), default=None)

    def would_elect(self, member: Member, protocols: tuple[Protocol, ...]) -> str | None:
        """The protocol that would be elected if this member offered these."""
        present, was_loaded = member.protocols, member.is_loaded
        self.set_protocols(member, protocols)
        try:
            return self.elect_protocol()
        finally:
            self.set_protocols(member, present)
            member.is_loaded = was_loaded

    def longest_rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self._members.values()), default=0)


def deduplicated(protocols: Sequence[tuple[str, bytes]]) -> tuple[Protocol, ...]:
    """A client's list of protocols, each name once: the first of a name counts, and the order is the vote."""
    seen: dict[str, bytes] = {}
    for name, metadata in protocols:
        seen.setdefault(name, metadata)
    return tuple(Protocol(name, metadata) for name, metadata in seen.items())
