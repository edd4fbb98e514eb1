"""Heartbeat: keeps a member's session alive, and tells it whether to rejoin."""

from __future__ import annotations

from functools import cache
from typing import Any

from holdfast.broker.api.registry import handler
from holdfast.broker.api.replies import PreEncoded
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import GroupServices
from holdfast.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.message import encode


@handler(HEARTBEAT)
def heartbeat(services: GroupServices, request: HeartbeatRequest, context: RequestContext) -> Any:
    groups = services.groups
    answer = groups.heartbeat(request, groups.client_of(context))
    if answer is ErrorCode.NONE:
        return _no_error(context.api_version)
    return HeartbeatResponse(error_code=answer) if isinstance(answer, ErrorCode) else answer


@cache
def _no_error(version: int) -> PreEncoded:
    """The response to nearly every heartbeat is the same bytes."""
    return PreEncoded(encode(HeartbeatResponse(error_code=ErrorCode.NONE), version))
