"""OffsetDelete: forget how far a group has read, where nobody reads."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.broker.slices import Work
from holdfast.coordinator.offsets import OffsetDeletion, Outcome
from holdfast.wire.apis.offset_delete import (
    OFFSET_DELETE,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker


@handles(OFFSET_DELETE)
async def offset_delete(
    broker: Broker,
    request: OffsetDeleteRequest,
    context: RequestContext,  # noqa: ARG001
) -> OffsetDeleteResponse:
    outcome = await broker.slices.finish(_looked_up(broker, request))
    wanted = [key for key, code in outcome.items() if code is ErrorCode.NONE]
    groups = broker.groups
    answer = groups.ask(
        lambda ticket, now_ms: groups.coordinator.delete_offsets(request.group_id, wanted, ticket, now_ms)
    )
    deletion: OffsetDeletion = await answer if isinstance(answer, Coroutine) else answer
    if deletion.error_code is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=deletion.error_code)
    outcome.update(deletion.partitions)
    return OffsetDeleteResponse(topics=await broker.slices.finish(_answered(request, outcome)))


def _looked_up(broker: Broker, request: OffsetDeleteRequest) -> Work[Outcome]:
    """Which of the partitions there are."""
    outcome: Outcome = {}
    for topic in request.topics:
        yield
        known = broker.topics.get(topic.name)
        for partition in topic.partitions:
            yield
            exists = known is not None and known.partition(partition.partition_index) is not None
            code = ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            outcome[topic.name, partition.partition_index] = code
    return outcome


def _answered(request: OffsetDeleteRequest, outcome: Outcome) -> Work[list[OffsetDeleteResponseTopic]]:
    topics: list[OffsetDeleteResponseTopic] = []
    for topic in request.topics:
        yield
        partitions: list[OffsetDeleteResponsePartition] = []
        for wanted in topic.partitions:
            yield
            code = outcome[topic.name, wanted.partition_index]
            partitions.append(OffsetDeleteResponsePartition(wanted.partition_index, code))
        topics.append(OffsetDeleteResponseTopic(topic.name, partitions))
    return topics
