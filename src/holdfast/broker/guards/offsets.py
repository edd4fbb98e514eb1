"""Who may say how far a group has read, and who may know: a matter of the group and of the topic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.broker.guards._guarding import GROUP_REFUSED, TOPIC_REFUSED, Asking, guards, parted, then
from holdfast.broker.guards.records import may_by_name_or_id
from holdfast.broker.handlers.offset_commit import FIRST_WITH_TOPIC_IDS as FIRST_COMMIT_BY_ID
from holdfast.broker.handlers.offset_fetch import (
    FIRST_WITH_GROUP_ERROR,
    FIRST_WITH_GROUPS,
    NOTHING,
)
from holdfast.broker.handlers.offset_fetch import FIRST_WITH_TOPIC_IDS as FIRST_FETCH_BY_ID
from holdfast.broker.security.acls import Operation, ResourceType
from holdfast.broker.slices import Work, each
from holdfast.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from holdfast.wire.apis.offset_delete import (
    OFFSET_DELETE,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from holdfast.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupPartition,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from holdfast.wire.error_codes import ErrorCode

# -- commit ------------------------------------------------------------------------------------------------------------


@guards(OFFSET_COMMIT)
def offset_commit(asking: Asking) -> Any:
    request = asking.request
    if not asking.access.group(Operation.READ, request.group_id):
        topics = yield from each(lambda topic: _not_committed(topic, GROUP_REFUSED), request.topics)
        return OffsetCommitResponse(topics=topics)
    by_id = asking.version >= FIRST_COMMIT_BY_ID
    allowed, refused = yield from parted(
        request.topics,
        lambda topic: may_by_name_or_id(asking, Operation.READ, topic.name, topic.topic_id, by_id=by_id),
    )
    if not refused:
        return asking.go_on()

    def with_refusals(response: OffsetCommitResponse) -> Work[OffsetCommitResponse]:
        response.topics += yield from each(lambda topic: _not_committed(topic, TOPIC_REFUSED), refused)
        return response

    return (yield from then(asking, asking.go_on(topics=allowed), with_refusals))


def _not_committed(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    partitions = [OffsetCommitResponsePartition(wanted.partition_index, code) for wanted in topic.partitions]
    return OffsetCommitResponseTopic(topic.name, topic.topic_id, partitions)


# -- fetch -------------------------------------------------------------------------------------------------------------


@guards(OFFSET_FETCH)
def offset_fetch(asking: Asking) -> Any:
    return _fetch_of_many(asking) if asking.version >= FIRST_WITH_GROUPS else _fetch_of_one(asking)


def _fetch_of_many(asking: Asking) -> Any:
    access, by_id = asking.access, asking.version >= FIRST_FETCH_BY_ID
    allowed, refused = yield from parted(
        asking.request.groups, lambda group: access.group(Operation.DESCRIBE, group.group_id)
    )
    going_on: list[OffsetFetchRequestGroup] = []
    hidden: list[list[OffsetFetchRequestGroupTopic]] = []
    for group in allowed:
        yield
        shown, not_shown = yield from parted(
            group.topics or (),
            lambda topic: may_by_name_or_id(asking, Operation.DESCRIBE, topic.name, topic.topic_id, by_id=by_id),
        )
        going_on.append(group if group.topics is None else replace(group, topics=shown))
        hidden.append(not_shown)

    def with_refusals(response: OffsetFetchResponse) -> Work[OffsetFetchResponse]:
        everything = {group.group_id for group in going_on if group.topics is None}
        by_group: dict[str, OffsetFetchResponseGroup] = {}
        for found in response.groups:
            yield
            by_group[found.group_id] = found
            if found.group_id in everything:
                found.topics = [topic for topic in found.topics if access.sees(ResourceType.TOPIC, topic.name)]
        for group, topics in zip(going_on, hidden, strict=True):
            yield
            if topics and not by_group[group.group_id].error_code:
                by_group[group.group_id].topics += [_not_shown(topic) for topic in topics]
        response.groups += yield from each(
            lambda group: OffsetFetchResponseGroup(group.group_id, [], GROUP_REFUSED), refused
        )
        return response

    return (yield from then(asking, asking.go_on(groups=going_on), with_refusals))


def _not_shown(topic: OffsetFetchRequestGroupTopic) -> OffsetFetchResponseGroupTopic:
    partitions = [
        OffsetFetchResponseGroupPartition(index, NOTHING, -1, "", TOPIC_REFUSED) for index in topic.partition_indexes
    ]
    return OffsetFetchResponseGroupTopic(topic.name, topic.topic_id, partitions)


def _fetch_of_one(asking: Asking) -> Any:
    """Before v8: one group, whose error is in the partitions before v2."""
    request, access = asking.request, asking.access
    topics: list[OffsetFetchRequestTopic] = request.topics or []
    if not access.group(Operation.DESCRIBE, request.group_id):
        if asking.version >= FIRST_WITH_GROUP_ERROR:
            return OffsetFetchResponse(error_code=GROUP_REFUSED)
        return OffsetFetchResponse(topics=[_of_one_not_shown(topic, GROUP_REFUSED) for topic in topics])
    allowed, refused = yield from parted(topics, lambda topic: access.topic(Operation.DESCRIBE, topic.name))

    def with_refusals(response: OffsetFetchResponse) -> Work[OffsetFetchResponse]:
        if request.topics is None:
            response.topics = [topic for topic in response.topics if access.sees(ResourceType.TOPIC, topic.name)]
        elif not response.error_code:
            response.topics += yield from each(lambda topic: _of_one_not_shown(topic, TOPIC_REFUSED), refused)
        return response

    return (yield from then(asking, asking.go_on(topics=None if request.topics is None else allowed), with_refusals))


def _of_one_not_shown(topic: OffsetFetchRequestTopic, code: ErrorCode) -> OffsetFetchResponseTopic:
    partitions = [OffsetFetchResponsePartition(index, NOTHING, -1, "", code) for index in topic.partition_indexes]
    return OffsetFetchResponseTopic(topic.name, partitions)


# -- delete ------------------------------------------------------------------------------------------------------------


@guards(OFFSET_DELETE)
def offset_delete(asking: Asking) -> Any:
    request, access = asking.request, asking.access
    if not access.group(Operation.DELETE, request.group_id):
        return OffsetDeleteResponse(error_code=GROUP_REFUSED)
    allowed, refused = yield from parted(request.topics, lambda topic: access.topic(Operation.READ, topic.name))

    def with_refusals(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
        if not response.error_code:
            response.topics += [
                OffsetDeleteResponseTopic(
                    topic.name,
                    [OffsetDeleteResponsePartition(one.partition_index, TOPIC_REFUSED) for one in topic.partitions],
                )
                for topic in refused
            ]
        return response

    return (yield from then(asking, asking.go_on(topics=allowed), with_refusals))
