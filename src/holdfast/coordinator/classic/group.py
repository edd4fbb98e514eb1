"""One group: what is stored of it, and what is in flight.

`PersistedGroup` changes in one place only, `Group.replay`, both when records have been stored and when they are
read back. The members, the state and the timers are volatile: they are built from `PersistedGroup` when the group is
loaded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from holdfast.coordinator.classic.member import Client, Member, Protocol, Role
from holdfast.coordinator.classic.members import Members
from holdfast.coordinator.classic.state_machine import (
    COMPLETING,
    EMPTY,
    PREDECESSORS,
    PREPARING,
    STABLE,
    GroupState,
)
from holdfast.coordinator.group_extensions import Extensions, ExtensionState, assignment_epoch
from holdfast.coordinator.runtime.effects import Record
from holdfast.coordinator.runtime.timers import Timer
from holdfast.types import TopicPartition
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
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from holdfast.wire.offset_records import OffsetRecords

CONSUMER = "consumer"
"""The one protocol type whose metadata and assignments the coordinator can read."""


@dataclass(slots=True)
class PersistedGroup:
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
    """The log has a record of the group that needs a tombstone when the group is deleted."""
    has_generation_record: bool = False
    has_extensions_record: bool = False
    extensions: Extensions = field(default_factory=Extensions)
    offsets: dict[TopicPartition, OffsetCommitValue] = field(default_factory=dict)


class JoinPhase(Enum):
    """What the join phase waits for, besides the members that have not joined."""

    NONE = "no rebalance is in its join phase"
    INITIAL_DELAY = "KIP-134: an empty group gives its other members time to join"
    INITIAL_DELAY_EXTENDED = "a member joined during the delay, which is extended once it is over"
    AWAITING_REGISTERED = "an empty group waits for all registered members"
    BACKOFF = "the leader could not assign; the next round is delayed"
    COLLECTING = "nothing else"


INITIAL_DELAYS = frozenset({JoinPhase.INITIAL_DELAY, JoinPhase.INITIAL_DELAY_EXTENDED})


class Group:
    def __init__(self, group_id: str, generation: int = 0) -> None:
        self.id = group_id
        self.stored = PersistedGroup(generation=generation)
        self.generation: int
        self.extensions: Extensions
        self.epoch: int
        """The assignment epoch. These three are `stored`, for quick access."""
        self.state: GroupState = EMPTY
        self.members = Members()
        self.protocol_type: str | None = None
        """Of the members that are joining; `stored.protocol_type` follows with the next generation."""
        self.leader_id: str | None = None
        """Of the current members; `stored.leader_id` follows with the next record."""
        self.timers: dict[Hashable, Timer] = {}
        """See `Context.schedule`. The key of a member's session is the member."""
        self.append_in_flight = False
        """Commands are queued meanwhile."""
        self.queued_commands: deque[Callable[[int], None]] = deque()
        self.join_phase = JoinPhase.NONE
        self.initial_delay_left_ms = 0
        """In the initial delay: how much longer it may last."""
        self.rebalance_began_ms = 0
        self.failed_leaders: set[str] = set()
        """Members that could not assign since the last good generation. Others are preferred as the leader."""
        self.assignments_cleared = False
        """A generation ended before its assignment. As in Kafka, the assignments before it are no longer shown."""
        self.reloaded_awaiting_sync = False
        """The group was reloaded between a new generation and its assignment: the next join starts a rebalance."""
        self.leader_not_notified = False
        """The leader was replaced and does not know that it leads (see `skip_assignment`)."""
        self.first_heartbeat_awaited = False
        """The group was reloaded with a leader that may not know that it leads, and has had no heartbeat since."""
        self.fenced_members: set[tuple[str | None, str]] = set()
        """Instance id and member id of the senders whose fencing was reported."""
        self.departed_members: list[Member] = []
        """Members with an assignment that were removed since the last assignment, for events."""
        self.last_event_epoch = 0
        """The assignment epoch of the last event about assignments."""
        self.ext = ExtensionState()
        """Carried for the extensions, as `extensions` is."""
        self._derive()

    # -- durable -------------------------------------------------------------------------------------------------------

    def replay(self, records: Sequence[Record]) -> None:
        """Applies stored records. Nothing else changes `stored`."""
        stored = self.stored
        if type(records) is OffsetRecords:
            stored.offsets.update(records.offsets)
            return
        for key, value in records:
            if isinstance(key, OffsetCommitKey):
                if value is None:
                    stored.offsets.pop((key.topic, key.partition), None)
                else:
                    assert isinstance(value, OffsetCommitValue)
                    stored.offsets[key.topic, key.partition] = value
            elif isinstance(key, GenerationKey):
                stored.has_generation_record = value is not None
                # Of two records of one generation the later counts: the first was not flushed, and no response was
                # sent.
                if isinstance(value, GenerationValue) and value.generation >= stored.generation:
                    self._replay_generation(value)
            elif isinstance(key, ExtensionsKey):
                stored.has_extensions_record = value is not None
                stored.extensions = Extensions.of(value) if isinstance(value, ExtensionsValue) else Extensions()
            elif isinstance(key, GroupMetadataKey):
                stored.has_record = value is not None
                if isinstance(value, GroupMetadataValue) and value.generation >= stored.generation:
                    self._replay_metadata(value)
        self._derive()

    def successor(self) -> Group:
        """A new group of the same name, with the offsets and the configs of this one."""
        group = Group(self.id)
        group.stored.offsets = self.stored.offsets
        group.keep_extensions(self.stored)
        return group

    def keep_extensions(self, stored: PersistedGroup) -> None:
        self.stored.extensions, self.stored.has_extensions_record = stored.extensions, stored.has_extensions_record
        self._derive()

    def start_above(self, generation: int) -> None:
        """A group without members starts as a new one, above the generation of a deleted group."""
        self.stored.generation = generation
        self._derive()

    def _derive(self) -> None:
        self.generation = self.stored.generation
        self.extensions = self.stored.extensions
        self.epoch = assignment_epoch(self.generation, self.extensions)

    def _replay_generation(self, value: GenerationValue) -> None:
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

    def _replay_metadata(self, value: GroupMetadataValue) -> None:
        stored = self.stored
        stored.generation = value.generation
        stored.protocol_type = value.protocol_type or None
        stored.protocol_name = value.protocol
        stored.leader_id = value.leader
        stored.state_timestamp_ms = value.current_state_timestamp
        stored.members = list(value.members)
        stored.awaits_sync = False

    def member_records(
        self, assignments: Mapping[str, bytes] | None = None, *, excluding: Iterable[Member] = ()
    ) -> list[MemberMetadata]:
        """Every owner of an assignment, with the one given or the present one."""
        given = assignments or {}
        owners = (*self.members, *self.ext.former_owners)
        return [
            self.member_record(member, given.get(member.id, member.assignment))
            for member in owners
            if member not in excluding
        ]

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

    def transition_to(self, state: GroupState) -> None:
        assert self.state in PREDECESSORS[state], f"group {self.id}: {self.state} cannot become {state}"
        self.state = state
        self.join_phase = JoinPhase.COLLECTING if state is PREPARING else JoinPhase.NONE

    def restore(self) -> bool:
        """After loading: sets the members and the state as they are stored. The coordinator starts the sessions.

        False if a member id or an instance id is stored twice. No broker should have written that. Then the first of
        them is in the group, and the others are not.
        """
        stored = self.stored
        self.protocol_type = stored.protocol_type
        self.leader_id = stored.leader_id
        self.last_event_epoch = self.epoch
        self.members = Members()
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
                # Not stored. A static member is removed only by its session, unless it is the leader.
                missed_join_phase=record.group_instance_id is not None and record.member_id != stored.leader_id,
                role=Role.ACTIVE,
                restored_from_log=True,
            )
            if self.members.get(member.id) is None and self.members.static_member(member.instance_id) is None:
                self.members.add(member)
        if not stored.members:
            self.state = EMPTY
        else:
            self.state = COMPLETING if stored.awaits_sync else STABLE
            self.reloaded_awaiting_sync = stored.awaits_sync
            if stored.awaits_sync:
                self.members.pending_sync_members = {member.id for member in self.members}
            leader = self.members.get(stored.leader_id or "")
            # Whether it knows is not stored; if it does, it only rejoins a little earlier than by itself.
            self.leader_not_notified = self.state is STABLE and leader is not None and leader.is_static
            self.first_heartbeat_awaited = self.leader_not_notified
        return len(self.members) == len(stored.members)

    @property
    def is_stored(self) -> bool:
        return self.has_history or self.stored.has_extensions_record

    @property
    def has_history(self) -> bool:
        """It had members, or has offsets."""
        return self.stored.has_record or self.stored.has_generation_record or bool(self.stored.offsets)

    @property
    def is_only_configured(self) -> bool:
        """It has configs and was never used. As in Kafka, such a group does not exist yet."""
        used = self.has_history or self.extensions.registered or self.members.pending_member_ids
        return self.state is EMPTY and self.stored.has_extensions_record and not used

    @property
    def is_unused(self) -> bool:
        """Neither stored nor waited for: it need not exist."""
        return self.state is EMPTY and not (self.append_in_flight or self.is_stored or self.members.pending_member_ids)

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
            for member in self.members.all_members:
                found.update(subscribed_topics(member.metadata_for(self.stored.protocol_name)))
        except WireError:
            return None
        return found
