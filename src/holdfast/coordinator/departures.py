"""Heartbeat, LeaveGroup and silence: how members stay and how they go."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

from holdfast.coordinator import calls, growth, intake, presence, rebalance, seats, sessions, standbys
from holdfast.coordinator.context import Context
from holdfast.coordinator.group import Group
from holdfast.coordinator.identity import identify
from holdfast.coordinator.joining import tell_fenced
from holdfast.coordinator.ledger import EventKind
from holdfast.coordinator.members import Client, Member
from holdfast.coordinator.states import ANSWERS, DEAD, PREPARING, Answer, Request
from holdfast.wire.apis.heartbeat import HeartbeatRequest
from holdfast.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from holdfast.wire.error_codes import ErrorCode

logger = logging.getLogger(__name__)

FIRST_WITH_BATCH = 3


def heartbeat(ctx: Context, group: Group, request: HeartbeatRequest, client: Client, now_ms: int) -> ErrorCode:
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    member = identify(group.roster, request.member_id, request.group_instance_id)
    if isinstance(member, ErrorCode):
        if member is ErrorCode.FENCED_INSTANCE_ID:
            tell_fenced(ctx, group, request.member_id, request.group_instance_id, client, now_ms)
        return member
    if member.waits:
        returned = presence.heard(group, member, client)
        code = seats.heartbeat(ctx, group, member, request.generation_id, now_ms)
        if returned:
            intake.review(ctx, group, now_ms)
        return code
    if request.generation_id != group.generation and not member.had_seat:
        return ErrorCode.ILLEGAL_GENERATION
    # A request that is wrong in any way does not keep a session alive; this one is right.
    presence.heard(group, member, client)
    sessions.refresh(ctx, group, member, now_ms)
    if request.generation_id != group.generation:
        member.told_to_join = True
        return ErrorCode.REBALANCE_IN_PROGRESS  # it only waited so far: it is to join, and has not lost anything
    if group.growth_unreviewed:
        growth.review_after_loading(ctx, group, now_ms)
    answer = ANSWERS[Request.HEARTBEAT][group.state]
    member.told_to_join = group.state is PREPARING
    return calls.heartbeat(group, member) if answer is Answer.ACCEPT else ErrorCode[answer.name]


@dataclass(frozen=True, slots=True)
class Leave:
    request: LeaveGroupRequest
    api_version: int
    client: Client
    ticket: object
    is_logged: bool = False
    """Entries without ids were logged with an earlier part of the request."""

    @property
    def members(self) -> list[MemberIdentity]:
        if self.api_version >= FIRST_WITH_BATCH:
            return self.request.members
        return [MemberIdentity(self.request.member_id)]


def leave(ctx: Context, group: Group | None, command: Leave, now_ms: int) -> None:
    """KIP-345: several members may leave at once; each entry has its own result, all together cause one rebalance."""
    if group is not None and group.state is DEAD:
        ctx.reply(command.ticket, LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    nameless = sum(_is_nameless(group, entry) for entry in command.members)
    if nameless and not command.is_logged:
        # KIP-345. One line, however many there are.
        logger.warning(
            "LeaveGroup from %s (%.200s): %d of %d entries name neither a member id nor an instance id",
            command.client.host,
            command.client.client_id,
            nameless,
            len(command.members),
        )
    removed: list[Member] = []
    results: list[MemberResponse] = []
    for entry in command.members:
        code = _leave_one(ctx, group, entry, command.client, removed, now_ms)
        results.append(MemberResponse(entry.member_id, entry.group_instance_id, code))
    if command.api_version >= FIRST_WITH_BATCH:
        ctx.reply(command.ticket, LeaveGroupResponse(members=results))
    else:
        ctx.reply(command.ticket, LeaveGroupResponse(error_code=results[0].error_code))
    if group is not None:
        # Also if nobody was removed: a pending id may have been the last one waited for, a standby the last one called.
        cause = "a member left" if len(removed) == 1 else f"{len(removed)} members left"
        standbys.after_removal(ctx, group, removed, now_ms, cause=cause)
        standbys.review_places(ctx, group, now_ms)


def _is_nameless(group: Group | None, entry: MemberIdentity) -> bool:
    """Whether it has neither id, or empty ones. As in Kafka a member may have joined with an empty instance id."""
    if entry.member_id or entry.group_instance_id:
        return False
    return group is None or group.roster.holder_of(entry.group_instance_id) is None


def _leave_one(
    ctx: Context, group: Group | None, entry: MemberIdentity, client: Client, removed: list[Member], now_ms: int
) -> ErrorCode:
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    roster = group.roster
    if not entry.member_id:
        member: Member | ErrorCode = roster.holder_of(entry.group_instance_id) or ErrorCode.UNKNOWN_MEMBER_ID
    elif (pending := roster.pending.pop(entry.member_id, None)) is not None:
        pending.cancel()
        return ErrorCode.NONE
    else:
        member = identify(roster, entry.member_id, entry.group_instance_id)
    if isinstance(member, ErrorCode):
        if member is ErrorCode.FENCED_INSTANCE_ID:
            tell_fenced(ctx, group, entry.member_id, entry.group_instance_id, client, now_ms)
        return member
    cause = "it left" if entry.member_id else f"removed by {client.client_id} from {client.host}"
    ctx.tell(EventKind.MEMBER_LEFT, group, now_ms, member=member, cause=cause, reason=entry.reason)
    if member.waits:
        seats.leave(group, member)
    else:
        rebalance.remove(ctx, group, member)
        removed.append(member)
    return ErrorCode.NONE


def expel_the_silent(ctx: Context) -> None:
    """Lets the sessions of this context end in removal."""
    ctx.on_silence = partial(_session_ended, ctx)


def _session_ended(ctx: Context, group: Group, member: Member, now_ms: int) -> None:
    cause = f"silent for longer than its session of {member.session_timeout_ms} ms"
    ctx.tell(EventKind.SESSION_EXPIRED, group, now_ms, member=member, cause=cause)
    if member.waits:
        seats.leave(group, member)
        standbys.review_places(ctx, group, now_ms)
        return
    rebalance.remove(ctx, group, member)
    standbys.after_removal(ctx, group, [member], now_ms, cause="a member's session expired", expired=True)
