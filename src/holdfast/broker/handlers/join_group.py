"""JoinGroup: take part in a group. Parked until the join phase is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.coordinator.answers import join_error
from holdfast.wire.apis.join_group import JOIN_GROUP, JoinGroupRequest
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.broker.server import Broker

MOST_PROTOCOLS: Final = 10_000
"""Of one member. Clients offer a handful."""


@handles(JOIN_GROUP)
def join_group(broker: Broker, request: JoinGroupRequest, context: RequestContext) -> Any:
    if len(request.protocols) > MOST_PROTOCOLS:
        return join_error(ErrorCode.INVALID_REQUEST, request.member_id, context.api_version)
    groups = broker.groups
    client, fresh_id = groups.client(context), groups.fresh_id()
    return groups.ask(
        lambda ticket, now_ms: groups.coordinator.join_group(
            request, context.api_version, client, ticket, fresh_id, now_ms
        )
    )
