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
_STANDBY, _PROMOTED, _REQUESTED = Role.STANDBY, Role.PROMOTED, RejoinRequest.REQUESTED


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
