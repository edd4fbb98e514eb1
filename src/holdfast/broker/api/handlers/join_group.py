"""JoinGroup: joins a group. Parked until the join phase is complete."""

from __future__ import annotations

from typing import Any, Final

from holdfast.broker.api.registry import handler
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import GroupServices
from holdfast.coordinator.classic.responses import join_error
from holdfast.wire.apis.join_group import JOIN_GROUP, JoinGroupRequest
from holdfast.wire.error_codes import ErrorCode

MAX_PROTOCOLS: Final = 10_000
"""Protocols of one member. Clients offer a handful."""


@handler(JOIN_GROUP)
def join_group(services: GroupServices, request: JoinGroupRequest, context: RequestContext) -> Any:
    if len(request.protocols) > MAX_PROTOCOLS:
        return join_error(ErrorCode.INVALID_REQUEST, request.member_id, context.api_version)
    groups = services.groups
    return groups.submit_without_task(
        groups.coordinator.join_group, request, context.api_version, groups.client_of(context), groups.new_uuid()
    )
