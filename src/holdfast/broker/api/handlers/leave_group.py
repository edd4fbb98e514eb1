"""LeaveGroup: removes one or many members."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, Final

from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import GroupServices
from holdfast.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse

MEMBERS_PER_STEP: Final = 200
"""Members removed in one step; other requests are served between two steps."""


@handler(LEAVE_GROUP)
def leave_group(services: GroupServices, request: LeaveGroupRequest, context: RequestContext) -> Any:
    if len(request.members) > MEMBERS_PER_STEP:
        return _in_parts(services, request, context)
    return _leave(services, request, context)


def _leave(
    services: GroupServices, request: LeaveGroupRequest, context: RequestContext, *, is_logged: bool = False
) -> Any:
    groups = services.groups
    leave = partial(groups.coordinator.leave_group, is_logged=is_logged)
    return groups.submit(leave, request, context.api_version, groups.client_of(context))


async def _in_parts(services: GroupServices, request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    """The first part starts a rebalance; the others follow long before it completes."""
    response, is_logged = LeaveGroupResponse(), False
    async for start in services.slices.iterate(range(0, len(request.members), MEMBERS_PER_STEP)):
        part = replace(request, members=request.members[start : start + MEMBERS_PER_STEP])
        answer = _leave(services, part, context, is_logged=is_logged)
        is_logged = is_logged or any(not one.member_id and one.group_instance_id is None for one in part.members)
        answered = await answer if isinstance(answer, Coroutine) else answer
        if answered.error_code:
            return LeaveGroupResponse(error_code=answered.error_code)
        response.members += answered.members
    return response
