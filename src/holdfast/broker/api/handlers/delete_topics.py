"""DeleteTopics: deletes topics, by name or, from v6 on, by id."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from holdfast.broker.api.handlers._common import reject_internal_topic
from holdfast.broker.api.registry import handler
from holdfast.broker.api.replies import PartialError
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.util.slices import Work, sliced_map
from holdfast.log import LogError
from holdfast.wire.apis.delete_topics import (
    DELETE_TOPICS,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.fields import ZERO_UUID

if TYPE_CHECKING:
    from holdfast.broker.storage.topics import Topic

logger = logging.getLogger(__name__)

FIRST_WITH_DELETION_DISABLED: Final = 3


@handler(DELETE_TOPICS)
async def delete_topics(
    services: Services, request: DeleteTopicsRequest, context: RequestContext
) -> DeleteTopicsResponse:
    wanted = request.topics or await services.slices.run(sliced_map(DeleteTopicState, request.topic_names))
    if not services.config.delete_topic_enable:
        disabled = context.api_version >= FIRST_WITH_DELETION_DISABLED
        code = ErrorCode.TOPIC_DELETION_DISABLED if disabled else ErrorCode.INVALID_REQUEST
        return DeleteTopicsResponse(responses=[DeletableTopicResult(one.name, one.topic_id, code) for one in wanted])
    return DeleteTopicsResponse(responses=await services.tasks.run(_delete_all(services, wanted)))


async def _delete_all(services: Services, wanted: Sequence[DeleteTopicState]) -> list[DeletableTopicResult]:
    """Deletes all valid topics with one write to disk."""
    found, results = await services.slices.run(_resolve(services, wanted))
    to_delete: list[Topic] = []
    for topic in found:
        try:
            reject_internal_topic(topic.name, "Deletion")
            to_delete.append(topic)
        except PartialError as refused:
            results.append(DeletableTopicResult(topic.name, topic.id, refused.code, refused.message))
    try:
        deleted = await services.topics.delete_all(to_delete)
    except LogError as error:
        logger.error("topic %s cannot be deleted: %s", ",".join(topic.name for topic in to_delete[:10]), error)
        code, message = ErrorCode.KAFKA_STORAGE_ERROR, str(error)
        return results + [DeletableTopicResult(topic.name, topic.id, code, message) for topic in to_delete]
    # False: another client has just deleted it.
    return results + [
        DeletableTopicResult(topic.name, topic.id) if is_deleted else _unknown_name(topic.name)
        for topic, is_deleted in zip(to_delete, deleted, strict=True)
    ]


def _resolve(
    services: Services, wanted: Sequence[DeleteTopicState]
) -> Work[tuple[list[Topic], list[DeletableTopicResult]]]:
    """The topics to delete, and the errors. A topic that is named twice, by name or id, is not deleted."""
    refusals: list[DeletableTopicResult] = []
    names: Counter[str] = Counter()
    ids: Counter[bytes] = Counter()
    for name, topic_id in ((one.name, one.topic_id) for one in wanted):
        yield
        if name is not None and topic_id != ZERO_UUID:
            refusals.append(_invalid(name, topic_id, "You may not specify both topic name and topic id."))
        elif name is not None:
            names[name] += 1
        elif topic_id != ZERO_UUID:
            ids[topic_id] += 1
        else:
            refusals.append(_invalid(name, topic_id, "Neither topic name nor id were specified."))
    to_delete: dict[bytes, Topic] = {}
    for topic_id, count in ids.items():
        yield
        topic = services.topics.by_id(topic_id)
        if count > 1:
            refusals.append(_invalid(None, topic_id, "Duplicate topic id."))
        elif topic is None:
            message = "This server does not host this topic ID."
            refusals.append(DeletableTopicResult(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, message))
        else:
            to_delete[topic_id] = topic
    for name, count in names.items():
        yield
        topic = services.topics.get(name)
        if count > 1:
            refusals.append(_invalid(name, ZERO_UUID, "Duplicate topic name."))
        elif topic is None:
            refusals.append(_unknown_name(name))
        elif topic.id in ids:
            to_delete.pop(topic.id, None)
            message = "The provided topic name maps to an ID that was already supplied."
            refusals.append(_invalid(name, topic.id, message))
        else:
            to_delete[topic.id] = topic
    return list(to_delete.values()), refusals


def _invalid(name: str | None, topic_id: bytes, message: str) -> DeletableTopicResult:
    return DeletableTopicResult(name, topic_id, ErrorCode.INVALID_REQUEST, message)


def _unknown_name(name: str) -> DeletableTopicResult:
    message = "This server does not host this topic-partition."
    return DeletableTopicResult(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
