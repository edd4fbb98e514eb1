"""What a group's coordinator has stored, in the order in which it did: commits and generations of `__consumer_offsets`.

Both servers keep the same records, and neither compacts the segment that it writes to: nothing is missing.
"""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from holdfast.wire.consumer_protocol import decode_assignment
from holdfast.wire.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_record,
    partition_for,
)

OFFSETS_TOPIC, OFFSETS_PARTITIONS = "__consumer_offsets", 50
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Commit:
    partition: int
    offset: int
    at_ms: int
    member_id: str
    """As the committer wrote it into the metadata; empty where it does not."""


@dataclass(frozen=True)
class Generation:
    number: int
    protocol: str | None
    leader: str | None
    clients: dict[str, str]
    """The client id of each member, by member id."""
    owners: dict[int, str]
    """The member id of each partition that was assigned."""


def read_history(bootstrap: str, group: str) -> list[Commit | Generation]:
    where = TopicPartition(OFFSETS_TOPIC, partition_for(group, OFFSETS_PARTITIONS), 0)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    try:
        _, end = consumer.get_watermark_offsets(where, PATIENCE_S)
        consumer.assign([where])
        history: list[Commit | Generation] = []
        at = 0
        while at < end:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"the history of {group} ends at {at} instead of {end}"
            assert message.error() is None, message.error()
            entry = _entry(group, message.key(), message.value())
            history += [] if entry is None else [entry]
            at = message.offset() + 1  # type: ignore[operator]  # a record without an error has one
    finally:
        consumer.close()
    return history


def _entry(group: str, key: bytes | str | None, value: bytes | str | None) -> Commit | Generation | None:
    assert isinstance(key, bytes) and not isinstance(value, str)
    match decode_record(key, value):
        case (OffsetCommitKey() as place, OffsetCommitValue() as stored) if place.group == group:
            # confluent-kafka sends the zero at the end of its string along.
            member_id = stored.metadata.rstrip("\0")
            return Commit(place.partition, stored.offset, stored.commit_timestamp, member_id)
        case (GroupMetadataKey() as named, GroupMetadataValue() as state) if named.group == group:
            return _generation(state)
    return None


def _generation(state: GroupMetadataValue) -> Generation:
    owners = {
        number: member.member_id
        for member in state.members
        if member.assignment
        for entry in decode_assignment(member.assignment).assigned_partitions
        for number in entry.partitions
    }
    clients = {member.member_id: member.client_id for member in state.members}
    return Generation(state.generation, state.protocol, state.leader, clients, owners)


def commits(history: list[Commit | Generation]) -> list[Commit]:
    return [entry for entry in history if isinstance(entry, Commit)]


def generations(history: list[Commit | Generation]) -> list[Generation]:
    return [entry for entry in history if isinstance(entry, Generation)]
