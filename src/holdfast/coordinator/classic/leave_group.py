"""LeaveGroup and the end of a session: how members are removed."""

from __future__ import annotations

from holdfast.coordinator.classic import rebalance
from holdfast.coordinator.classic.commands import FIRST_LEAVE_WITH_MEMBERS, Leave
from holdfast.coordinator.classic.group import Group
from holdfast.coordinator.classic.hooks import Context
from holdfast.coordinator.classic.member import Client, Member, Role
from holdfast.coordinator.classic.pending_members import remove_pending_member
from holdfast.coordinator.classic.state_machine import DISPATCH, RequestKind
from holdfast.coordinator.classic.validate_member import validate_member
from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.events.group_event import EventKind
from holdfast.wire.apis.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from holdfast.wire.error_codes import ErrorCode


def leave(ctx: Context, group: Group, command: Leave, now_ms: int) -> None:
    """KIP-345: several members may leave at once; each entry has its own result, all together cause one rebalance."""
    rejected = DISPATCH[RequestKind.LEAVE].rejection(group.state)
    if rejected:
        ctx.reply(command.reply_handle, LeaveGroupResponse(error_code=rejected))
        return
    _warn_of_entries_without_id(ctx, group, command)
    removed: list[Member] = []
    results = [_leave_one(ctx, group, entry, command.client, removed, now_ms) for entry in command.members]
    _reply(ctx, command, results)
    # Also if no member was removed: a pending id may have been the last one waited for.
    cause = Cause(CauseCode.MEMBER_LEFT, count=len(removed))
    rebalance.after_removed(ctx, group, removed, now_ms, cause=cause)
    ctx.hooks.standby_removed(ctx, group, now_ms)


def leave_unknown_group(ctx: Context, command: Leave) -> None:
    _warn_of_entries_without_id(ctx, None, command)
    _reply(ctx, command, [ErrorCode.UNKNOWN_MEMBER_ID] * len(command.members))


def _reply(ctx: Context, command: Leave, results: list[ErrorCode]) -> None:
    if command.api_version >= FIRST_LEAVE_WITH_MEMBERS:
        members = [
            MemberResponse(entry.member_id, entry.group_instance_id, code)
            for entry, code in zip(command.members, results, strict=True)
        ]
        ctx.reply(command.reply_handle, LeaveGroupResponse(members=members))
    else:
        ctx.reply(command.reply_handle, LeaveGroupResponse(error_code=results[0]))


def _warn_of_entries_without_id(ctx: Context, group: Group | None, command: Leave) -> None:
    """KIP-345. One line, however many there are."""
    count = sum(_has_no_id(group, entry) for entry in command.members)
    if count and not command.is_logged:
        client, total = command.client, len(command.members)
        ctx.warn(
            f"LeaveGroup from {client.host} ({client.client_id[:200]}): "
            f"{count} of {total} entries name neither a member id nor an instance id"
        )


def _has_no_id(group: Group | None, entry: MemberIdentity) -> bool:
    """Whether it has neither id, or empty ones. As in Kafka a member may have joined with an empty instance id."""
    if entry.member_id or entry.group_instance_id:
        return False
    return group is None or group.members.static_member(entry.group_instance_id) is None


def _leave_one(
    ctx: Context, group: Group, entry: MemberIdentity, client: Client, removed: list[Member], now_ms: int
) -> ErrorCode:
    if not entry.member_id:
        member = group.members.static_member(entry.group_instance_id) or ErrorCode.UNKNOWN_MEMBER_ID
    elif remove_pending_member(ctx, group, entry.member_id):
        return ErrorCode.NONE
    else:
        member = validate_member(ctx, group, entry.member_id, entry.group_instance_id, client, now_ms)
    if not isinstance(member, Member):
        return member
    by = f"{client.client_id} from {client.host}"
    cause = Cause(CauseCode.LEAVE_REQUESTED) if entry.member_id else Cause(CauseCode.REMOVED_BY_CLIENT, detail=by)
    ctx.emit(EventKind.MEMBER_LEFT, group, now_ms, member=member, cause=cause, reason=entry.reason)
    rebalance.remove_member(ctx, group, member)
    if member.role is not Role.STANDBY:
        removed.append(member)
    return ErrorCode.NONE


def session_expired(ctx: Context, group: Group, member: Member, now_ms: int) -> None:
    cause = Cause(CauseCode.HEARTBEAT_EXPIRED, count=member.session_timeout_ms)
    ctx.emit(EventKind.SESSION_EXPIRED, group, now_ms, member=member, cause=cause)
    rebalance.remove_member(ctx, group, member)
    if member.role is Role.STANDBY:
        ctx.hooks.standby_removed(ctx, group, now_ms)
    else:
        expired = Cause(CauseCode.SESSION_EXPIRED)
        rebalance.after_removed(ctx, group, [member], now_ms, cause=expired, expired=True)
