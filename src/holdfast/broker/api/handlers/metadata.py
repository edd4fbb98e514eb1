"""Metadata: this broker, and the topics with their partitions.

A request for a topic may create it. As in Kafka, the reply still has UNKNOWN_TOPIC_OR_PARTITION and the client retries.
Holdfast sends the reply when the topic exists, so that the next request finds it.

Building a reply with thousands of partitions would block the event loop for too long, so a worker thread builds it. The
reply for all topics is cached until a topic changes, because every admin client and many consumers request it
repeatedly.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from holdfast.broker.api.handlers.create_topics import DEFAULT, MAX_PARTITIONS_PER_REQUEST, create_topic
from holdfast.broker.api.registry import handler
from holdfast.broker.api.replies import PartialError, PreEncoded
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import Services
from holdfast.broker.authorization.visibility import Visibility
from holdfast.broker.storage.partition import LEADER_EPOCH
from holdfast.broker.storage.topics import INTERNAL_TOPICS, Topic, Topics, invalid_name
from holdfast.broker.util.slices import Work, sliced_map
from holdfast.log.inspection import run_to_completion
from holdfast.wire.apis.create_topics import CreatableTopic
from holdfast.wire.apis.metadata import (
    METADATA,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.fields import ZERO_UUID
from holdfast.wire.message import encode

logger = logging.getLogger(__name__)

Reply: TypeAlias = MetadataResponse | PreEncoded
PendingMetadata: TypeAlias = Coroutine[Any, Any, Reply]

FIRST_WITH_NULL_FOR_ALL: Final = 1
FIRST_BY_ID: Final = 12
MAX_PARTITIONS_ON_LOOP: Final = 1000
"""Each partition takes about a microsecond. For fewer partitions than this, passing the work to a thread would take
longer."""


@dataclass(frozen=True, slots=True)
class _MetadataQuery:
    services: Services
    request: MetadataRequest
    version: int
    advertised: tuple[str, int]
    """The address of this broker for the client."""
    visibility: Visibility


@handler(METADATA)
def metadata(services: Services, request: MetadataRequest, context: RequestContext) -> Work[Reply | PendingMetadata]:
    wanted, version = request.topics, context.api_version
    query = _MetadataQuery(services, request, version, context.advertised, context.visibility)
    if wanted is None or (not wanted and version < FIRST_WITH_NULL_FOR_ALL):
        return (yield from _all_topics(query))
    ids: dict[bytes, None] = {}
    names: dict[str, None] = {}
    unnamed = False
    for one in wanted:
        yield
        if one.topic_id != ZERO_UUID:
            ids[one.topic_id] = None
        if one.name is not None:
            names[one.name] = None
        else:
            unnamed = True
    code = _malformed(bool(ids), unnamed, version)
    if code:
        topics = yield from sliced_map(lambda one: MetadataResponseTopic(code, one.name or "", one.topic_id), wanted)
        return MetadataResponse(topics=topics, error_code=code)
    # As in Kafka, names are ignored if the request has one id.
    return (yield from _by_id(query, ids)) if ids else (yield from _by_name(query, names))


def _malformed(by_id: bool, unnamed: bool, version: int) -> ErrorCode:
    if version < FIRST_BY_ID:
        return ErrorCode.INVALID_REQUEST if by_id or unnamed else ErrorCode.NONE
    return ErrorCode.UNKNOWN_SERVER_ERROR if unnamed and not by_id else ErrorCode.NONE


# -- all topics --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _CachedListing:
    """The replies for all topics, valid until one of them changes."""

    state: list[tuple[bytes, int]] = field(default_factory=list)
    replies: dict[tuple[int, bool, bool, tuple[str, int]], asyncio.Task[PreEncoded]] = field(default_factory=dict)


_listings: Final[WeakKeyDictionary[Topics, _CachedListing]] = WeakKeyDictionary()


def _all_topics(query: _MetadataQuery) -> Work[Reply | PendingMetadata]:
    services, request, visibility = query.services, query.request, query.visibility
    if not visibility.is_complete:
        seen: list[Topic] = []
        for topic in list(services.topics):
            yield
            if visibility.lists_topic(topic.name):
                seen.append(topic)
        return (yield from _reply(query, seen))
    topics = list(services.topics)
    if sum(len(topic.partitions) for topic in topics) <= MAX_PARTITIONS_ON_LOOP:
        return (yield from _response(query, topics))
    state = [(topic.id, len(topic.partitions)) for topic in topics]
    listing = _listings.get(services.topics)
    if listing is None or listing.state != state:
        listing = _listings[services.topics] = _CachedListing(state)
    key = (
        query.version,
        request.include_topic_authorized_operations,
        request.include_cluster_authorized_operations,
        query.advertised,
    )
    task = listing.replies.get(key)
    if task is None:
        task = listing.replies[key] = asyncio.get_running_loop().create_task(_make_in_thread(query, topics))
    return task.result() if task.done() else _made(task)


async def _made(task: asyncio.Task[PreEncoded]) -> PreEncoded:
    return await asyncio.shield(task)


# -- some topics -------------------------------------------------------------------------------------------------------


def _by_id(query: _MetadataQuery, ids: Iterable[bytes]) -> Work[Reply | PendingMetadata]:
    known: list[Topic] = []
    unknown: list[MetadataResponseTopic] = []
    for topic_id in ids:
        yield
        topic = query.services.topics.by_id(topic_id)
        # As in Kafka, a client that may not describe a topic does not learn its name by its id.
        if topic is None or not query.visibility.may_describe_topic(topic.name):
            unknown.append(MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id))
        else:
            known.append(topic)
    return (yield from _reply(query, known, unknown_ids=unknown))


def _by_name(query: _MetadataQuery, names: Iterable[str]) -> Work[Reply | PendingMetadata]:
    services = query.services
    known: list[Topic] = []
    missing: list[MetadataResponseTopic] = []
    to_create: list[str] = []
    may_create = query.request.allow_auto_topic_creation and services.config.auto_create_topics_enable
    for name in names:
        yield
        topic = services.topics.get(name)
        if not query.visibility.may_describe_topic(name):
            # The response does not reveal whether it exists.
            missing.append(MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name))
        elif topic is not None:
            known.append(topic)
        elif invalid_name(name) is not None:
            missing.append(MetadataResponseTopic(ErrorCode.INVALID_TOPIC_EXCEPTION, name))
        elif may_create and not query.visibility.may_create_topic(name):
            missing.append(MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name))
        else:
            internal = name in INTERNAL_TOPICS
            missing.append(MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, is_internal=internal))
            # An internal topic is created by the broker itself, with the configs that it needs.
            if may_create and not internal:
                to_create.append(name)
    if len(to_create) * services.config.num_partitions > MAX_PARTITIONS_PER_REQUEST:
        # Kafka's controller rejects all of them.
        logger.warning("%d unknown topics are requested at once; none of them is created", len(to_create))
        to_create = []
    reply = yield from _reply(query, known, missing=missing)
    return services.tasks.run(_after_creating(services, to_create, reply)) if to_create else reply


async def _after_creating(services: Services, names: Sequence[str], reply: Reply | PendingMetadata) -> Reply:
    for name in names:
        try:
            await create_topic(services, CreatableTopic(name, DEFAULT, DEFAULT))
        except PartialError as refused:
            # Another client may have created it meanwhile.
            if refused.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                logger.warning("topic %s is requested but cannot be created: %s", name, refused.message)
    return await reply if isinstance(reply, Coroutine) else reply


# -- the reply ---------------------------------------------------------------------------------------------------------


def _reply(
    query: _MetadataQuery,
    known: Sequence[Topic],
    *,
    unknown_ids: Sequence[MetadataResponseTopic] = (),
    missing: Sequence[MetadataResponseTopic] = (),
) -> Work[Reply | PendingMetadata]:
    if sum(len(topic.partitions) for topic in known) <= MAX_PARTITIONS_ON_LOOP:
        return (yield from _response(query, known, unknown_ids, missing))
    return _make_in_thread(query, known, unknown_ids, missing)


async def _make_in_thread(
    query: _MetadataQuery,
    known: Sequence[Topic],
    unknown_ids: Sequence[MetadataResponseTopic] = (),
    missing: Sequence[MetadataResponseTopic] = (),
) -> PreEncoded:
    def make() -> bytes:
        return encode(run_to_completion(_response(query, known, unknown_ids, missing)), query.version)

    return PreEncoded(await asyncio.to_thread(make))


def _response(
    query: _MetadataQuery,
    known: Sequence[Topic],
    unknown_ids: Sequence[MetadataResponseTopic] = (),
    missing: Sequence[MetadataResponseTopic] = (),
) -> Work[MetadataResponse]:
    """In Kafka's order: unknown ids, then the topics, then unknown names."""
    services, request, visibility = query.services, query.request, query.visibility
    host, port = query.advertised
    named = [*(_described(services.node_id, topic) for topic in known), *missing]
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(services.node_id, host, port, services.rack)],
        cluster_id=services.cluster_id,
        controller_id=services.node_id,
        topics=[*unknown_ids, *named],
    )
    if request.include_topic_authorized_operations:
        for topic in named:
            yield
            topic.topic_authorized_operations = visibility.topic_operations(topic.name or "")
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = visibility.cluster_operations()
    return response


def _described(node_id: int, topic: Topic) -> MetadataResponseTopic:
    partitions = _partitions(node_id, len(topic.partitions))
    return MetadataResponseTopic(ErrorCode.NONE, topic.name, topic.id, topic.internal, partitions)


@lru_cache(maxsize=64)
def _partitions(node_id: int, count: int) -> list[MetadataResponsePartition]:
    """One broker leads all of them, so topics with the same number of partitions share the list."""
    replicas = [node_id]
    return [
        MetadataResponsePartition(ErrorCode.NONE, index, node_id, LEADER_EPOCH, replicas, replicas)
        for index in range(count)
    ]
