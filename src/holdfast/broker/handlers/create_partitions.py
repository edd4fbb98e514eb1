"""CreatePartitions: topics grow; the count is the new total."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.broker.dispatch import Refused, RequestContext, handles
from holdfast.broker.handlers._common import check_assignment, refuse_the_journal
from holdfast.broker.handlers.create_topics import MAX_PARTITIONS_PER_REQUEST
from holdfast.broker.slices import counted
from holdfast.log import LogError
from holdfast.wire.apis.create_partitions import (
    CREATE_PARTITIONS,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker
    from holdfast.broker.topics import Topic

logger = logging.getLogger(__name__)


@handles(CREATE_PARTITIONS)
async def create_partitions(
    broker: Broker,
    request: CreatePartitionsRequest,
    context: RequestContext,  # noqa: ARG001
) -> CreatePartitionsResponse:
    times = await broker.slices.finish(counted(wanted.name for wanted in request.topics))
    duplicates = [
        CreatePartitionsTopicResult(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        for name, count in times.items()
        if count > 1
    ]
    wanted = [one async for one in broker.slices.over(request.topics) if times[one.name] == 1]
    results = await broker.changes.to_the_end(_grow_all(broker, wanted, validate_only=request.validate_only))
    return CreatePartitionsResponse(results=duplicates + results)


async def _grow_all(
    broker: Broker, wanted: Sequence[CreatePartitionsTopic], *, validate_only: bool
) -> list[CreatePartitionsTopicResult]:
    """Those that can grow do, with one change to the disk for all of them."""
    results: dict[str, CreatePartitionsTopicResult] = {}
    left = list(wanted)
    while left:
        growing: list[tuple[Topic, int]] = []
        async for one in broker.slices.over(left):
            try:
                growing.append((_check(broker, one), one.count))
                results[one.name] = CreatePartitionsTopicResult(one.name)
            except Refused as refused:
                results[one.name] = CreatePartitionsTopicResult(one.name, refused.code, refused.message)
        if validate_only:
            break
        try:
            grown = await broker.topics.grow_all(growing)
        except LogError as error:
            logger.error("topic %s cannot grow: %s", ",".join(topic.name for topic, _ in growing[:10]), error)
            for topic, _ in growing:
                results[topic.name] = CreatePartitionsTopicResult(topic.name, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            break
        # Another client has deleted or grown it meanwhile; what is asked for now may be refused.
        again = {topic.name for (topic, _), is_grown in zip(growing, grown, strict=True) if not is_grown}
        left = [one for one in left if one.name in again]
    return list(results.values())


def _check(broker: Broker, wanted: CreatePartitionsTopic) -> Topic:
    """The topic, if it can grow as wanted."""
    topic = broker.topics.get(wanted.name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    refuse_the_journal(topic.name, "Growth")
    present = len(topic.partitions)
    if wanted.count == present:
        raise Refused(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if wanted.count < present:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {present} partition(s); {wanted.count} would not be an increase.",
        )
    additional = wanted.count - present
    if additional > MAX_PARTITIONS_PER_REQUEST:
        raise Refused(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    if wanted.assignments is not None:
        if len(wanted.assignments) != additional:
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {additional} additional partition(s), "
                f"but only {len(wanted.assignments)} assignment(s) were specified.",
            )
        for assignment in wanted.assignments:
            check_assignment(assignment.broker_ids, broker.node_id)
    return topic
