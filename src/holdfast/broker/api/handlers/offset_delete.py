"""OffsetDelete: deletes committed offsets of topics that no member reads."""

from __future__ import annotations

from collections.abc import Coroutine

from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import GroupServices
from holdfast.broker.util.slices import Work
from holdfast.coordinator.offsets.commit import PartitionErrors
from holdfast.coordinator.offsets.delete import OffsetDeletion
from holdfast.wire.apis.offset_delete import (
    OFFSET_DELETE,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from holdfast.wire.error_codes import ErrorCode


@handler(OFFSET_DELETE)
async def offset_delete(
    services: GroupServices,
    request: OffsetDeleteRequest,
    context: RequestContext,  # noqa: ARG001
) -> OffsetDeleteResponse:
    outcome = await services.slices.run(_looked_up(services, request))
    wanted = [key for key, code in outcome.items() if code is ErrorCode.NONE]
    groups = services.groups
    answer = groups.submit(groups.coordinator.delete_offsets, request.group_id, wanted)
    deletion: OffsetDeletion = await answer if isinstance(answer, Coroutine) else answer
    if deletion.error_code is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=deletion.error_code)
    outcome.update(deletion.partitions)
    return OffsetDeleteResponse(topics=await services.slices.run(_answered(request, outcome)))


def _looked_up(services: GroupServices, request: OffsetDeleteRequest) -> Work[PartitionErrors]:
    """Whether each of the partitions exists."""
    outcome: PartitionErrors = {}
    for topic in request.topics:
        yield
        known = services.topics.get(topic.name)
        for partition in topic.partitions:
            yield
            exists = known is not None and 0 <= partition.partition_index < len(known.partitions)
            code = ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            outcome[topic.name, partition.partition_index] = code
    return outcome


def _answered(request: OffsetDeleteRequest, outcome: PartitionErrors) -> Work[list[OffsetDeleteResponseTopic]]:
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
