"""The members of a group: by id and by instance id, what they support, and whose response is awaited.

The counters (votes for protocols, awaited joins) are kept exact by every change, so that no join looks at the whole
group.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator

from holdfast.coordinator.classic.commands import Join
from holdfast.coordinator.classic.member import Member, PendingResponse, Protocol, Role


class Members:
    """The members of one group.

    Iteration and `len` leave the standbys out: they have no assignment and take part in no rebalance. Lookups by id
    find them, and they vote for the protocol, because a standby may have to take over another member's assignment.
    """

    def __init__(self) -> None:
        self.by_id: dict[str, Member] = {}
        """Without the standbys."""
        self.standbys: dict[str, Member] = {}
        """By member id."""
        self._join_orders = itertools.count(1)
        self._instances: dict[str, Member] = {}
        self._votes: Counter[str] = Counter()
        """How many members offer a protocol."""
        self._awaiting_join_count = 0
        self.pending_member_ids: dict[str, None] = {}
        """Ids that were handed out (KIP-394) and that no client has joined with yet, in that order."""
        self.pending_sync_members: set[str] = set()
        """Members that have not sent SyncGroup in this generation."""

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.by_id.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self.by_id

    @property
    def all_members(self) -> Iterable[Member]:
        return itertools.chain(self.by_id.values(), self.standbys.values())

    def get(self, member_id: str) -> Member | None:
        return self.by_id.get(member_id) or self.standbys.get(member_id)

    def static_member(self, instance_id: str | None) -> Member | None:
        return None if instance_id is None else self._instances.get(instance_id)

    # -- changing ------------------------------------------------------------------------------------------------------

    def add(self, member: Member) -> None:
        assert member.id not in self.by_id and member.id not in self.standbys
        member.join_order = next(self._join_orders)
        self._of(member)[member.id] = member
        if member.instance_id is not None:
            assert member.instance_id not in self._instances
            self._instances[member.instance_id] = member
        self._vote(member.protocols)
        self._awaiting_join_count += member.awaiting_join is not None

    def _of(self, member: Member) -> dict[str, Member]:
        return self.standbys if member.role is Role.STANDBY else self.by_id

    def to_standby(self, member: Member) -> None:
        """From now on it has no assignment and takes part in no rebalance."""
        assert member.role is not Role.STANDBY and member.awaiting_join is None
        del self.by_id[member.id]
        member.role = Role.STANDBY
        self.standbys[member.id] = member
        self.pending_sync_members.discard(member.id)

    def promote(self, member: Member) -> None:
        """A standby takes part in the rebalance that is in progress."""
        del self.standbys[member.id]
        member.role = Role.PROMOTED
        member.notified_of_rebalance = False
        self.by_id[member.id] = member

    def remove(self, member: Member) -> None:
        del self._of(member)[member.id]
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        self._unvote(member.protocols)
        self._awaiting_join_count -= member.awaiting_join is not None
        self.pending_sync_members.discard(member.id)

    def rename(self, member: Member, new_id: str) -> None:
        """KIP-345: a restarted static member is the same member under a new id."""
        members = self._of(member)
        del members[member.id]
        members[new_id] = member
        if member.id in self.pending_sync_members:
            self.pending_sync_members.discard(member.id)
            self.pending_sync_members.add(new_id)
        member.id = new_id

    def update(self, member: Member, command: Join) -> None:
        """What a member changes by joining again."""
        self.set_protocols(member, command.protocols)
        member.session_timeout_ms = command.request.session_timeout_ms
        member.rebalance_timeout_ms = command.rebalance_timeout_ms

    def set_protocols(self, member: Member, protocols: tuple[Protocol, ...]) -> None:
        self._unvote(member.protocols)
        member.protocols = protocols
        member.restored_from_log = False
        self._vote(protocols)

    def _vote(self, protocols: Iterable[Protocol]) -> None:
        for protocol in protocols:
            self._votes[protocol.name] += 1

    def _unvote(self, protocols: Iterable[Protocol]) -> None:
        for protocol in protocols:
            self._votes[protocol.name] -= 1
            if not self._votes[protocol.name]:
                del self._votes[protocol.name]

    def set_awaiting_join(self, member: Member, pending: PendingResponse | None) -> PendingResponse | None:
        """Sets or, with None, takes out the response that the member's join waits for. Returns the one before."""
        before = member.awaiting_join
        self._awaiting_join_count += (pending is not None) - (before is not None)
        member.awaiting_join = pending
        return before

    # -- counting ------------------------------------------------------------------------------------------------------

    @property
    def awaiting_join_count(self) -> int:
        return self._awaiting_join_count

    @property
    def reserved_slots(self) -> int:
        """Members that joined, static members that have not, and standbys: what counts against group.max.size."""
        if len(self._instances) == 0:
            return self._awaiting_join_count + len(self.standbys)
        away = sum(member.awaiting_join is None for member in self.by_id.values() if member.is_static)
        return self._awaiting_join_count + away + len(self.standbys)

    @property
    def total(self) -> int:
        """Members and standbys."""
        return len(self.by_id) + len(self.standbys)

    @property
    def static_member_count(self) -> int:
        return len(self._instances)

    @property
    def has_all_members_joined(self) -> bool:
        """Every member has joined, and every id that was handed out has been used."""
        return self._awaiting_join_count == len(self.by_id) and not self.pending_member_ids

    def supports_any_protocol(self, names: Iterable[str]) -> bool:
        """Whether every member offers one of these protocols."""
        votes, total = self._votes, self.total
        for name in names:  # noqa: SIM110  # `any` would make a generator for every join
            if votes.get(name, 0) == total:
                return True
        return False

    def select_protocol(self) -> str | None:
        """Each member votes for the first of its protocols that all offer; the most votes win, ties by name."""
        candidates = {name for name, votes in self._votes.items() if votes == self.total}
        ballot = Counter(
            next(protocol.name for protocol in member.protocols if protocol.name in candidates)
            for member in self.all_members
            if candidates
        )
        return min(ballot, key=lambda name: (-ballot[name], name), default=None)

    def protocol_if(self, member: Member, protocols: tuple[Protocol, ...]) -> str | None:
        """The protocol that would be selected if this member offered these."""
        present, was_loaded = member.protocols, member.restored_from_log
        self.set_protocols(member, protocols)
        try:
            return self.select_protocol()
        finally:
            self.set_protocols(member, present)
            member.restored_from_log = was_loaded

    def max_rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.by_id.values()), default=0)
