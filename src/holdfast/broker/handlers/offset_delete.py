"""OffsetDelete: forget how far a group has read, where nobody reads."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING

from holdfast.broker.dispatch import RequestContext, handles
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
    outcome: Outcome = {}
    for topic in request.topics:
        known = broker.topics.get(topic.name)
        for partition in topic.partitions:
            exists = known is not None and known.partition(partition.partition_index) is not None
            code = ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            outcome[topic.name, partition.partition_index] = code
    wanted = [key for key, code in outcome.items() if code is ErrorCode.NONE]
    groups = broker.groups
    answer = groups.ask(
        lambda ticket, now_ms: groups.coordinator.delete_offsets(request.group_id, wanted, ticket, now_ms)
    )
    deletion: OffsetDeletion = await answer if isinstance(answer, Coroutine) else answer
    if deletion.error_code is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=deletion.error_code)
    outcome.update(deletion.partitions)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                topic.name,
                [
                    OffsetDeleteResponsePartition(p.partition_index, outcome[topic.name, p.partition_index])
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
