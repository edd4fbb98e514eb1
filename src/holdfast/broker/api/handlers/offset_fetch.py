"""OffsetFetch: committed offsets of groups. Membership is not required, and an unknown group has none."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import CommittedOffsets, GroupServices
from holdfast.broker.util.slices import Work, sliced_clear, sliced_map
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

FIRST_WITH_GROUP_ERROR: Final = 2
FIRST_WITH_GROUPS: Final = 8
FIRST_WITH_TOPIC_IDS: Final = 10
NOTHING: Final = -1


@handler(OFFSET_FETCH)
async def offset_fetch(
    services: GroupServices, request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse:
    version = context.api_version
    if version >= FIRST_WITH_GROUPS:
        groups = [
            await _group(services, group, version) async for group in services.slices.iterate(_once(request.groups))
        ]
        return OffsetFetchResponse(groups=groups)
    wanted = None
    if request.topics is not None:
        wanted = await services.slices.run(
            sliced_map(lambda t: OffsetFetchRequestGroupTopic(t.name, ZERO_UUID, t.partition_indexes), request.topics)
        )
    found = await _group(services, OffsetFetchRequestGroup(group_id=request.group_id, topics=wanted), version)
    await services.slices.run(sliced_clear(wanted or []))
    response = await services.slices.run(_in_old_shape(found, version))
    await services.slices.run(sliced_clear(found.topics))
    return response


def _once(groups: list[OffsetFetchRequestGroup]) -> Iterator[OffsetFetchRequestGroup]:
    """All offsets of a group are returned once, because a short request must not cause a long reply."""
    seen: set[str] = set()
    for group in groups:
        if group.topics is None:
            if group.group_id in seen:
                continue
            seen.add(group.group_id)
        yield group


async def _group(services: GroupServices, wanted: OffsetFetchRequestGroup, version: int) -> OffsetFetchResponseGroup:
    code, committed = await services.committed(wanted.group_id)
    if code is not ErrorCode.NONE:
        named = await services.slices.run(_named(wanted, code, version))
        return OffsetFetchResponseGroup(wanted.group_id, named, code)
    finding = _all if wanted.topics is None else partial(_asked, wanted=wanted)
    topics = await services.slices.run(finding(services, committed=committed, version=version))
    return OffsetFetchResponseGroup(wanted.group_id, topics, ErrorCode.NONE)


def _asked(
    services: GroupServices, wanted: OffsetFetchRequestGroup, committed: CommittedOffsets, version: int
) -> Work[list[OffsetFetchResponseGroupTopic]]:
    answers: list[OffsetFetchResponseGroupTopic] = []
    for topic in wanted.topics or ():
        yield
        name, code = topic.name, ErrorCode.NONE
        if version >= FIRST_WITH_TOPIC_IDS:
            known = services.topics.by_id(topic.topic_id)
            name, code = (known.name, code) if known is not None else ("", ErrorCode.UNKNOWN_TOPIC_ID)
        partitions: list[OffsetFetchResponseGroupPartition] = []
        for index in topic.partition_indexes:
            yield
            partitions.append(_partition(index, committed.get((name, index)), code))
        answers.append(OffsetFetchResponseGroupTopic(name, topic.topic_id, partitions))
    return answers


def _all(
    services: GroupServices, committed: CommittedOffsets, version: int
) -> Work[list[OffsetFetchResponseGroupTopic]]:
    topics: dict[str, list[OffsetFetchResponseGroupPartition]] = {}
    for (name, index), value in sorted(committed.items(), key=lambda entry: entry[0]):
        yield
        topics.setdefault(name, []).append(_partition(index, value, ErrorCode.NONE))
    answers = []
    for name, partitions in topics.items():
        yield
        known = services.topics.get(name)
        if known is None and version >= FIRST_WITH_TOPIC_IDS:
            continue  # it has no id that could be returned
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
        partitions = yield from sliced_map(lambda index: _partition(index, None, code), topic.partition_indexes)
        answers.append(OffsetFetchResponseGroupTopic(topic.name, topic.topic_id, partitions))
    return answers


def _in_old_shape(found: OffsetFetchResponseGroup, version: int) -> Work[OffsetFetchResponse]:
    topics: list[OffsetFetchResponseTopic] = []
    for topic in found.topics:
        yield
        partitions = yield from sliced_map(
            lambda p: OffsetFetchResponsePartition(
                p.partition_index, p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code
            ),
            topic.partitions,
        )
        topics.append(OffsetFetchResponseTopic(topic.name, partitions))
    code = found.error_code if version >= FIRST_WITH_GROUP_ERROR else ErrorCode.NONE
    return OffsetFetchResponse(topics=topics, error_code=code)
