"""Gives the offsets of a group back to Kafka's own coordinator.

Only a member of a group may commit its offsets, so the gateway commits as the member with which it holds the name. It
leaves the group afterwards (`GroupNames.release`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from holdfast.broker.util.slices import SliceScheduler
from holdfast.gateway.group_names import INSTANCE_ID, GroupNames, HeldMember
from holdfast.gateway.kafka.errors import KafkaRefused
from holdfast.gateway.kafka_groups import KafkaGroups
from holdfast.gateway.kafka_offsets import LAST_WITH_NAMES, CommittedOffset, KafkaOffsets
from holdfast.gateway.state.codes import error_name, known_code
from holdfast.gateway.upstream import Upstream
from holdfast.types import TopicPartition
from holdfast.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import OffsetCommitValue

NO_OFFSET: Final = CommittedOffset(-1, -1, "")
"""Clients take a committed offset of -1 for none. Kafka does not delete the offsets of a group with members."""

_OFFSETS_AT_ONCE: Final = 1_000
_BYTES_AT_ONCE: Final = 200_000
"""Kafka stores a commit as one batch, which has to fit into `max.message.bytes` of `__consumer_offsets`."""
_OVERHEAD_BYTES: Final = 64
_ATTEMPTS: Final = 3
_REJOIN: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS})


async def write_back(
    cluster: Upstream,
    names: GroupNames,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetCommitValue],
    slices: SliceScheduler | None = None,
) -> None:
    """Commits the offsets in Kafka and reads them back. Other offsets of the group in Kafka are removed.

    It can be repeated after a failure. Raises NameInUse if the group has other members in Kafka, KafkaUnreachable, or
    KafkaRefused with a sentence if Kafka does not take an offset, or has another one afterwards.
    """
    slices = slices or SliceScheduler()
    reader = KafkaOffsets(cluster, slices)
    member = await names.member(group_id)  # first: from now on, no other client commits
    stale = [partition for partition in await reader.read(group_id) if partition not in offsets]
    wanted: dict[TopicPartition, CommittedOffset] = dict.fromkeys(stale, NO_OFFSET)
    async for partition, value in slices.iterate(offsets.items()):
        wanted[partition] = CommittedOffset(value.offset, value.leader_epoch, value.metadata)
    groups = KafkaGroups(cluster)
    for some in _chunks(group_id, wanted):
        member = await _commit(groups, names, group_id, member, some)
    await _verify(group_id, wanted, await reader.read(group_id), slices)


async def _commit(
    groups: KafkaGroups,
    names: GroupNames,
    group_id: str,
    member: HeldMember,
    offsets: Mapping[TopicPartition, CommittedOffset],
) -> HeldMember:
    """Returns the member that has committed. Kafka may not accept the given one any more."""
    request = _request(group_id, offsets)
    for attempt in range(1, _ATTEMPTS + 1):
        request.member_id, request.generation_id_or_member_epoch = member
        response: OffsetCommitResponse = await groups.ask(
            group_id, request, _first_error, limit=(OFFSET_COMMIT, LAST_WITH_NAMES)
        )
        code = _first_error(response)
        if code == ErrorCode.NONE:
            return member
        if code not in _REJOIN or attempt == _ATTEMPTS:
            break
        member = await names.member(group_id, instead_of=member)
    raise _not_taken(group_id, response)


def _chunks(
    group_id: str, wanted: Mapping[TopicPartition, CommittedOffset]
) -> Iterator[dict[TopicPartition, CommittedOffset]]:
    chunk: dict[TopicPartition, CommittedOffset] = {}
    size = 0
    for (topic, partition), value in wanted.items():
        chunk[topic, partition] = value
        size += _OVERHEAD_BYTES + len(group_id.encode()) + len(topic) + len(value.metadata.encode())
        if len(chunk) == _OFFSETS_AT_ONCE or size >= _BYTES_AT_ONCE:
            yield chunk
            chunk, size = {}, 0
    if chunk:
        yield chunk


def _request(group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> OffsetCommitRequest:
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), value in offsets.items():
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=value.offset,
                committed_leader_epoch=value.leader_epoch,
                committed_metadata=value.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group_id,
        group_instance_id=INSTANCE_ID,
        topics=[OffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )


def _first_error(response: OffsetCommitResponse) -> int:
    codes = (partition.error_code for topic in response.topics for partition in topic.partitions)
    return next((code for code in codes if code != ErrorCode.NONE), ErrorCode.NONE)


def _not_taken(group_id: str, response: OffsetCommitResponse) -> KafkaRefused:
    failed = [
        (f"{topic.name}-{partition.partition_index}", partition.error_code)
        for topic in response.topics
        for partition in topic.partitions
        if partition.error_code != ErrorCode.NONE
    ]
    name, code = failed[0]
    more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
    return KafkaRefused(
        f"Kafka answers {error_name(code)} to the offset of group {group_id!r} for {name}{more}: "
        "the group stays on the gateway",
        known_code(code),
    )


async def _verify(
    group_id: str,
    wanted: Mapping[TopicPartition, CommittedOffset],
    stored: Mapping[TopicPartition, CommittedOffset],
    slices: SliceScheduler,
) -> None:
    async for (topic, partition), value in slices.iterate(wanted.items()):
        found = stored.get((topic, partition), NO_OFFSET)
        if found != value:
            raise KafkaRefused(
                f"Kafka has the offset {_shown(found)} of group {group_id!r} for {topic}-{partition} after "
                f"{_shown(value)} was committed: the group stays on the gateway",
                ErrorCode.UNKNOWN_SERVER_ERROR,
            )


def _shown(value: CommittedOffset) -> str:
    epoch = f" with leader epoch {value.leader_epoch}" if value.leader_epoch >= 0 else ""
    metadata = f" and metadata {value.metadata!r}" if value.metadata else ""
    return f"{value.offset}{epoch}{metadata}"
