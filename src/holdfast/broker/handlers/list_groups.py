"""ListGroups: which groups there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.wire.apis.list_groups import LIST_GROUPS, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from holdfast.broker.server import Broker


@handles(LIST_GROUPS)
def list_groups(
    broker: Broker,
    request: ListGroupsRequest,
    context: RequestContext,  # noqa: ARG001
) -> ListGroupsResponse:
    code, groups = broker.groups.coordinator.list_groups(request.states_filter, request.types_filter)
    return ListGroupsResponse(error_code=code, groups=groups)
