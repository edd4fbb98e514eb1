"""DescribeGroups: who is in a group, and who has what."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.broker.handlers._common import group_operations
from holdfast.broker.slices import Work, each, unique
from holdfast.wire.apis.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest, DescribeGroupsResponse
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker


@handles(DESCRIBE_GROUPS)
def describe_groups(
    broker: Broker, request: DescribeGroupsRequest, context: RequestContext
) -> Work[DescribeGroupsResponse]:
    coordinator = broker.groups.coordinator
    # Each of them once: a short request must not become a long reply.
    group_ids = yield from unique(request.groups)
    described = yield from each(
        partial(
            coordinator.describe_group, api_version=context.api_version, with_extensions=request.include_extensions
        ),
        group_ids,
    )
    if request.include_authorized_operations:
        for group in described:
            yield
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = group_operations(context.access, group.group_id)
    return DescribeGroupsResponse(groups=described)
