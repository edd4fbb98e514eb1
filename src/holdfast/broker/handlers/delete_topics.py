"""DeleteTopics: topics go, by name or, from v6 on, by id."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from holdfast.broker.dispatch import Refused, RequestContext, handles
from holdfast.broker.handlers._common import refuse_the_journal
from holdfast.broker.slices import Work, each
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
    from holdfast.broker.server import Broker
    from holdfast.broker.topics import Topic

logger = logging.getLogger(__name__)

FIRST_WITH_DELETION_DISABLED: Final = 3


@handles(DELETE_TOPICS)
async def delete_topics(broker: Broker, request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    wanted = request.topics or await broker.slices.finish(each(DeleteTopicState, request.topic_names))
    if not broker.config.delete_topic_enable:
        disabled = context.api_version >= FIRST_WITH_DELETION_DISABLED
        code = ErrorCode.TOPIC_DELETION_DISABLED if disabled else ErrorCode.INVALID_REQUEST
        return DeleteTopicsResponse(responses=[DeletableTopicResult(one.name, one.topic_id, code) for one in wanted])
    return DeleteTopicsResponse(responses=await broker.changes.to_the_end(_delete_all(broker, wanted)))


async def _delete_all(broker: Broker, wanted: Sequence[DeleteTopicState]) -> list[DeletableTopicResult]:
    """Those that may be deleted are, with one change to the disk for all of them."""
    found, results = await broker.slices.finish(_resolve(broker, wanted))
    doomed: list[Topic] = []
    for topic in found:
        try:
            refuse_the_journal(topic.name, "Deletion")
            doomed.append(topic)
        except Refused as refused:
            results.append(DeletableTopicResult(topic.name, topic.id, refused.code, refused.message))
    try:
        deleted = await broker.topics.delete_all(doomed)
    except LogError as error:
        logger.error("topic %s cannot be deleted: %s", ",".join(topic.name for topic in doomed[:10]), error)
        code, message = ErrorCode.KAFKA_STORAGE_ERROR, str(error)
        return results + [DeletableTopicResult(topic.name, topic.id, code, message) for topic in doomed]
    # False: another client has just deleted it.
    return results + [
        DeletableTopicResult(topic.name, topic.id) if is_deleted else _unknown_name(topic.name)
        for topic, is_deleted in zip(doomed, deleted, strict=True)
    ]


def _resolve(
    broker: Broker, wanted: Sequence[DeleteTopicState]
) -> Work[tuple[list[Topic], list[DeletableTopicResult]]]:
    """The topics to delete, and the refusals. Whatever is named twice, in whichever way, is left alone."""
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
    doomed: dict[bytes, Topic] = {}
    for topic_id, count in ids.items():
        yield
        topic = broker.topics.by_id(topic_id)
        if count > 1:
            refusals.append(_invalid(None, topic_id, "Duplicate topic id."))
        elif topic is None:
            message = "This server does not host this topic ID."
            refusals.append(DeletableTopicResult(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, message))
        else:
            doomed[topic_id] = topic
    for name, count in names.items():
        yield
        topic = broker.topics.get(name)
        if count > 1:
            refusals.append(_invalid(name, ZERO_UUID, "Duplicate topic name."))
        elif topic is None:
            refusals.append(_unknown_name(name))
        elif topic.id in ids:
            doomed.pop(topic.id, None)
            message = "The provided topic name maps to an ID that was already supplied."
            refusals.append(_invalid(name, topic.id, message))
        else:
            doomed[topic.id] = topic
    return list(doomed.values()), refusals


def _invalid(name: str | None, topic_id: bytes, message: str) -> DeletableTopicResult:
    return DeletableTopicResult(name, topic_id, ErrorCode.INVALID_REQUEST, message)


def _unknown_name(name: str) -> DeletableTopicResult:
    message = "This server does not host this topic-partition."
    return DeletableTopicResult(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
