"""One group: what is stored of it, and what is in flight.

`Stored` changes in one place only, `Group.apply`, when a record has been stored and when it is replayed, alike. The
roster, the state and the timers are volatile: they are built from `Stored` when the group is loaded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.coordinator.batches import Batch
from holdfast.coordinator.effects import Record
from holdfast.coordinator.extensions import Extensions, epoch
from holdfast.coordinator.members import Client, Member, Protocol, Roster
from holdfast.coordinator.states import COMPLETING, DEAD, EMPTY, PREDECESSORS, STABLE, GroupState
from holdfast.coordinator.timers import Timer
from holdfast.wire.consumer_protocol import subscribed_topics
from holdfast.wire.errors import WireError
from holdfast.wire.group_records import (
    ExtensionsKey,
    ExtensionsValue,
    GenerationKey,
    GenerationMember,
    GenerationValue,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecordKey,
    GroupRecordValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)

CONSUMER = "consumer"
"""The one protocol type whose bytes may be looked into, and only by `consumer_view`."""


@dataclass(slots=True)
class Stored:
    """The durable facts of a group."""

    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    state_timestamp_ms: int = -1
    """When the group became empty or formed; -1 if unknown."""
    members: list[MemberMetadata] = field(default_factory=list)
    awaits_sync: bool = False
    """The generation is formed and its assignment is not stored yet."""
    has_record: bool = False
    """The journal has a record of the group that must be tombstoned when it is deleted."""
    has_generation_record: bool = False
    has_extensions_record: bool = False
    extensions: Extensions = field(default_factory=Extensions)
    offsets: dict[tuple[str, int], OffsetCommitValue] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Place:
    """What a member left behind that went and whose share waits for a standby (see `standbys`)."""

    member: Member
    topics: frozenset[str]
    led: bool
    until: Timer | None = None


class Group:
    def __init__(self, group_id: str, generation: int = 0) -> None:
        self.id = group_id
        self.stored = Stored(generation=generation)
        self.state: GroupState = EMPTY
        self.roster = Roster()
        self.protocol_type: str | None = None
        """As of the members that are joining; `stored.protocol_type` follows with the next generation."""
        self.leader_id: str | None = None
        """As of the roster; `stored.leader_id` follows with the next record."""
        self.rebalance_timer: Timer | None = None
        self.sync_timer: Timer | None = None
        self.rebalance_began_ms = 0
        self.initial_delay_left_ms: int | None = None
        """While the group leaves EMPTY (KIP-134): how much longer it may wait for more members."""
        self.joined_during_delay = False
        self.busy = False
        """An append is under way; commands wait."""
        self.waiting: deque[Callable[[int], None]] = deque()
        self.fenced: set[tuple[str | None, str]] = set()
        """Instance id and member id of those who were told that somebody else holds the seat."""
        self.restored_in_sync = False
        """Loaded between a generation's forming and its assignment: whoever joins now makes all rejoin."""
        self.assignments_void = False
        """A generation ended before its assignment: what the members had before is no longer shown, as in Kafka."""
        self.leader_unaware = False
        """The leader was replaced, could not be told so (`leadership`), and does not know that it leads."""
        self.growth_unreviewed = False
        """Loaded, and nobody has looked yet whether the topics grew before that (see `growth`)."""
        self.places: list[Place] = []
        """Of members that went in this generation, while their shares wait for standbys. Still stored as members."""
        self.gone: list[Member] = []
        """Members with a share that went since the last assignment, for the ledger."""
        self.registration_timer: Timer | None = None
        self.announced_members = 0
        """Loaded with a share although they are announced: they had gone, and the broker was killed before anybody had
        their places. At most so many: who goes again is not subtracted."""
        self.is_held = False
        """An empty group began to form and waits for the members that were announced, not for the initial delay."""
        self.gathering = 0
        """Batches of joins that are being taken in: the join phase does not end in the middle of one."""
        self.batches: list[Batch] = []
        """Those that are not answered yet."""
        self.failed_leaders: set[str] = set()
        """Members who could not assign since the last good generation."""
        self.failed_rounds = 0
        self.backs_off = False
        """After a failed round the join phase is not ended before its time is up."""
        self.told_epoch = 0
        """The assignment epoch that the ledger last told of."""

    # -- durable -------------------------------------------------------------------------------------------------------

    def apply(self, key: GroupRecordKey, value: GroupRecordValue | None) -> None:
        """Takes in one stored fact. Nothing else changes `stored`."""
        stored = self.stored
        if isinstance(key, OffsetCommitKey):
            if value is None:
                stored.offsets.pop((key.topic, key.partition), None)
            else:
                assert isinstance(value, OffsetCommitValue)
                stored.offsets[key.topic, key.partition] = value
        elif isinstance(key, GenerationKey):
            stored.has_generation_record = value is not None
            # Of two records of one generation the later counts: the first was not flushed and nobody heard of it.
            if isinstance(value, GenerationValue) and value.generation >= stored.generation:
                self._apply_generation(value)
        elif isinstance(key, ExtensionsKey):
            stored.has_extensions_record = value is not None
            stored.extensions = Extensions.of(value) if isinstance(value, ExtensionsValue) else Extensions()
        elif isinstance(key, GroupMetadataKey):
            stored.has_record = value is not None
            if isinstance(value, GroupMetadataValue) and value.generation >= stored.generation:
                self._apply_metadata(value)

    def _apply_generation(self, value: GenerationValue) -> None:
        stored = self.stored
        stored.generation = value.generation
        stored.protocol_type = value.protocol_type or None
        stored.protocol_name = value.protocol
        stored.leader_id = value.leader
        stored.state_timestamp_ms = value.current_state_timestamp
        stored.members = [
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout,
                session_timeout=member.session_timeout,
                subscription=member.subscription,
            )
            for member in value.members
        ]
        stored.awaits_sync = True

    def _apply_metadata(self, value: GroupMetadataValue) -> None:
        stored = self.stored
        stored.generation = value.generation
        stored.protocol_type = value.protocol_type or None
        stored.protocol_name = value.protocol
        stored.leader_id = value.leader
        stored.state_timestamp_ms = value.current_state_timestamp
        stored.members = list(value.members)
        stored.awaits_sync = False

    def member_records(
        self, shares: Mapping[str, bytes] | None = None, *, besides: Iterable[Member] = ()
    ) -> list[MemberMetadata]:
        """Everybody who has a share, with the one given or the present one; also who left one behind."""
        given = shares or {}
        left_behind = [place.member for place in self.places if place.member not in besides]
        return [
            self.member_record(member, given.get(member.id, member.assignment))
            for member in (*(member for member in self.roster if member not in besides), *left_behind)
        ]

    def extensions_record(self, **changes: Any) -> tuple[Record, ...]:
        """The record of the extensions with these changes, if there is anything to store."""
        value = replace(self.stored.extensions, **changes).record()
        if value is None and not self.stored.has_extensions_record:
            return ()
        return ((ExtensionsKey(self.id), value),)

    def quiet_change(self, *members: str) -> tuple[Record, ...]:
        """The record by which these members' shares change within the generation, and the epoch rises."""
        extensions = self.stored.extensions
        same = extensions.generation == self.generation
        owners = {place.member.id for place in self.places}.union(member.id for member in self.roster)
        before = [member_id for member_id in extensions.changed if same and member_id in owners]
        return self.extensions_record(
            generation=self.generation,
            quiet_changes=(extensions.quiet_changes if same else 0) + 1,
            changed=tuple(dict.fromkeys((*before, *members))),
            left_out=self.left_out,
        )

    def assigned(self, left_out: Mapping[str, int]) -> tuple[Record, ...]:
        """The record that belongs to the assignment of a generation, if there is anything to remember of it."""
        if not left_out:
            return ()  # what is remembered of another generation means nothing in this one
        return self.extensions_record(generation=self.generation, quiet_changes=0, changed=(), left_out=left_out)

    def metadata_record(self, members: list[MemberMetadata], leader_id: str | None, now_ms: int) -> GroupMetadataValue:
        """The present generation with these members."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.stored.generation,
            protocol=self.stored.protocol_name,
            leader=leader_id,
            current_state_timestamp=now_ms,
            members=members,
        )

    def member_record(self, member: Member, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            member_id=member.id,
            group_instance_id=member.instance_id,
            client_id=member.client.client_id,
            client_host=member.client.host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata_for(self.stored.protocol_name),
            assignment=assignment,
        )

    def generation_member(self, member: Member, protocol_name: str | None) -> GenerationMember:
        return GenerationMember(
            member_id=member.id,
            group_instance_id=member.instance_id,
            client_id=member.client.client_id,
            client_host=member.client.host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata_for(protocol_name),
        )

    # -- volatile ------------------------------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        return self.stored.generation

    @property
    def epoch(self) -> int:
        return epoch(self.generation, self.stored.extensions)

    @property
    def extensions(self) -> Extensions:
        return self.stored.extensions

    @property
    def left_out(self) -> Mapping[str, int]:
        """Topics of which the leader of this generation left partitions out, with how many it knew of."""
        extensions = self.stored.extensions
        return extensions.left_out if extensions.generation == self.generation else {}

    def enter(self, state: GroupState) -> None:
        assert self.state in PREDECESSORS[state], f"group {self.id}: {self.state} cannot become {state}"
        self.state = state

    def wake(self) -> bool:
        """After loading: members and state as they are stored. Sessions are started by the coordinator.

        False if a member, or the holder of an instance id, is stored twice. No broker should have written that; the
        first of them is in the group then, and the others are not.
        """
        stored = self.stored
        self.protocol_type = stored.protocol_type
        self.leader_id = stored.leader_id
        self.told_epoch = self.epoch
        self.roster = Roster()
        for record in stored.members:
            offered = (Protocol(stored.protocol_name or "", record.subscription),)
            member = Member(
                id=record.member_id,
                instance_id=record.group_instance_id,
                client=Client(record.client_id, record.client_host),
                session_timeout_ms=record.session_timeout,
                # v0 of the record had no rebalance timeout.
                rebalance_timeout_ms=record.rebalance_timeout
                if record.rebalance_timeout >= 0
                else record.session_timeout,
                protocols=offered,
                assignment=record.assignment,
                # Who was away is not stored. A static member goes only by its session, unless all wait for it.
                was_absent=record.group_instance_id is not None and record.member_id != stored.leader_id,
                in_generation=True,
                is_loaded=True,
            )
            if self.roster.get(member.id) is None and self.roster.holder_of(member.instance_id) is None:
                self.roster.add(member)
        self.announced_members = sum(member.instance_id in self.extensions.registered for member in self.roster)
        if not stored.members:
            self.state = EMPTY
        else:
            self.state = COMPLETING if stored.awaits_sync else STABLE
            self.restored_in_sync = stored.awaits_sync
            if stored.awaits_sync:
                self.roster.awaiting_sync = {member.id for member in self.roster}
            leader = self.roster.get(stored.leader_id or "")
            # Whether it knows is not stored; if it does, it only rejoins a little earlier than by itself.
            self.leader_unaware = self.state is STABLE and leader is not None and leader.is_static
            self.growth_unreviewed = self.leader_unaware
        return len(self.roster) == len(stored.members)

    @property
    def is_dead(self) -> bool:
        return self.state is DEAD

    @property
    def is_stored(self) -> bool:
        return self.has_history or self.stored.has_extensions_record

    @property
    def has_history(self) -> bool:
        """It had members, or has offsets."""
        return self.stored.has_record or self.stored.has_generation_record or bool(self.stored.offsets)

    @property
    def is_only_configured(self) -> bool:
        """Nobody has ever used it: somebody only said how it is to be. As in Kafka, there is no such group yet."""
        used = self.has_history or self.extensions.registered or self.roster.pending
        return self.state is EMPTY and self.stored.has_extensions_record and not used

    @property
    def is_nothing(self) -> bool:
        """Neither stored nor anybody's: it need not exist."""
        return self.state is EMPTY and not (self.busy or self.is_stored or self.roster.pending)

    @property
    def is_simple(self) -> bool:
        """Only offsets, committed without membership."""
        return self.protocol_type is None

    def topics(self) -> set[str] | None:
        """The topics that the members subscribe to; None if that cannot be known."""
        if self.protocol_type != CONSUMER:
            return None
        found: set[str] = set()
        try:
            for member in self.roster.everybody:
                found.update(subscribed_topics(member.metadata_for(self.stored.protocol_name)))
        except WireError:
            return None
        return found
