"""CreatePartitions: adds partitions to topics; the count is the new total."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.broker.api.handlers._common import check_assignment, reject_internal_topic
from holdfast.broker.api.handlers.create_topics import MAX_PARTITIONS_PER_REQUEST
from holdfast.broker.api.registry import handler
from holdfast.broker.api.replies import PartialError
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.util.slices import sliced_count
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
    from holdfast.broker.storage.topics import Topic

logger = logging.getLogger(__name__)


@handler(CREATE_PARTITIONS)
async def create_partitions(
    services: Services,
    request: CreatePartitionsRequest,
    context: RequestContext,  # noqa: ARG001
) -> CreatePartitionsResponse:
    times = await services.slices.run(sliced_count(wanted.name for wanted in request.topics))
    duplicates = [
        CreatePartitionsTopicResult(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        for name, count in times.items()
        if count > 1
    ]
    wanted = [one async for one in services.slices.iterate(request.topics) if times[one.name] == 1]
    results = await services.tasks.run(_grow_all(services, wanted, validate_only=request.validate_only))
    return CreatePartitionsResponse(results=duplicates + results)


async def _grow_all(
    services: Services, wanted: Sequence[CreatePartitionsTopic], *, validate_only: bool
) -> list[CreatePartitionsTopicResult]:
    """Adds the partitions of all valid topics, with one write to disk."""
    results: dict[str, CreatePartitionsTopicResult] = {}
    left = list(wanted)
    while left:
        growing: list[tuple[Topic, int]] = []
        async for one in services.slices.iterate(left):
            try:
                growing.append((_check(services, one), one.count))
                results[one.name] = CreatePartitionsTopicResult(one.name)
            except PartialError as refused:
                results[one.name] = CreatePartitionsTopicResult(one.name, refused.code, refused.message)
        if validate_only:
            break
        try:
            grown = await services.topics.grow_all(growing)
        except LogError as error:
            logger.error("topic %s cannot grow: %s", ",".join(topic.name for topic, _ in growing[:10]), error)
            for topic, _ in growing:
                results[topic.name] = CreatePartitionsTopicResult(topic.name, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            break
        # Another client has deleted the topic or added partitions meanwhile, so the request is checked again.
        again = {topic.name for (topic, _), is_grown in zip(growing, grown, strict=True) if not is_grown}
        left = [one for one in left if one.name in again]
    return list(results.values())


def _check(services: Services, wanted: CreatePartitionsTopic) -> Topic:
    """The topic, if it can grow as requested."""
    topic = services.topics.get(wanted.name)
    if topic is None:
        raise PartialError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    reject_internal_topic(topic.name, "Growth")
    present = len(topic.partitions)
    if wanted.count == present:
        raise PartialError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if wanted.count < present:
        raise PartialError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {present} partition(s); {wanted.count} would not be an increase.",
        )
    additional = wanted.count - present
    if additional > MAX_PARTITIONS_PER_REQUEST:
        raise PartialError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    if wanted.assignments is not None:
        if len(wanted.assignments) != additional:
            raise PartialError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {additional} additional partition(s), "
                f"but only {len(wanted.assignments)} assignment(s) were specified.",
            )
        for assignment in wanted.assignments:
            check_assignment(assignment.broker_ids, services.node_id)
    return topic
