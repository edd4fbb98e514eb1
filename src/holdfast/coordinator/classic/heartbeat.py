"""Heartbeat: a member is alive, and learns whether it has to rejoin."""

from __future__ import annotations

from holdfast.coordinator.classic import session
from holdfast.coordinator.classic.commands import Heartbeat
from holdfast.coordinator.classic.group import Group
from holdfast.coordinator.classic.hooks import Context
from holdfast.coordinator.classic.member import Client, Member, RejoinRequest, Role
from holdfast.coordinator.classic.state_machine import DISPATCH, PREPARING, Outcome, RequestKind
from holdfast.coordinator.classic.validate_member import validate_member
from holdfast.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast.wire.error_codes import ErrorCode

# This is the most frequent request, and in Python 3.11 a name of an enum takes ten times as long as one of the module.
_HEARTBEAT, _HEARTBEAT_REQUESTED = DISPATCH[RequestKind.HEARTBEAT], DISPATCH[RequestKind.HEARTBEAT_REQUESTED]
_ACCEPT, _NONE = Outcome.ACCEPT, ErrorCode.NONE
_ACTIVE, _STANDBY, _PROMOTED, _REQUESTED = Role.ACTIVE, Role.STANDBY, Role.PROMOTED, RejoinRequest.REQUESTED


def heartbeat(ctx: Context, group: Group, command: Heartbeat, now_ms: int) -> None:
    code = answer_heartbeat(ctx, group, command.request, command.client, now_ms)
    ctx.reply(command.reply_handle, HeartbeatResponse(error_code=code))


def answer_heartbeat(ctx: Context, group: Group, request: HeartbeatRequest, client: Client, now_ms: int) -> ErrorCode:
    member = validate_member(ctx, group, request.member_id, request.group_instance_id, client, now_ms)
    if not isinstance(member, Member):
        return _HEARTBEAT.error_without_members(group.state) or member
    if member.role is _STANDBY:
        return ctx.hooks.standby_heartbeat(ctx, group, request, client, member, now_ms)
    # A promoted member was a standby, perhaps in an older generation. It has lost nothing and only has to join.
    if request.generation_id != group.generation and member.role is not _PROMOTED:
        return ErrorCode.ILLEGAL_GENERATION
    session.keep_alive(ctx, group, member, client, now_ms)
    if group.first_heartbeat_awaited:
        group.first_heartbeat_awaited = False
        ctx.hooks.heartbeat_after_reload(ctx, group, now_ms)
    member.notified_of_rebalance = group.state is PREPARING
    row = _HEARTBEAT_REQUESTED if member.rejoin is _REQUESTED else _HEARTBEAT
    return _NONE if row[group.state] is _ACCEPT else row.error(group.state)


def answer_past_append(
    ctx: Context, group: Group, request: HeartbeatRequest, client: Client, now_ms: int
) -> ErrorCode | None:
    """The answer while an append is in flight, which may take seconds if the group log is in another machine.

    Until the append is stored nothing has changed, so the answer is that of the stored state. None if the heartbeat is
    more than a sign of life: then it waits for the append.
    """
    member = group.members.get(request.member_id)
    if (
        member is None
        or member.role is not _ACTIVE
        or member.disconnected
        or member.connection is not client.connection
        or request.group_instance_id not in (None, member.instance_id)
        or request.generation_id != group.generation
        or group.first_heartbeat_awaited
    ):
        return None
    return answer_heartbeat(ctx, group, request, client, now_ms)
