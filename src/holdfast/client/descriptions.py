"""Descriptions of groups for operators: members, their assignments, and their lag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from holdfast.client.errors import HoldfastError
from holdfast.client.metadata import Node
from holdfast.types import TopicPartition
from holdfast.wire.apis.describe_groups import DescribedGroup, DescribedGroupMember, GroupExtensions
from holdfast.wire.consumer_protocol import PROTOCOL_TYPE, decode_assignment, decode_subscription
from holdfast.wire.errors import WireError


@dataclass(frozen=True, slots=True)
class GroupListing:
    group_id: str
    protocol_type: str
    """Empty for a group that only has committed offsets."""
    state: str
    """Empty if the broker is too old to report it (before Kafka 2.6)."""
    group_type: str
    """Classic or Consumer; empty if the broker is too old to report it (before Kafka 3.8)."""


@dataclass(frozen=True, slots=True)
class MemberDescription:
    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    topics: Sequence[str]
    """Its subscription; empty if it is not a consumer or its metadata is unreadable."""
    partitions: Mapping[str, Sequence[int]]
    """Its assignment."""
    metadata: bytes = field(repr=False)
    assignment: bytes = field(repr=False)
    is_standby: bool = False
    """It has no assignment: it is beyond the target size, or is registered and waits for the others."""


@dataclass(frozen=True, slots=True)
class ExpectedMember:
    """A registered static member (KIP-469)."""

    instance_id: str
    deadline_ms: int
    """Until when the group waits for it, by the broker's wall clock."""
    arrived: bool
    """It has joined, and waits for the others."""


@dataclass(frozen=True, slots=True)
class GroupExtensionsDescription:
    """The additional description of a group on a Holdfast broker."""

    generation: int
    epoch: int
    """The assignment epoch. It increases with every change of ownership."""
    leader: str
    """A member id; empty if there is no leader."""
    settled: bool
    """Every member has its assignment, and no partition is moving from one member to another."""
    target_size: int | None
    """Members beyond it are standbys. None if there is no target."""
    standby_takeover_ms: int | None
    """How long after a member's connection closes a standby takes over. None if it waits for the session to expire."""
    standbys: Sequence[str]
    """The ids of the members without an assignment."""
    expected: Sequence[ExpectedMember]
    vacancies: int
    """Assignments of members that left, which standbys are asked to take over."""


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
    """None if the broker is not Holdfast."""

    def owners(self) -> dict[TopicPartition, list[MemberDescription]]:
        """The owners of each partition; several with a redundant assignment."""
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
    """None if the group has no committed offset."""
    end: int | None
    """None if the partition does not exist."""
    owners: Sequence[MemberDescription]

    @property
    def lag(self) -> int | None:
        """The number of records after the committed offset."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True)
class Removal:
    """The result for one member that was to be removed."""

    member_id: str
    group_instance_id: str | None
    error: HoldfastError | None


class RegistrationOutcome(StrEnum):
    REGISTERED = "registered"
    ALREADY_MEMBER = "already a member"
    RENEWED = "renewed"
    """It was already registered. The group now waits for it as long as the latest call says."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Registered:
    """The result for one member that was to be registered."""

    instance_id: str
    outcome: RegistrationOutcome
    error: HoldfastError | None
    """Why it was rejected."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The result for one registration that was to be cancelled."""

    instance_id: str
    error: HoldfastError | None


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """One config of a group."""

    value: str | None
    """None if it is sensitive."""
    is_default: bool
    """It was not set on this group."""


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """The change of a reset for one partition."""

    before: int | None
    after: int


def read_group(described: DescribedGroup, coordinator: Node | None) -> GroupDescription:
    is_consumer = described.protocol_type == PROTOCOL_TYPE
    standbys = frozenset(() if described.extensions is None else described.extensions.standbys)
    return GroupDescription(
        described.group_id,
        described.group_state,
        described.protocol_type,
        described.protocol_data,
        coordinator,
        tuple(_read_member(member, is_consumer, member.member_id in standbys) for member in described.members),
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
        tuple(found.standbys),
        tuple(ExpectedMember(one.group_instance_id, one.deadline_ms, one.arrived) for one in found.expected),
        found.vacancies,
    )


def _read_member(member: DescribedGroupMember, is_consumer: bool, is_standby: bool) -> MemberDescription:
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
        is_standby,
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
