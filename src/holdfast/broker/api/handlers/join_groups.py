"""JoinGroups (Holdfast's own): the members of one process join together. Parked until each of them has its response."""

from __future__ import annotations

from typing import Final

from holdfast.broker.api.handlers.join_group import MAX_PROTOCOLS
from holdfast.broker.api.registry import handler
from holdfast.broker.api.replies import Disconnect
from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import GroupServices
from holdfast.broker.groups.service import PendingReply
from holdfast.coordinator.extensions.join_groups import MAX_MEMBERS
from holdfast.wire.apis.join_group import JoinGroupResponse
from holdfast.wire.apis.join_groups import JOIN_GROUPS, JoinGroupsRequest, JoinGroupsResponse, JoinGroupsResult

MAX_PROTOCOLS_PER_MEMBER: Final = 10
"""On average; a single member may offer as many as in a JoinGroup."""


@handler(JOIN_GROUPS)
async def join_groups(
    services: GroupServices, request: JoinGroupsRequest, context: RequestContext
) -> JoinGroupsResponse:
    if len(request.members) > MAX_MEMBERS:
        raise Disconnect(f"JoinGroups with {len(request.members)} members; at most {MAX_MEMBERS} may join at once")
    protocols = sum(len(member.protocols) for member in request.members)
    if protocols > max(MAX_PROTOCOLS, MAX_PROTOCOLS_PER_MEMBER * len(request.members)):
        raise Disconnect(f"JoinGroups with {protocols} protocols of {len(request.members)} members")
    groups = services.groups
    await groups.group_log.create_if_missing()
    client = groups.client_of(context)
    replies = [PendingReply() for _ in request.members]
    fresh_ids = [groups.new_uuid() for _ in request.members]
    groups.execute(lambda now_ms: groups.coordinator.join_groups(request, client, replies, fresh_ids, now_ms))
    return JoinGroupsResponse(results=[_result(await reply.wait()) for reply in replies])


def _result(answer: JoinGroupResponse) -> JoinGroupsResult:
    return JoinGroupsResult(
        error_code=answer.error_code,
        generation_id=answer.generation_id,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=answer.members,
    )
