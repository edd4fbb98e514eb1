"""LeaveGroup: members go, one or many at once."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from holdfast.broker.dispatch import RequestContext, handles
from holdfast.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from holdfast.broker.server import Broker


MOST_AT_ONCE: Final = 200
"""So many members are removed in one step; more of them in several, between which others are served."""


@handles(LEAVE_GROUP)
def leave_group(broker: Broker, request: LeaveGroupRequest, context: RequestContext) -> Any:
    if len(request.members) > MOST_AT_ONCE:
        return _in_parts(broker, request, context)
    return _leave(broker, request, context)


def _leave(broker: Broker, request: LeaveGroupRequest, context: RequestContext, *, is_logged: bool = False) -> Any:
    groups = broker.groups
    client = groups.client(context)
    return groups.ask(
        lambda ticket, now_ms: groups.coordinator.leave_group(
            request, context.api_version, client, ticket, now_ms, is_logged=is_logged
        )
    )


async def _in_parts(broker: Broker, request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    """The first part makes the group rebalance, and the others come long before that is over."""
    response, is_logged = LeaveGroupResponse(), False
    async for start in broker.slices.over(range(0, len(request.members), MOST_AT_ONCE)):
        part = replace(request, members=request.members[start : start + MOST_AT_ONCE])
        answer = _leave(broker, part, context, is_logged=is_logged)
        is_logged = is_logged or any(not one.member_id and one.group_instance_id is None for one in part.members)
        answered = await answer if isinstance(answer, Coroutine) else answer
        if answered.error_code:
            return LeaveGroupResponse(error_code=answered.error_code)
        response.members += answered.members
    return response
