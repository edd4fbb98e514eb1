"""OffsetCommit: stores committed offsets of a group."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from functools import lru_cache
from types import CoroutineType
from typing import Any, Final, NamedTuple

from holdfast.broker.api.registry import handler
from holdfast.broker.api.replies import PreEncoded
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import GroupServices, TopicInfo
from holdfast.broker.util.slices import Work
from holdfast.coordinator.offsets.commit import Commit, PartitionErrors
from holdfast.types import TopicPartition
from holdfast.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import OffsetCommitValue
from holdfast.wire.message import encode

FIRST_WITH_TOPIC_IDS: Final = 10
DEFAULT_RETENTION: Final = -1
OFFSETS_PER_STEP: Final = 1_000
"""Offsets stored at once: some milliseconds of work."""
PARTITIONS_PER_PAUSE: Final = 100
"""Partitions of a topic that are looked up between two places to pause: a tenth of a millisecond. Most requests have
fewer, and do not pause."""
KEPT_RESPONSES: Final = 1_024
KEPT_TOPICS: Final = 8
KEPT_PARTITIONS: Final = 100
"""Responses without an error are kept, if they have at most so many topics and partitions: some megabytes in all."""


Offsets = dict[TopicPartition, OffsetCommitValue]


class CommittedTopic(NamedTuple):
    """A topic of a request: what its part of the response says, apart from errors."""

    name: str
    topic_id: bytes
    indexes: tuple[int, ...]


class Split(NamedTuple):
    """A request: the topics as they were named, the offsets to store, and what is unknown of the topics."""

    topics: tuple[CommittedTopic, ...]
    offsets: Offsets
    unknown: PartitionErrors
    """By name and index, with the name "" for topics whose id is unknown: they have one error all."""


@handler(OFFSET_COMMIT)
def offset_commit(
    services: GroupServices, request: OffsetCommitRequest, context: RequestContext
) -> Work[OffsetCommitResponse | PreEncoded | Coroutine[object, object, Any]]:
    """Topics and partitions that do not exist get an error each; the others are committed."""
    split = yield from _split(services, request, context)
    if not split.offsets:
        return (yield from _response(context, split, {}))
    if len(split.offsets) > OFFSETS_PER_STEP:
        return _in_parts(services, request, context, split)
    answer = _commit(services, request, context, split.offsets)
    if type(answer) is CoroutineType:
        return _answered_later(services, context, split, answer)
    return (yield from _response(context, split, answer))


def _commit(
    services: GroupServices,
    request: OffsetCommitRequest,
    context: RequestContext,
    offsets: Offsets,
) -> Any:
    groups = services.groups
    client = groups.client_of(context)
    return groups.submit(
        lambda reply, now_ms: groups.coordinator.commit_offsets(
            Commit(
                request.group_id,
                request.generation_id_or_member_epoch,
                request.member_id,
                request.group_instance_id,
                client,
                reply,
                offsets,
            ),
            context.api_version,
            now_ms,
        )
    )


async def _in_parts(
    services: GroupServices, request: OffsetCommitRequest, context: RequestContext, split: Split
) -> Any:
    """Each part is stored by itself, as Kafka answers for each partition by itself."""
    outcome: PartitionErrors = {}
    all_offsets = list(split.offsets.items())
    async for start in services.slices.iterate(range(0, len(all_offsets), OFFSETS_PER_STEP)):
        answer = _commit(services, request, context, dict(all_offsets[start : start + OFFSETS_PER_STEP]))
        outcome.update(await answer if isinstance(answer, Coroutine) else answer)
    return await services.slices.run(_response(context, split, outcome))


async def _answered_later(
    services: GroupServices, context: RequestContext, split: Split, answer: Coroutine[object, object, PartitionErrors]
) -> Any:
    return await services.slices.run(_response(context, split, await answer))


# -- the response ------------------------------------------------------------------------------------------------------


def _response(
    context: RequestContext, split: Split, outcome: PartitionErrors
) -> Work[OffsetCommitResponse | PreEncoded]:
    topics, unknown = split.topics, split.unknown
    if not unknown and not any(outcome.values()) and _is_short(topics):
        return _without_errors(context.api_version, topics)
    response = OffsetCommitResponse()
    for name, topic_id, indexes in topics:
        yield
        answers: list[OffsetCommitResponsePartition] = []
        for start in range(0, len(indexes), PARTITIONS_PER_PAUSE):
            if start:
                yield
            for index in indexes[start : start + PARTITIONS_PER_PAUSE]:
                where = name, index
                answers.append(OffsetCommitResponsePartition(index, unknown.get(where) or outcome[where]))
        response.topics.append(OffsetCommitResponseTopic(name, topic_id, answers))
    return response


def _is_short(topics: tuple[CommittedTopic, ...]) -> bool:
    """Whether a response is small enough to be kept. A topic without partitions may not exist and have any name."""
    counts = [len(topic.indexes) for topic in topics]
    return len(counts) <= KEPT_TOPICS and 0 not in counts and sum(counts) <= KEPT_PARTITIONS


@lru_cache(KEPT_RESPONSES)
def _without_errors(version: int, topics: tuple[CommittedTopic, ...]) -> PreEncoded:
    """A member commits the same partitions again and again, and nearly always without an error."""
    answers = [
        OffsetCommitResponseTopic(name, topic_id, [OffsetCommitResponsePartition(index) for index in indexes])
        for name, topic_id, indexes in topics
    ]
    return PreEncoded(encode(OffsetCommitResponse(topics=answers), version))


# -- the request -------------------------------------------------------------------------------------------------------


def _split(services: GroupServices, request: OffsetCommitRequest, context: RequestContext) -> Work[Split]:
    """The last offset of each partition that exists, and an error for each of the others."""
    topics: list[CommittedTopic] = []
    offsets: Offsets = {}
    unknown: PartitionErrors = {}
    by_id = context.api_version >= FIRST_WITH_TOPIC_IDS
    now_ms = services.now_ms()
    for wanted in request.topics:
        yield
        topic = services.topics.by_id(wanted.topic_id) if by_id else services.topics.get(wanted.name)
        name = topic.name if topic is not None else wanted.name
        indexes: list[int] = []
        for start in range(0, len(wanted.partitions), PARTITIONS_PER_PAUSE):
            if start:
                yield
            partitions = wanted.partitions[start : start + PARTITIONS_PER_PAUSE]
            some = [partition.partition_index for partition in partitions]
            indexes += some
            if topic is None:
                code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                unknown.update({(name, index): code for index in some})
                continue
            if min(some) < 0 or max(some) >= len(topic.partitions):
                partitions = _known(topic, partitions, unknown)
            _take(topic.name, partitions, request.retention_time_ms, now_ms, offsets)
        topics.append(CommittedTopic(name, wanted.topic_id, tuple(indexes)))
    return Split(tuple(topics), offsets, unknown)


def _known(
    topic: TopicInfo, partitions: Sequence[OffsetCommitRequestPartition], unknown: PartitionErrors
) -> list[OffsetCommitRequestPartition]:
    """The partitions that exist; adds an error for each of the others."""
    known: list[OffsetCommitRequestPartition] = []
    for partition in partitions:
        if 0 <= partition.partition_index < len(topic.partitions):
            known.append(partition)
        else:
            unknown[topic.name, partition.partition_index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return known


def _take(
    name: str,
    partitions: Sequence[OffsetCommitRequestPartition],
    retention_ms: int,
    now_ms: int,
    offsets: Offsets,
) -> None:
    """Adds the offsets of the partitions."""
    expire_timestamp = -1
    for partition in partitions:
        committed_ms = now_ms if partition.commit_timestamp == -1 else partition.commit_timestamp
        if retention_ms != DEFAULT_RETENTION:
            expire_timestamp = committed_ms + retention_ms
        offsets[name, partition.partition_index] = OffsetCommitValue(
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata or "",
            committed_ms,
            expire_timestamp,
        )
