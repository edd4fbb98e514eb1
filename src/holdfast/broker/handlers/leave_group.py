"""LeaveGroup: members go, one or many at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupRequest

if TYPE_CHECKING:
    from holdfast.broker.server import Broker


@handles(LEAVE_GROUP)
def leave_group(broker: Broker, request: LeaveGroupRequest, context: RequestContext) -> Any:
    groups = broker.groups
    client = groups.client(context)
    return groups.ask(
        lambda ticket, now_ms: groups.coordinator.leave_group(request, context.api_version, client, ticket, now_ms)
    )
