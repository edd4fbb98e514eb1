"""ListGroups: the groups, by state and type."""

from __future__ import annotations

from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import GroupServices
from holdfast.wire.apis.list_groups import LIST_GROUPS, ListGroupsRequest, ListGroupsResponse


@handler(LIST_GROUPS)
def list_groups(
    services: GroupServices,
    request: ListGroupsRequest,
    context: RequestContext,  # noqa: ARG001
) -> ListGroupsResponse:
    code, groups = services.groups.coordinator.list_groups(request.states_filter, request.types_filter)
    return ListGroupsResponse(error_code=code, groups=groups)
