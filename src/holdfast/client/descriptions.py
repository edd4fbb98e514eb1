"""Groups as an operator sees them: members with their seats, what each has, and how far behind it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.client.errors import HoldfastError
from holdfast.client.metadata import Node
from holdfast.wire.apis.describe_groups import DescribedGroup, DescribedGroupMember
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


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    state: str
    protocol_type: str
    protocol: str
    """The assignment strategy that the members agreed on."""
    coordinator: Node | None
    members: Sequence[MemberDescription]

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


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """What a reset changes of one partition."""

    before: int | None
    after: int


def read_group(described: DescribedGroup, coordinator: Node | None) -> GroupDescription:
    is_consumer = described.protocol_type == PROTOCOL_TYPE
    return GroupDescription(
        described.group_id,
        described.group_state,
        described.protocol_type,
        described.protocol_data,
        coordinator,
        tuple(_read_member(member, is_consumer) for member in described.members),
    )


def _read_member(member: DescribedGroupMember, is_consumer: bool) -> MemberDescription:
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
