"""OffsetCommit: remember how far a group has read."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.broker.slices import Work
from holdfast.coordinator.offsets import Commit, Outcome, TopicPartition
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

if TYPE_CHECKING:
    from holdfast.broker.server import Broker

FIRST_WITH_TOPIC_IDS: Final = 10
DEFAULT_RETENTION: Final = -1
MOST_AT_ONCE: Final = 1_000
"""So many offsets are stored at once: it takes some milliseconds."""


@handles(OFFSET_COMMIT)
def offset_commit(
    broker: Broker, request: OffsetCommitRequest, context: RequestContext
) -> Work[OffsetCommitResponse | Coroutine[object, object, OffsetCommitResponse]]:
    """Topics and partitions that do not exist are refused one by one; the rest goes to the group."""
    response, offsets = yield from _split(broker, request, context)
    if not offsets:
        return response
    if len(offsets) > MOST_AT_ONCE:
        return _in_parts(broker, request, context, response, offsets)
    answer = _commit(broker, request, context, offsets)
    if isinstance(answer, Coroutine):
        return _filled_later(broker, response, answer)
    return (yield from _filled(response, answer))


def _commit(
    broker: Broker,
    request: OffsetCommitRequest,
    context: RequestContext,
    offsets: list[tuple[TopicPartition, OffsetCommitValue]],
) -> Any:
    groups = broker.groups
    client = groups.client(context)
    return groups.ask(
        lambda ticket, now_ms: groups.coordinator.commit_offsets(
            Commit(
                request.group_id,
                request.generation_id_or_member_epoch,
                request.member_id,
                request.group_instance_id,
                client,
                ticket,
                offsets,
            ),
            context.api_version,
            now_ms,
        )
    )


async def _in_parts(
    broker: Broker,
    request: OffsetCommitRequest,
    context: RequestContext,
    response: OffsetCommitResponse,
    offsets: list[tuple[TopicPartition, OffsetCommitValue]],
) -> OffsetCommitResponse:
    """Each part is stored by itself, as Kafka answers for each partition by itself."""
    outcome: Outcome = {}
    async for start in broker.slices.over(range(0, len(offsets), MOST_AT_ONCE)):
        answer = _commit(broker, request, context, offsets[start : start + MOST_AT_ONCE])
        outcome.update(await answer if isinstance(answer, Coroutine) else answer)
    return await broker.slices.finish(_filled(response, outcome))


async def _filled_later(
    broker: Broker, response: OffsetCommitResponse, answer: Coroutine[object, object, Outcome]
) -> OffsetCommitResponse:
    return await broker.slices.finish(_filled(response, await answer))


def _filled(response: OffsetCommitResponse, outcome: Outcome) -> Work[OffsetCommitResponse]:
    if not any(outcome.values()):
        return response  # no error at all, as nearly always
    for topic in response.topics:
        for partition in topic.partitions:
            yield
            if partition.error_code == ErrorCode.NONE:
                partition.error_code = outcome[topic.name, partition.partition_index]
    return response


def _split(
    broker: Broker, request: OffsetCommitRequest, context: RequestContext
) -> Work[tuple[OffsetCommitResponse, list[tuple[TopicPartition, OffsetCommitValue]]]]:
    """The response with the unknown ones refused, and the offsets of the others: the last one of each partition."""
    response = OffsetCommitResponse()
    offsets: dict[TopicPartition, OffsetCommitValue] = {}
    by_id = context.api_version >= FIRST_WITH_TOPIC_IDS
    now_ms = broker.now_ms()
    for wanted in request.topics:
        yield
        topic = broker.topics.by_id(wanted.topic_id) if by_id else broker.topics.get(wanted.name)
        name = topic.name if topic is not None else wanted.name
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        count = len(topic.partitions) if topic is not None else 0
        answers: list[OffsetCommitResponsePartition] = []
        for partition in wanted.partitions:
            yield
            index = partition.partition_index
            code = ErrorCode.NONE
            if 0 <= index < count:
                offsets[name, index] = _value(partition, request.retention_time_ms, now_ms)
            else:
                code = unknown if topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answers.append(OffsetCommitResponsePartition(index, code))
        response.topics.append(OffsetCommitResponseTopic(name, wanted.topic_id, answers))
    return response, list(offsets.items())


def _value(partition: OffsetCommitRequestPartition, retention_ms: int, now_ms: int) -> OffsetCommitValue:
    committed_ms = now_ms if partition.commit_timestamp == -1 else partition.commit_timestamp
    return OffsetCommitValue(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp=committed_ms,
        expire_timestamp=-1 if retention_ms == DEFAULT_RETENTION else committed_ms + retention_ms,
    )
