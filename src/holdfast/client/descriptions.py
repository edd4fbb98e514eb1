"""Groups as an operator sees them: members with their seats, what each has, and how far behind it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from holdfast.client.errors import HoldfastError
from holdfast.client.metadata import Node
from holdfast.wire.apis.describe_groups import DescribedGroup, DescribedGroupMember, GroupExtensions
from holdfast.wire.consumer_protocol import PROTOCOL_TYPE, decode_assignment, decode_subscription
from holdfast.wire.errors import WireError

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class GroupListing:
    group_id: str
    protocol_type: str
    """Empty for a group that was only ever committed to."""
    state: str
    """Empty where the broker is too old to tell (before Kafka 2.6)."""
    group_type: str
    """Classic or Consumer; empty where the broker is too old to tell (before Kafka 3.8)."""


@dataclass(frozen=True, slots=True)
class MemberDescription:
    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    topics: Sequence[str]
    """What it subscribes to; empty if it is no consumer, or says what cannot be read."""
    partitions: Mapping[str, Sequence[int]]
    """What it was assigned."""
    metadata: bytes = field(repr=False)
    assignment: bytes = field(repr=False)
    is_waiting: bool = False
    """It has no share by Holdfast's own rules: a standby, or an announced member that came before the others."""


@dataclass(frozen=True, slots=True)
class ExpectedMember:
    """A static member that was announced."""

    instance_id: str
    deadline_ms: int
    """Until when it is waited for, by the broker's wall clock."""
    arrived: bool
    """It is in the group, and waits for the others."""


@dataclass(frozen=True, slots=True)
class GroupExtensionsDescription:
    """What Holdfast knows of a group beyond Kafka."""

    generation: int
    epoch: int
    """The assignment epoch: it rises with every change of ownership."""
    leader: str
    """A member id; empty where nobody leads."""
    settled: bool
    """Everybody has what is his, and nothing is on its way from one member to another."""
    target_size: int | None
    """Members past it are standbys; None: nobody is."""
    standby_takeover_ms: int | None
    """How long after a member's connection closed a standby takes its place; None: not before its session ends."""
    waiting: Sequence[str]
    """The ids of members without a share."""
    expected: Sequence[ExpectedMember]
    open_places: int
    """Places of members that went, which the standbys are called for."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    state: str
    protocol_type: str
    protocol: str
    """The assignment strategy that the members agreed on."""
    coordinator: Node | None
    members: Sequence[MemberDescription]
    extensions: GroupExtensionsDescription | None = None
    """None on a server that is no Holdfast."""

    def owners(self) -> dict[TopicPartition, list[MemberDescription]]:
        """Who has each partition; a redundant assignment gives one to several."""
        found: dict[TopicPartition, list[MemberDescription]] = {}
        for member in self.members:
            for topic, numbers in member.partitions.items():
                for number in numbers:
                    found.setdefault((topic, number), []).append(member)
        return found


@dataclass(frozen=True, slots=True)
class PartitionLag:
    topic: str
    partition: int
    committed: int | None
    """None where the group has no offset."""
    end: int | None
    """None where the partition is gone."""
    owners: Sequence[MemberDescription]

    @property
    def lag(self) -> int | None:
        """How many records are not committed yet."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True)
class Removal:
    """What became of one member that was to be removed."""

    member_id: str
    group_instance_id: str | None
    error: HoldfastError | None


class RegistrationOutcome(StrEnum):
    REGISTERED = "registered"
    ALREADY_MEMBER = "already a member"
    RENEWED = "renewed"
    """It was registered already; from now on it is waited for as long as the latest call says."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Registered:
    """What became of one member that was announced."""

    instance_id: str
    outcome: RegistrationOutcome
    error: HoldfastError | None
    """Why it was refused."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What became of one registration that was to be cancelled."""

    instance_id: str
    error: HoldfastError | None


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """One config of a group."""

    value: str | None
    """None where the broker keeps it to itself."""
    is_default: bool
    """It was not set on this group."""


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """What a reset changes of one partition."""

    before: int | None
    after: int


def read_group(described: DescribedGroup, coordinator: Node | None) -> GroupDescription:
    is_consumer = described.protocol_type == PROTOCOL_TYPE
    waiting = frozenset(() if described.extensions is None else described.extensions.waiting)
    return GroupDescription(
        described.group_id,
        described.group_state,
        described.protocol_type,
        described.protocol_data,
        coordinator,
        tuple(_read_member(member, is_consumer, member.member_id in waiting) for member in described.members),
        None if described.extensions is None else _read_extensions(described.extensions),
    )


def _read_extensions(found: GroupExtensions) -> GroupExtensionsDescription:
    return GroupExtensionsDescription(
        found.generation_id,
        found.assignment_epoch,
        found.leader,
        found.settled,
        found.target_size if found.target_size > 0 else None,
        found.standby_takeover_ms if found.standby_takeover_ms > 0 else None,
        tuple(found.waiting),
        tuple(ExpectedMember(one.group_instance_id, one.deadline_ms, one.arrived) for one in found.expected),
        found.open_places,
    )


def _read_member(member: DescribedGroupMember, is_consumer: bool, is_waiting: bool) -> MemberDescription:
    metadata, assignment = bytes(member.member_metadata), bytes(member.member_assignment)
    return MemberDescription(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        _topics(metadata) if is_consumer else (),
        _partitions(assignment) if is_consumer else {},
        metadata,
        assignment,
        is_waiting,
    )


def _topics(metadata: bytes) -> list[str]:
    try:
        return list(decode_subscription(metadata).topics)
    except WireError:
        return []


def _partitions(assignment: bytes) -> dict[str, list[int]]:
    try:
        decoded = decode_assignment(assignment)
    except WireError:
        return {}
    return {entry.topic: list(entry.partitions) for entry in decoded.assigned_partitions}
