"""The response to a request of a group that cannot be served now, with the same error for all of its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from holdfast.broker.api.handlers.offset_fetch import FIRST_WITH_GROUPS
from holdfast.coordinator.classic.responses import join_error
from holdfast.wire.apis.add_members_to_group import ADD_MEMBERS_TO_GROUP, AddMembersToGroupResponse
from holdfast.wire.apis.join_group import JOIN_GROUP
from holdfast.wire.apis.join_groups import JOIN_GROUPS, JoinGroupsResponse, JoinGroupsResult
from holdfast.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from holdfast.wire.apis.offset_fetch import OFFSET_FETCH
from holdfast.wire.error_codes import ErrorCode

Refusal = Callable[[Any, int, ErrorCode], Any]


def _join_group(request: Any, version: int, code: ErrorCode) -> Any:
    return join_error(code, request.member_id, version)


def _join_groups(request: Any, version: int, code: ErrorCode) -> JoinGroupsResponse:  # noqa: ARG001
    return JoinGroupsResponse(
        results=[JoinGroupsResult(code, member_id=member.member_id) for member in request.members]
    )


def _offset_commit(request: Any, version: int, code: ErrorCode) -> OffsetCommitResponse:  # noqa: ARG001
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic.name,
                topic.topic_id,
                [OffsetCommitResponsePartition(one.partition_index, code) for one in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _add_members(request: Any, version: int, code: ErrorCode) -> AddMembersToGroupResponse:  # noqa: ARG001
    return AddMembersToGroupResponse(error_code=code)


REFUSALS: Final[Mapping[int, Refusal]] = {
    JOIN_GROUP.key: _join_group,
    JOIN_GROUPS.key: _join_groups,
    OFFSET_COMMIT.key: _offset_commit,
    ADD_MEMBERS_TO_GROUP.key: _add_members,
}
"""For the APIs that create a group if it does not exist, or adopt it from Kafka."""

CONCERNS_GROUPS: Final = frozenset(REFUSALS) | {OFFSET_FETCH.key}
"""The APIs that are served if a group is not adopted yet."""


def groups_of(api_key: int, request: Any, version: int) -> list[str]:
    if api_key == OFFSET_FETCH.key and version >= FIRST_WITH_GROUPS:
        return [group.group_id for group in request.groups]
    return [request.group_id]
