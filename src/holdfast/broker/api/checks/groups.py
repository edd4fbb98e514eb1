"""Group membership, and descriptions of groups.

READ on the group is the permission to be a member. KIP-345 extends it to the removal of other members, so here it also
covers registering members and cancelling a registration.
"""

from __future__ import annotations

from typing import Any

from holdfast.broker.api.checks.base import (
    GROUP_DENIED,
    MESSAGES,
    AuthorizedRequest,
    check,
    map_reply,
    resolve,
    split,
)
from holdfast.broker.api.handlers.find_coordinator import BATCHED_SINCE, GROUP
from holdfast.broker.authorization.acls import CLUSTER_NAME, Operation, ResourceType
from holdfast.broker.util.slices import Work, sliced_map, sliced_unique
from holdfast.coordinator.classic.responses import join_error, sync_error
from holdfast.coordinator.coordinator import FIRST_SYNC_WITH_PROTOCOL
from holdfast.wire.apis.add_members_to_group import ADD_MEMBERS_TO_GROUP, AddMembersToGroupResponse
from holdfast.wire.apis.cancel_registration import CANCEL_REGISTRATION, CancelRegistrationResponse
from holdfast.wire.apis.delete_groups import DELETE_GROUPS, DeletableGroupResult, DeleteGroupsResponse
from holdfast.wire.apis.describe_groups import DESCRIBE_GROUPS, DescribedGroup, DescribeGroupsResponse
from holdfast.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorResponse, FoundCoordinator
from holdfast.wire.apis.heartbeat import HEARTBEAT, HeartbeatResponse
from holdfast.wire.apis.join_group import JOIN_GROUP
from holdfast.wire.apis.join_groups import JOIN_GROUPS, JoinGroupsResponse, JoinGroupsResult
from holdfast.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupResponse
from holdfast.wire.apis.list_groups import LIST_GROUPS, ListGroupsResponse
from holdfast.wire.apis.sync_group import SYNC_GROUP


def _may_join(authorized: AuthorizedRequest) -> bool:
    return authorized.permissions.group(Operation.READ, authorized.request.group_id)


@check(JOIN_GROUP)
def join_group(authorized: AuthorizedRequest) -> Any:
    if _may_join(authorized):
        return authorized.proceed()
    return join_error(GROUP_DENIED, "", authorized.version)  # as in Kafka, without the member id


@check(SYNC_GROUP)
def sync_group(authorized: AuthorizedRequest) -> Any:
    request = authorized.request
    is_complete = authorized.version < FIRST_SYNC_WITH_PROTOCOL or None not in (
        request.protocol_type,
        request.protocol_name,
    )
    # As in Kafka, an invalid request gets the same answer whatever the permissions.
    return authorized.proceed() if not is_complete or _may_join(authorized) else sync_error(GROUP_DENIED)


@check(HEARTBEAT)
def heartbeat(authorized: AuthorizedRequest) -> Any:
    return authorized.proceed() if _may_join(authorized) else HeartbeatResponse(error_code=GROUP_DENIED)


@check(LEAVE_GROUP)
def leave_group(authorized: AuthorizedRequest) -> Any:
    return authorized.proceed() if _may_join(authorized) else LeaveGroupResponse(error_code=GROUP_DENIED)


@check(JOIN_GROUPS)
def join_groups(authorized: AuthorizedRequest) -> Any:
    if _may_join(authorized):
        return authorized.proceed()
    return JoinGroupsResponse(
        results=[JoinGroupsResult(GROUP_DENIED, member_id=member.member_id) for member in authorized.request.members]
    )


@check(ADD_MEMBERS_TO_GROUP)
def add_members_to_group(authorized: AuthorizedRequest) -> Any:
    if _may_join(authorized):
        return authorized.proceed()
    return AddMembersToGroupResponse(error_code=GROUP_DENIED, error_message=MESSAGES[GROUP_DENIED])


@check(CANCEL_REGISTRATION)
def cancel_registration(authorized: AuthorizedRequest) -> Any:
    if _may_join(authorized):
        return authorized.proceed()
    return CancelRegistrationResponse(error_code=GROUP_DENIED, error_message=MESSAGES[GROUP_DENIED])


@check(FIND_COORDINATOR)
def find_coordinator(authorized: AuthorizedRequest) -> Any:
    request, permissions = authorized.request, authorized.permissions
    if request.key_type != GROUP:
        return authorized.proceed()
    if authorized.version < BATCHED_SINCE:
        if permissions.group(Operation.DESCRIBE, request.key):
            return authorized.proceed()
        return FindCoordinatorResponse(
            error_code=GROUP_DENIED, error_message=MESSAGES[GROUP_DENIED], node_id=-1, host="", port=-1
        )
    allowed, denied = yield from split(request.coordinator_keys, lambda key: permissions.group(Operation.DESCRIBE, key))
    response: FindCoordinatorResponse = yield from resolve(authorized.proceed(coordinator_keys=allowed))
    response.coordinators += yield from sliced_map(
        lambda key: FoundCoordinator(
            key=key, node_id=-1, host="", port=-1, error_code=GROUP_DENIED, error_message=MESSAGES[GROUP_DENIED]
        ),
        denied,
    )
    return response


@check(DESCRIBE_GROUPS)
def describe_groups(authorized: AuthorizedRequest) -> Any:
    names = yield from sliced_unique(authorized.request.groups)
    allowed, denied = yield from split(
        names, lambda group_id: authorized.permissions.group(Operation.DESCRIBE, group_id)
    )
    authorized.narrow_visibility()
    response: DescribeGroupsResponse = yield from resolve(authorized.proceed(groups=allowed))
    response.groups += yield from sliced_map(
        lambda group_id: DescribedGroup(error_code=GROUP_DENIED, group_id=group_id), denied
    )
    return response


@check(LIST_GROUPS)
def list_groups(authorized: AuthorizedRequest) -> Any:
    permissions = authorized.permissions
    response: ListGroupsResponse = yield from resolve(authorized.proceed())
    if not permissions.can_see(ResourceType.CLUSTER, CLUSTER_NAME):
        response.groups = [
            group for group in response.groups if permissions.can_see(ResourceType.GROUP, group.group_id)
        ]
    return response


@check(DELETE_GROUPS)
def delete_groups(authorized: AuthorizedRequest) -> Any:
    allowed, denied = yield from split(
        (yield from sliced_unique(authorized.request.groups_names)),
        lambda group_id: authorized.permissions.group(Operation.DELETE, group_id),
    )

    def with_denials(response: DeleteGroupsResponse) -> Work[DeleteGroupsResponse]:
        response.results += yield from sliced_map(lambda group_id: DeletableGroupResult(group_id, GROUP_DENIED), denied)
        return response

    return (yield from map_reply(authorized, authorized.proceed(groups_names=allowed), with_denials))
