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
from holdfast.broker.handlers._common import ALL_CLUSTER_OPERATIONS, ALL_TOPIC_OPERATIONS
from holdfast.broker.handlers.create_topics import DEFAULT, MAX_PARTITIONS_PER_REQUEST, create_topic
from holdfast.broker.partition import LEADER_EPOCH
from holdfast.broker.topics import INTERNAL_TOPICS, Topic, invalid_name
from holdfast.wire.apis.create_topics import CreatableTopic
from holdfast.wire.apis.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.fields import ZERO_UUID
from holdfast.wire.message import encode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker

logger = logging.getLogger(__name__)

Reply: TypeAlias = MetadataResponse | Encoded
Waiting: TypeAlias = Coroutine[Any, Any, Reply]

FIRST_WITH_NULL_FOR_ALL: Final = 1
FIRST_BY_ID: Final = 12
MAX_PARTITIONS_ON_LOOP: Final = 1000
"""A microsecond or so for each partition: up to here a reply is made in less time than a thread is worth."""


@handles(METADATA)
def metadata(broker: Broker, request: MetadataRequest, context: RequestContext) -> Reply | Waiting:
    wanted, version = request.topics, context.api_version
    if wanted is None or (not wanted and version < FIRST_WITH_NULL_FOR_ALL):
        return _all_topics(broker, request, version)
    code = _malformed(wanted, version)
    if code:
        topics = [MetadataResponseTopic(code, one.name or "", one.topic_id) for one in wanted]
        return MetadataResponse(topics=topics, error_code=code)
    ids = dict.fromkeys(one.topic_id for one in wanted if one.topic_id != ZERO_UUID)
    if ids:
        # As in Kafka: with one id in the request, names count for nothing.
        return _by_id(broker, request, version, ids)
    return _by_name(broker, request, version, dict.fromkeys(one.name for one in wanted if one.name is not None))


def _malformed(wanted: Sequence[MetadataRequestTopic], version: int) -> ErrorCode:
    by_id = any(one.topic_id != ZERO_UUID for one in wanted)
    unnamed = any(one.name is None for one in wanted)
    if version < FIRST_BY_ID:
        return ErrorCode.INVALID_REQUEST if by_id or unnamed else ErrorCode.NONE
    return ErrorCode.UNKNOWN_SERVER_ERROR if unnamed and not by_id else ErrorCode.NONE


# -- all topics --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Listing:
    """All topics as they are until one of them changes, and the replies that say so."""

    state: list[tuple[bytes, int]] = field(default_factory=list)
    replies: dict[tuple[int, bool, bool], asyncio.Task[Encoded]] = field(default_factory=dict)


_listings: Final[WeakKeyDictionary[Broker, _Listing]] = WeakKeyDictionary()


def _all_topics(broker: Broker, request: MetadataRequest, version: int) -> Reply | Waiting:
    topics = list(broker.topics)
    if sum(len(topic.partitions) for topic in topics) <= MAX_PARTITIONS_ON_LOOP:
        return _response(broker, request, topics)
    state = [(topic.id, len(topic.partitions)) for topic in topics]
    listing = _listings.get(broker)
    if listing is None or listing.state != state:
        listing = _listings[broker] = _Listing(state)
    key = version, request.include_topic_authorized_operations, request.include_cluster_authorized_operations
    task = listing.replies.get(key)
    if task is None:
        making = _make_in_thread(broker, request, version, topics)
        task = listing.replies[key] = asyncio.get_running_loop().create_task(making)
    return task.result() if task.done() else _made(task)


async def _made(task: asyncio.Task[Encoded]) -> Encoded:
    return await asyncio.shield(task)


# -- some topics -------------------------------------------------------------------------------------------------------


def _by_id(broker: Broker, request: MetadataRequest, version: int, ids: Iterable[bytes]) -> Reply | Waiting:
    known: list[Topic] = []
    unknown: list[MetadataResponseTopic] = []
    for topic_id in ids:
        topic = broker.topics.by_id(topic_id)
        if topic is None:
            unknown.append(MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id))
        else:
            known.append(topic)
    return _reply(broker, request, version, known, unknown_ids=unknown)


def _by_name(broker: Broker, request: MetadataRequest, version: int, names: Iterable[str]) -> Reply | Waiting:
    known: list[Topic] = []
    missing: list[MetadataResponseTopic] = []
    to_create: list[str] = []
    may_create = request.allow_auto_topic_creation and broker.config.auto_create_topics_enable
    for name in names:
        topic = broker.topics.get(name)
        if topic is not None:
            known.append(topic)
        elif invalid_name(name) is not None:
            missing.append(MetadataResponseTopic(ErrorCode.INVALID_TOPIC_EXCEPTION, name))
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
    reply = _reply(broker, request, version, known, missing=missing)
    return broker.changes.to_the_end(_after_creating(broker, to_create, reply)) if to_create else reply


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
    broker: Broker,
    request: MetadataRequest,
    version: int,
    known: Sequence[Topic],
    *,
    unknown_ids: Sequence[MetadataResponseTopic] = (),
    missing: Sequence[MetadataResponseTopic] = (),
) -> Reply | Waiting:
    if sum(len(topic.partitions) for topic in known) <= MAX_PARTITIONS_ON_LOOP:
        return _response(broker, request, known, unknown_ids, missing)
    return _make_in_thread(broker, request, version, known, unknown_ids, missing)


async def _make_in_thread(
    broker: Broker,
    request: MetadataRequest,
    version: int,
    known: Sequence[Topic],
    unknown_ids: Sequence[MetadataResponseTopic] = (),
    missing: Sequence[MetadataResponseTopic] = (),
) -> Encoded:
    def make() -> bytes:
        return encode(_response(broker, request, known, unknown_ids, missing), version)

    return Encoded(await asyncio.to_thread(make))


def _response(
    broker: Broker,
    request: MetadataRequest,
    known: Sequence[Topic],
    unknown_ids: Sequence[MetadataResponseTopic] = (),
    missing: Sequence[MetadataResponseTopic] = (),
) -> MetadataResponse:
    """In Kafka's order: ids that nobody knows, then the topics, then the names that nobody has."""
    host, port = broker.advertised
    named = [*(_described(broker.node_id, topic) for topic in known), *missing]
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(broker.node_id, host, port, broker.rack)],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=[*unknown_ids, *named],
    )
    if request.include_topic_authorized_operations:
        for topic in named:
            topic.topic_authorized_operations = ALL_TOPIC_OPERATIONS
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ALL_CLUSTER_OPERATIONS
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
