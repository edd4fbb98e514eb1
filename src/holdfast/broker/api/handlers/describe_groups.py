"""DescribeGroups: the members of groups and their assignments."""

from __future__ import annotations

from functools import partial

from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import GroupServices
from holdfast.broker.util.slices import Work, sliced_map, sliced_unique
from holdfast.wire.apis.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest, DescribeGroupsResponse
from holdfast.wire.error_codes import ErrorCode


@handler(DESCRIBE_GROUPS)
def describe_groups(
    services: GroupServices, request: DescribeGroupsRequest, context: RequestContext
) -> Work[DescribeGroupsResponse]:
    coordinator = services.groups.coordinator
    # Without duplicates, because a short request must not cause a long reply.
    group_ids = yield from sliced_unique(request.groups)
    described = yield from sliced_map(
        partial(
            coordinator.describe_group, api_version=context.api_version, with_extensions=request.include_extensions
        ),
        group_ids,
    )
    if request.include_authorized_operations:
        for group in described:
            yield
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = context.visibility.group_operations(group.group_id)
    return DescribeGroupsResponse(groups=described)
