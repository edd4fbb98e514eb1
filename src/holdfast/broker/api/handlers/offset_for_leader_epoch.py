"""OffsetForLeaderEpoch: the end offset of a leader epoch. There is only the first epoch, which ends at the log end
offset."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from holdfast.broker.api.handlers._common import check_leader_epoch
from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.storage.partition import LEADER_EPOCH
from holdfast.broker.util.slices import Work, sliced_map
from holdfast.wire.apis.offset_for_leader_epoch import (
    OFFSET_FOR_LEADER_EPOCH,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderPartitionResult,
    OffsetForLeaderTopicResult,
)
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.storage.topics import Topic

UNDEFINED: Final = -1


@handler(OFFSET_FOR_LEADER_EPOCH)
def offset_for_leader_epoch(
    services: Services,
    request: OffsetForLeaderEpochRequest,
    context: RequestContext,  # noqa: ARG001
) -> Work[OffsetForLeaderEpochResponse]:
    response = OffsetForLeaderEpochResponse()
    for wanted_topic in request.topics:
        yield
        topic = services.topics.get(wanted_topic.topic)
        results = yield from sliced_map(partial(_end_of_epoch, topic), wanted_topic.partitions)
        response.topics.append(OffsetForLeaderTopicResult(wanted_topic.topic, results))
    return response


def _end_of_epoch(topic: Topic | None, wanted: OffsetForLeaderPartition) -> OffsetForLeaderPartitionResult:
    partition = topic.partition(wanted.partition) if topic is not None else None
    if partition is None:
        return OffsetForLeaderPartitionResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, wanted.partition)
    code = check_leader_epoch(wanted.current_leader_epoch)
    epoch = wanted.leader_epoch
    if code or epoch == UNDEFINED or epoch > LEADER_EPOCH:
        return OffsetForLeaderPartitionResult(code, wanted.partition)
    # As in Kafka, an epoch before the first one ends at the log start offset.
    end_offset = partition.log.end_offset if epoch == LEADER_EPOCH else partition.log.start_offset
    return OffsetForLeaderPartitionResult(ErrorCode.NONE, wanted.partition, epoch, end_offset)
