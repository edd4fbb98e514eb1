"""OffsetFetch: how far a group has read. Membership is not asked for, and an unknown group has read nothing."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.broker.groups import Ticket
from holdfast.broker.slices import Work, each, let_go
from holdfast.coordinator.effects import Effects
from holdfast.coordinator.offsets import TopicPartition
from holdfast.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupPartition,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.fields import ZERO_UUID
from holdfast.wire.group_records import OffsetCommitValue

if TYPE_CHECKING:
    from holdfast.broker.server import Broker

FIRST_WITH_GROUP_ERROR: Final = 2
FIRST_WITH_GROUPS: Final = 8
FIRST_WITH_TOPIC_IDS: Final = 10
NOTHING: Final = -1

Committed = dict[TopicPartition, OffsetCommitValue]


@handles(OFFSET_FETCH)
async def offset_fetch(broker: Broker, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    version = context.api_version
    if version >= FIRST_WITH_GROUPS:
        groups = [await _group(broker, group, version) async for group in broker.slices.over(_once(request.groups))]
        return OffsetFetchResponse(groups=groups)
    wanted = None
    if request.topics is not None:
        wanted = await broker.slices.finish(
            each(lambda t: OffsetFetchRequestGroupTopic(t.name, ZERO_UUID, t.partition_indexes), request.topics)
        )
    found = await _group(broker, OffsetFetchRequestGroup(group_id=request.group_id, topics=wanted), version)
    await broker.slices.finish(let_go(wanted or []))
    response = await broker.slices.finish(_in_old_shape(found, version))
    await broker.slices.finish(let_go(found.topics))
    return response


def _once(groups: list[OffsetFetchRequestGroup]) -> Iterator[OffsetFetchRequestGroup]:
    """All that a group has committed is told once: a short request must not become a long reply."""
    told: set[str] = set()
    for group in groups:
        if group.topics is None:
            if group.group_id in told:
                continue
            told.add(group.group_id)
        yield group


async def _group(broker: Broker, wanted: OffsetFetchRequestGroup, version: int) -> OffsetFetchResponseGroup:
    answer = broker.groups.ask(partial(_fetch, broker, wanted.group_id))
    code, committed = await answer if isinstance(answer, Coroutine) else answer
    if code is not ErrorCode.NONE:
        named = await broker.slices.finish(_named(wanted, code, version))
        return OffsetFetchResponseGroup(wanted.group_id, named, code)
    finding = _all if wanted.topics is None else partial(_asked, wanted=wanted)
    topics = await broker.slices.finish(finding(broker, committed=committed, version=version))
    return OffsetFetchResponseGroup(wanted.group_id, topics, ErrorCode.NONE)


def _fetch(broker: Broker, group_id: str, ticket: Ticket, now_ms: int) -> Effects:
    return broker.groups.coordinator.fetch_offsets(group_id, ticket, now_ms)


def _asked(
    broker: Broker, wanted: OffsetFetchRequestGroup, committed: Committed, version: int
) -> Work[list[OffsetFetchResponseGroupTopic]]:
    answers: list[OffsetFetchResponseGroupTopic] = []
    for topic in wanted.topics or ():
        yield
        name, code = topic.name, ErrorCode.NONE
        if version >= FIRST_WITH_TOPIC_IDS:
            known = broker.topics.by_id(topic.topic_id)
            name, code = (known.name, code) if known is not None else ("", ErrorCode.UNKNOWN_TOPIC_ID)
        partitions: list[OffsetFetchResponseGroupPartition] = []
        for index in topic.partition_indexes:
            yield
            partitions.append(_partition(index, committed.get((name, index)), code))
        answers.append(OffsetFetchResponseGroupTopic(name, topic.topic_id, partitions))
    return answers


def _all(broker: Broker, committed: Committed, version: int) -> Work[list[OffsetFetchResponseGroupTopic]]:
    topics: dict[str, list[OffsetFetchResponseGroupPartition]] = {}
    for (name, index), value in sorted(committed.items(), key=lambda entry: entry[0]):
        yield
        topics.setdefault(name, []).append(_partition(index, value, ErrorCode.NONE))
    answers = []
    for name, partitions in topics.items():
        yield
        known = broker.topics.get(name)
        if known is None and version >= FIRST_WITH_TOPIC_IDS:
            continue  # it cannot be named
        answers.append(OffsetFetchResponseGroupTopic(name, ZERO_UUID if known is None else known.id, partitions))
    return answers


def _partition(index: int, value: OffsetCommitValue | None, code: ErrorCode) -> OffsetFetchResponseGroupPartition:
    if value is None:
        return OffsetFetchResponseGroupPartition(index, NOTHING, -1, "", code)
    return OffsetFetchResponseGroupPartition(index, value.offset, value.leader_epoch, value.metadata, code)


def _named(wanted: OffsetFetchRequestGroup, code: ErrorCode, version: int) -> Work[list[OffsetFetchResponseGroupTopic]]:
    """Before v2 there is no error for the group, so each partition carries it."""
    if version >= FIRST_WITH_GROUP_ERROR:
        return []
    answers: list[OffsetFetchResponseGroupTopic] = []
    for topic in wanted.topics or ():
        yield
        partitions = yield from each(lambda index: _partition(index, None, code), topic.partition_indexes)
        answers.append(OffsetFetchResponseGroupTopic(topic.name, topic.topic_id, partitions))
    return answers


def _in_old_shape(found: OffsetFetchResponseGroup, version: int) -> Work[OffsetFetchResponse]:
    topics: list[OffsetFetchResponseTopic] = []
    for topic in found.topics:
        yield
        partitions = yield from each(
            lambda p: OffsetFetchResponsePartition(
                p.partition_index, p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code
            ),
            topic.partitions,
        )
        topics.append(OffsetFetchResponseTopic(topic.name, partitions))
    code = found.error_code if version >= FIRST_WITH_GROUP_ERROR else ErrorCode.NONE
    return OffsetFetchResponse(topics=topics, error_code=code)
