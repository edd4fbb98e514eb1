"""Committed offsets: permissions on the group and on the topic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.broker.api.checks.base import (
    GROUP_DENIED,
    TOPIC_DENIED,
    AuthorizedRequest,
    check,
    map_reply,
    split,
)
from holdfast.broker.api.checks.records import may_by_name_or_id
from holdfast.broker.api.handlers.offset_commit import FIRST_WITH_TOPIC_IDS as FIRST_COMMIT_BY_ID
from holdfast.broker.api.handlers.offset_fetch import FIRST_WITH_GROUP_ERROR, FIRST_WITH_GROUPS, NOTHING
from holdfast.broker.api.handlers.offset_fetch import FIRST_WITH_TOPIC_IDS as FIRST_FETCH_BY_ID
from holdfast.broker.authorization.acls import Operation, ResourceType
from holdfast.broker.util.slices import Work, sliced_map
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


@check(OFFSET_COMMIT)
def offset_commit(authorized: AuthorizedRequest) -> Any:
    request = authorized.request
    if not authorized.permissions.group(Operation.READ, request.group_id):
        topics = yield from sliced_map(lambda topic: _not_committed(topic, GROUP_DENIED), request.topics)
        return OffsetCommitResponse(topics=topics)
    by_id = authorized.version >= FIRST_COMMIT_BY_ID
    allowed, denied = yield from split(
        request.topics,
        lambda topic: may_by_name_or_id(authorized, Operation.READ, topic.name, topic.topic_id, by_id=by_id),
    )
    if not denied:
        return authorized.proceed()

    def with_denials(response: OffsetCommitResponse) -> Work[OffsetCommitResponse]:
        response.topics += yield from sliced_map(lambda topic: _not_committed(topic, TOPIC_DENIED), denied)
        return response

    return (yield from map_reply(authorized, authorized.proceed(topics=allowed), with_denials))


def _not_committed(topic: OffsetCommitRequestTopic, code: ErrorCode) -> OffsetCommitResponseTopic:
    partitions = [OffsetCommitResponsePartition(wanted.partition_index, code) for wanted in topic.partitions]
    return OffsetCommitResponseTopic(topic.name, topic.topic_id, partitions)


# -- fetch -------------------------------------------------------------------------------------------------------------


@check(OFFSET_FETCH)
def offset_fetch(authorized: AuthorizedRequest) -> Any:
    return _fetch_groups(authorized) if authorized.version >= FIRST_WITH_GROUPS else _fetch_one_group(authorized)


def _fetch_groups(authorized: AuthorizedRequest) -> Any:
    permissions, by_id = authorized.permissions, authorized.version >= FIRST_FETCH_BY_ID
    allowed, denied = yield from split(
        authorized.request.groups, lambda group: permissions.group(Operation.DESCRIBE, group.group_id)
    )
    shown_groups: list[OffsetFetchRequestGroup] = []
    hidden: list[list[OffsetFetchRequestGroupTopic]] = []
    for group in allowed:
        yield
        shown, not_shown = yield from split(
            group.topics or (),
            lambda topic: may_by_name_or_id(authorized, Operation.DESCRIBE, topic.name, topic.topic_id, by_id=by_id),
        )
        shown_groups.append(group if group.topics is None else replace(group, topics=shown))
        hidden.append(not_shown)

    def with_denials(response: OffsetFetchResponse) -> Work[OffsetFetchResponse]:
        everything = {group.group_id for group in shown_groups if group.topics is None}
        by_group: dict[str, OffsetFetchResponseGroup] = {}
        for found in response.groups:
            yield
            by_group[found.group_id] = found
            if found.group_id in everything:
                found.topics = [topic for topic in found.topics if permissions.can_see(ResourceType.TOPIC, topic.name)]
        for group, topics in zip(shown_groups, hidden, strict=True):
            yield
            if topics and not by_group[group.group_id].error_code:
                by_group[group.group_id].topics += [_hidden_topic(topic) for topic in topics]
        response.groups += yield from sliced_map(
            lambda group: OffsetFetchResponseGroup(group.group_id, [], GROUP_DENIED), denied
        )
        return response

    return (yield from map_reply(authorized, authorized.proceed(groups=shown_groups), with_denials))


def _hidden_topic(topic: OffsetFetchRequestGroupTopic) -> OffsetFetchResponseGroupTopic:
    partitions = [
        OffsetFetchResponseGroupPartition(index, NOTHING, -1, "", TOPIC_DENIED) for index in topic.partition_indexes
    ]
    return OffsetFetchResponseGroupTopic(topic.name, topic.topic_id, partitions)


def _fetch_one_group(authorized: AuthorizedRequest) -> Any:
    """Before v8: one group, whose error is in the partitions before v2."""
    request, permissions = authorized.request, authorized.permissions
    topics: list[OffsetFetchRequestTopic] = request.topics or []
    if not permissions.group(Operation.DESCRIBE, request.group_id):
        if authorized.version >= FIRST_WITH_GROUP_ERROR:
            return OffsetFetchResponse(error_code=GROUP_DENIED)
        return OffsetFetchResponse(topics=[_hidden_topic_before_v8(topic, GROUP_DENIED) for topic in topics])
    allowed, denied = yield from split(topics, lambda topic: permissions.topic(Operation.DESCRIBE, topic.name))

    def with_denials(response: OffsetFetchResponse) -> Work[OffsetFetchResponse]:
        if request.topics is None:
            response.topics = [
                topic for topic in response.topics if permissions.can_see(ResourceType.TOPIC, topic.name)
            ]
        elif not response.error_code:
            response.topics += yield from sliced_map(lambda topic: _hidden_topic_before_v8(topic, TOPIC_DENIED), denied)
        return response

    return (
        yield from map_reply(
            authorized, authorized.proceed(topics=None if request.topics is None else allowed), with_denials
        )
    )


def _hidden_topic_before_v8(topic: OffsetFetchRequestTopic, code: ErrorCode) -> OffsetFetchResponseTopic:
    partitions = [OffsetFetchResponsePartition(index, NOTHING, -1, "", code) for index in topic.partition_indexes]
    return OffsetFetchResponseTopic(topic.name, partitions)


# -- delete ------------------------------------------------------------------------------------------------------------


@check(OFFSET_DELETE)
def offset_delete(authorized: AuthorizedRequest) -> Any:
    request, permissions = authorized.request, authorized.permissions
    if not permissions.group(Operation.DELETE, request.group_id):
        return OffsetDeleteResponse(error_code=GROUP_DENIED)
    allowed, denied = yield from split(request.topics, lambda topic: permissions.topic(Operation.READ, topic.name))

    def with_denials(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
        if not response.error_code:
            response.topics += [
                OffsetDeleteResponseTopic(
                    topic.name,
                    [OffsetDeleteResponsePartition(one.partition_index, TOPIC_DENIED) for one in topic.partitions],
                )
                for topic in denied
            ]
        return response

    return (yield from map_reply(authorized, authorized.proceed(topics=allowed), with_denials))
