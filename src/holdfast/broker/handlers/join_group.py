"""JoinGroup: take part in a group. Parked until the join phase is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.wire.apis.join_group import JOIN_GROUP, JoinGroupRequest

if TYPE_CHECKING:
    from holdfast.broker.server import Broker


@handles(JOIN_GROUP)
def join_group(broker: Broker, request: JoinGroupRequest, context: RequestContext) -> Any:
    groups = broker.groups
    client, fresh_id = groups.client(context), groups.fresh_id()
    return groups.ask(
        lambda ticket, now_ms: groups.coordinator.join_group(
            request, context.api_version, client, ticket, fresh_id, now_ms
        )
    )
