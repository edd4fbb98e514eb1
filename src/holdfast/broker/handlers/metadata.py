"""Metadata: where this broker is, and which topics and partitions there are.

Asking for a topic may create it. As in Kafka the reply then still says that it is unknown, and the client asks again;
ours is sent when the topic is there, so that the next request finds it.

A reply with thousands of partitions takes longer to make than the event loop may be held. It is made in a worker
thread, and the one for all topics is kept until a topic changes, since every admin client and many consumers ask for
it again and again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from holdfast.broker.dispatch import Encoded, Refused, RequestContext, handles
from holdfast.broker.handlers._common import cluster_operations, topic_operations
from holdfast.broker.handlers.create_topics import DEFAULT, MAX_PARTITIONS_PER_REQUEST, create_topic
from holdfast.broker.partition import LEADER_EPOCH
from holdfast.broker.security.acls import Operation, ResourceType
from holdfast.broker.slices import Work, each
from holdfast.broker.topics import INTERNAL_TOPICS, Topic, invalid_name
from holdfast.log.inspection import at_once
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

if TYPE_CHECKING:
    from holdfast.broker.security.user_desk import Access
    from holdfast.broker.server import Broker

logger = logging.getLogger(__name__)

Reply: TypeAlias = MetadataResponse | Encoded
Waiting: TypeAlias = Coroutine[Any, Any, Reply]

FIRST_WITH_NULL_FOR_ALL: Final = 1
FIRST_BY_ID: Final = 12
MAX_PARTITIONS_ON_LOOP: Final = 1000
"""A microsecond or so for each partition: up to here a reply is made in less time than a thread is worth."""


@dataclass(frozen=True, slots=True)
class _Question:
    broker: Broker
    request: MetadataRequest
    version: int
    advertised: tuple[str, int]
    """What this client is to be told of where we are."""
    access: Access | None
    """What it may see; None: everything."""


@handles(METADATA)
def metadata(broker: Broker, request: MetadataRequest, context: RequestContext) -> Work[Reply | Waiting]:
    wanted, version = request.topics, context.api_version
    asked = _Question(broker, request, version, context.advertised, context.access)
    if wanted is None or (not wanted and version < FIRST_WITH_NULL_FOR_ALL):
        return (yield from _all_topics(asked))
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
        topics = yield from each(lambda one: MetadataResponseTopic(code, one.name or "", one.topic_id), wanted)
        return MetadataResponse(topics=topics, error_code=code)
    # As in Kafka: with one id in the request, names count for nothing.
    return (yield from _by_id(asked, ids)) if ids else (yield from _by_name(asked, names))


def _malformed(by_id: bool, unnamed: bool, version: int) -> ErrorCode:
    if version < FIRST_BY_ID:
        return ErrorCode.INVALID_REQUEST if by_id or unnamed else ErrorCode.NONE
    return ErrorCode.UNKNOWN_SERVER_ERROR if unnamed and not by_id else ErrorCode.NONE


# -- all topics --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Listing:
    """All topics as they are until one of them changes, and the replies that say so."""

    state: list[tuple[bytes, int]] = field(default_factory=list)
    replies: dict[tuple[int, bool, bool, tuple[str, int]], asyncio.Task[Encoded]] = field(default_factory=dict)


_listings: Final[WeakKeyDictionary[Broker, _Listing]] = WeakKeyDictionary()


def _all_topics(asked: _Question) -> Work[Reply | Waiting]:
    broker, request, access = asked.broker, asked.request, asked.access
    if access is not None:
        seen: list[Topic] = []
        for topic in list(broker.topics):
            yield
            if access.sees(ResourceType.TOPIC, topic.name):
                seen.append(topic)
        return (yield from _reply(asked, seen))
    topics = list(broker.topics)
    if sum(len(topic.partitions) for topic in topics) <= MAX_PARTITIONS_ON_LOOP:
        return (yield from _response(asked, topics))
    state = [(topic.id, len(topic.partitions)) for topic in topics]
    listing = _listings.get(broker)
    if listing is None or listing.state != state:
        listing = _listings[broker] = _Listing(state)
    key = (
        asked.version,
        request.include_topic_authorized_operations,
        request.include_cluster_authorized_operations,
        asked.advertised,
    )
    task = listing.replies.get(key)
    if task is None:
        task = listing.replies[key] = asyncio.get_running_loop().create_task(_make_in_thread(asked, topics))
    return task.result() if task.done() else _made(task)


async def _made(task: asyncio.Task[Encoded]) -> Encoded:
    return await asyncio.shield(task)


# -- some topics -------------------------------------------------------------------------------------------------------


def _by_id(asked: _Question, ids: Iterable[bytes]) -> Work[Reply | Waiting]:
    known: list[Topic] = []
    unknown: list[MetadataResponseTopic] = []
    for topic_id in ids:
        yield
        topic = asked.broker.topics.by_id(topic_id)
        # As Kafka: whoever may not know of a topic does not learn its name by its id.
        if topic is None or not _is_visible(asked, topic.name):
            unknown.append(MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id))
        else:
            known.append(topic)
    return (yield from _reply(asked, known, unknown_ids=unknown))


def _by_name(asked: _Question, names: Iterable[str]) -> Work[Reply | Waiting]:
    broker = asked.broker
    known: list[Topic] = []
    missing: list[MetadataResponseTopic] = []
    to_create: list[str] = []
    may_create = asked.request.allow_auto_topic_creation and broker.config.auto_create_topics_enable
    for name in names:
        yield
        topic = broker.topics.get(name)
        if not _is_visible(asked, name):
            # Whether it exists or not: that, too, is not to be known.
            missing.append(MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name))
        elif topic is not None:
            known.append(topic)
        elif invalid_name(name) is not None:
            missing.append(MetadataResponseTopic(ErrorCode.INVALID_TOPIC_EXCEPTION, name))
        elif may_create and not _is_creatable(asked, name):
            missing.append(MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name))
        else:
            internal = name in INTERNAL_TOPICS
            missing.append(MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, is_internal=internal))
            # An internal topic is made by whoever keeps something in it, with the configs that takes.
            if may_create and not internal:
                to_create.append(name)
    if len(to_create) * broker.config.num_partitions > MAX_PARTITIONS_PER_REQUEST:
        # Kafka's controller refuses them all.
        logger.warning("%d unknown topics are asked for at once; none of them is created", len(to_create))
        to_create = []
    reply = yield from _reply(asked, known, missing=missing)
    return broker.changes.to_the_end(_after_creating(broker, to_create, reply)) if to_create else reply


def _is_visible(asked: _Question, name: str) -> bool:
    return asked.access is None or asked.access.topic(Operation.DESCRIBE, name)


def _is_creatable(asked: _Question, name: str) -> bool:
    access = asked.access
    return access is None or access.cluster(Operation.CREATE) or access.topic(Operation.CREATE, name)


async def _after_creating(broker: Broker, names: Sequence[str], reply: Reply | Waiting) -> Reply:
    for name in names:
        try:
            await create_topic(broker, CreatableTopic(name, DEFAULT, DEFAULT))
        except Refused as refused:
            # Somebody else may have been faster, and that is just as good.
            if refused.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                logger.warning("topic %s is asked for but cannot be created: %s", name, refused.message)
    return await reply if isinstance(reply, Coroutine) else reply


# -- the reply ---------------------------------------------------------------------------------------------------------


def _reply(
    asked: _Question,
    known: Sequence[Topic],
    *,
    unknown_ids: Sequence[MetadataResponseTopic] = (),
    missing: Sequence[MetadataResponseTopic] = (),
) -> Work[Reply | Waiting]:
    if sum(len(topic.partitions) for topic in known) <= MAX_PARTITIONS_ON_LOOP:
        return (yield from _response(asked, known, unknown_ids, missing))
    return _make_in_thread(asked, known, unknown_ids, missing)


async def _make_in_thread(
    asked: _Question,
    known: Sequence[Topic],
    unknown_ids: Sequence[MetadataResponseTopic] = (),
    missing: Sequence[MetadataResponseTopic] = (),
) -> Encoded:
    def make() -> bytes:
        return encode(at_once(_response(asked, known, unknown_ids, missing)), asked.version)

    return Encoded(await asyncio.to_thread(make))


def _response(
    asked: _Question,
    known: Sequence[Topic],
    unknown_ids: Sequence[MetadataResponseTopic] = (),
    missing: Sequence[MetadataResponseTopic] = (),
) -> Work[MetadataResponse]:
    """In Kafka's order: ids that nobody knows, then the topics, then the names that nobody has."""
    broker, request, access = asked.broker, asked.request, asked.access
    host, port = asked.advertised
    named = [*(_described(broker.node_id, topic) for topic in known), *missing]
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(broker.node_id, host, port, broker.rack)],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=[*unknown_ids, *named],
    )
    if request.include_topic_authorized_operations:
        for topic in named:
            yield
            topic.topic_authorized_operations = topic_operations(access, topic.name or "")
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(access)
    return response


def _described(node_id: int, topic: Topic) -> MetadataResponseTopic:
    partitions = _partitions(node_id, len(topic.partitions))
    return MetadataResponseTopic(ErrorCode.NONE, topic.name, topic.id, topic.internal, partitions)


@lru_cache(maxsize=64)
def _partitions(node_id: int, count: int) -> list[MetadataResponsePartition]:
    """One broker leads them all, so topics with as many partitions look alike: they share the list, unchanged."""
    replicas = [node_id]
    return [
        MetadataResponsePartition(ErrorCode.NONE, index, node_id, LEADER_EPOCH, replicas, replicas)
        for index in range(count)
    ]
