"""Who may take part in a group and who may look at it.

READ on the group is the right to be a member, and KIP-345's rule extends it to removing others: also to announcing
members and taking that back.
"""

from __future__ import annotations

from typing import Any

from holdfast.broker.guards._guarding import GROUP_REFUSED, MESSAGES, Asking, guards, parted, then, through
from holdfast.broker.handlers.find_coordinator import BATCHED_SINCE, GROUP
from holdfast.broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from holdfast.broker.slices import Work, each, unique
from holdfast.coordinator.answers import join_error, sync_error
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


def _may_take_part(asking: Asking) -> bool:
    return asking.access.group(Operation.READ, asking.request.group_id)


@guards(JOIN_GROUP)
def join_group(asking: Asking) -> Any:
    if _may_take_part(asking):
        return asking.go_on()
    return join_error(GROUP_REFUSED, "", asking.version)  # as Kafka, which tells no member id back


@guards(SYNC_GROUP)
def sync_group(asking: Asking) -> Any:
    request = asking.request
    is_complete = asking.version < FIRST_SYNC_WITH_PROTOCOL or None not in (
        request.protocol_type,
        request.protocol_name,
    )
    # As in Kafka, a request that is wrong in itself is answered so to anybody, whatever the group.
    return asking.go_on() if not is_complete or _may_take_part(asking) else sync_error(GROUP_REFUSED)


@guards(HEARTBEAT)
def heartbeat(asking: Asking) -> Any:
    return asking.go_on() if _may_take_part(asking) else HeartbeatResponse(error_code=GROUP_REFUSED)


@guards(LEAVE_GROUP)
def leave_group(asking: Asking) -> Any:
    return asking.go_on() if _may_take_part(asking) else LeaveGroupResponse(error_code=GROUP_REFUSED)


@guards(JOIN_GROUPS)
def join_groups(asking: Asking) -> Any:
    if _may_take_part(asking):
        return asking.go_on()
    return JoinGroupsResponse(
        results=[JoinGroupsResult(GROUP_REFUSED, member_id=member.member_id) for member in asking.request.members]
    )


@guards(ADD_MEMBERS_TO_GROUP)
def add_members_to_group(asking: Asking) -> Any:
    if _may_take_part(asking):
        return asking.go_on()
    return AddMembersToGroupResponse(error_code=GROUP_REFUSED, error_message=MESSAGES[GROUP_REFUSED])


@guards(CANCEL_REGISTRATION)
def cancel_registration(asking: Asking) -> Any:
    if _may_take_part(asking):
        return asking.go_on()
    return CancelRegistrationResponse(error_code=GROUP_REFUSED, error_message=MESSAGES[GROUP_REFUSED])


@guards(FIND_COORDINATOR)
def find_coordinator(asking: Asking) -> Any:
    request, access = asking.request, asking.access
    if request.key_type != GROUP:
        return asking.go_on()
    if asking.version < BATCHED_SINCE:
        if access.group(Operation.DESCRIBE, request.key):
            return asking.go_on()
        return FindCoordinatorResponse(
            error_code=GROUP_REFUSED, error_message=MESSAGES[GROUP_REFUSED], node_id=-1, host="", port=-1
        )
    allowed, refused = yield from parted(request.coordinator_keys, lambda key: access.group(Operation.DESCRIBE, key))
    response: FindCoordinatorResponse = yield from through(asking.go_on(coordinator_keys=allowed))
    response.coordinators += yield from each(
        lambda key: FoundCoordinator(
            key=key, node_id=-1, host="", port=-1, error_code=GROUP_REFUSED, error_message=MESSAGES[GROUP_REFUSED]
        ),
        refused,
    )
    return response


@guards(DESCRIBE_GROUPS)
def describe_groups(asking: Asking) -> Any:
    names = yield from unique(asking.request.groups)
    allowed, refused = yield from parted(names, lambda group_id: asking.access.group(Operation.DESCRIBE, group_id))
    response: DescribeGroupsResponse = yield from through(asking.go_on(groups=allowed))
    response.groups += yield from each(
        lambda group_id: DescribedGroup(error_code=GROUP_REFUSED, group_id=group_id), refused
    )
    return response


@guards(LIST_GROUPS)
def list_groups(asking: Asking) -> Any:
    access = asking.access
    response: ListGroupsResponse = asking.go_on()
    if not access.sees(ResourceType.CLUSTER, CLUSTER_NAME):
        response.groups = [group for group in response.groups if access.sees(ResourceType.GROUP, group.group_id)]
    return response


@guards(DELETE_GROUPS)
def delete_groups(asking: Asking) -> Any:
    allowed, refused = yield from parted(
        (yield from unique(asking.request.groups_names)),
        lambda group_id: asking.access.group(Operation.DELETE, group_id),
    )

    def with_refusals(response: DeleteGroupsResponse) -> Work[DeleteGroupsResponse]:
        response.results += yield from each(lambda group_id: DeletableGroupResult(group_id, GROUP_REFUSED), refused)
        return response

    return (yield from then(asking, asking.go_on(groups_names=allowed), with_refusals))
