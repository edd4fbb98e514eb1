"""JoinGroup: which members are admitted, under which id, and whether the group rebalances for it."""

from __future__ import annotations

from typing import Final

from holdfast.coordinator.classic import rebalance, session
from holdfast.coordinator.classic.commands import Join
from holdfast.coordinator.classic.group import CONSUMER, Group, JoinPhase
from holdfast.coordinator.classic.hooks import Context
from holdfast.coordinator.classic.member import Member, RejoinRequest, Role
from holdfast.coordinator.classic.pending_members import add_pending_member, remove_pending_member
from holdfast.coordinator.classic.responses import join_error, join_response
from holdfast.coordinator.classic.state_machine import (
    COMPLETING,
    DEAD,
    DISPATCH,
    EMPTY,
    PREPARING,
    WITHOUT_MEMBERS,
    Outcome,
    RequestKind,
    Row,
)
from holdfast.coordinator.classic.static_member import (
    replace_static_member,
    replace_static_member_durably,
    why_rebalance_on_restart,
)
from holdfast.coordinator.classic.validate_member import validate_member
from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.wire.apis.join_group import JoinGroupRequest
from holdfast.wire.error_codes import ErrorCode

FIRST_WITH_REQUIRED_ID: Final = 4
MAX_STRING_BYTES: Final = 32_767
"""In requests and in records."""
MAX_BYTES_PER_CHAR: Final = 4
AWAITED: Final = (Outcome.AWAIT, Outcome.REBALANCE)
"""The join is answered when a join phase completes."""


def join(ctx: Context, group: Group, command: Join, now_ms: int) -> None:
    """A join whose group id and session timeout are valid."""
    request = command.request
    if not accepts_joining_member(ctx, group, request):
        _reject_max_size(ctx, group, command, now_ms)
    elif group.state is DEAD:
        kind = RequestKind.JOIN_UNKNOWN if request.member_id else RequestKind.JOIN_NEW
        _reject(ctx, command, DISPATCH[kind].error(group.state))
    elif not _supports_group_protocol(group, command):
        _reject(ctx, command, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif request.member_id:
        _join_existing_member(ctx, group, command, now_ms)
    elif request.group_instance_id is None:
        _join_new_dynamic_member(ctx, group, command, now_ms)
    else:
        _join_static_member(ctx, group, command, now_ms)


def _reject(ctx: Context, command: Join, code: ErrorCode, member_id: str | None = None) -> None:
    shown = command.request.member_id if member_id is None else member_id
    ctx.reply(command.reply_handle, join_error(code, shown, command.api_version))


# -- group.max.size and protocols --------------------------------------------------------------------------------------


def accepts_joining_member(ctx: Context, group: Group, request: JoinGroupRequest) -> bool:
    """group.max.size counts the awaited joins while a rebalance is prepared, all members otherwise."""
    if group.state in WITHOUT_MEMBERS:
        return True
    members, limit = group.members, ctx.config.max_size
    member = members.get(request.member_id)
    if not request.member_id:
        # Apache Kafka rejects a restarted static member in a full group, although it is no additional member.
        member = members.static_member(request.group_instance_id)
    if group.state is not PREPARING:
        return member is not None or members.total < limit
    if member is not None:
        return member.is_static or member.awaiting_join is not None or members.awaiting_join_count < limit
    # A new member must not take the slot of a static member that has not joined. Counted only where it may matter.
    at_most = members.awaiting_join_count + members.static_member_count + len(members.standbys)
    return at_most < limit or members.reserved_slots < limit


def _reject_max_size(ctx: Context, group: Group, command: Join, now_ms: int) -> None:
    member_id = command.request.member_id
    was_pending = remove_pending_member(ctx, group, member_id)
    member = group.members.get(member_id)
    if member is not None:
        rebalance.remove_member(ctx, group, member)
    _reject(ctx, command, ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    if member is not None:
        rebalance.after_removed(ctx, group, [member], now_ms, cause=Cause(CauseCode.GROUP_FULL))
    elif was_pending:
        rebalance.maybe_complete_join(ctx, group, now_ms)  # it may have been the last one waited for


def _supports_group_protocol(group: Group, command: Join) -> bool:
    protocol_type = command.request.protocol_type
    if not protocol_type or not command.protocols:
        return False
    if group.state is EMPTY:
        return True
    names = [protocol.name for protocol in command.protocols]
    return protocol_type == group.protocol_type and group.members.supports_any_protocol(names)


# -- without a member id -----------------------------------------------------------------------------------------------


def _new_member_id(name: str, fresh_id: str) -> str:
    """Starts with the name, shortened to what a request and a record can hold."""
    room = MAX_STRING_BYTES - len(fresh_id) - 1
    if len(name) * MAX_BYTES_PER_CHAR > room:
        name = name.encode()[:room].decode(errors="ignore")
    return f"{name}-{fresh_id}"


def _join_new_dynamic_member(ctx: Context, group: Group, command: Join, now_ms: int) -> None:
    member_id = _new_member_id(command.client.client_id, command.fresh_id)
    if command.api_version < FIRST_WITH_REQUIRED_ID:
        _join_new_member(ctx, group, command, member_id, now_ms)
        return
    # KIP-394: it must join again with the id, so that a client that gives up and starts over leaves no member behind.
    add_pending_member(ctx, group, member_id, now_ms + command.request.session_timeout_ms)
    _reject(ctx, command, ErrorCode.MEMBER_ID_REQUIRED, member_id)


def _join_static_member(ctx: Context, group: Group, command: Join, now_ms: int) -> None:
    """KIP-345: an instance id without a member id is a static member that starts, or restarts."""
    instance_id = command.request.group_instance_id or ""
    member_id = _new_member_id(instance_id, command.fresh_id)
    member = group.members.static_member(instance_id)
    if member is None:
        _join_new_member(ctx, group, command, member_id, now_ms)
        return
    if member.role is Role.STANDBY:
        replace_static_member(ctx, group, command, member, member_id, now_ms)
        ctx.hooks.standby_join(ctx, group, command, member, now_ms)
        return
    row, cause = DISPATCH[RequestKind.JOIN_STATIC_RESTARTED], Cause(CauseCode.STATIC_MEMBER_RESTARTED)
    if row[group.state] is Outcome.REPLACE:
        changed = why_rebalance_on_restart(ctx, group, command, member)
        if changed is None:
            replace_static_member_durably(ctx, group, command, member, member_id, now_ms)
            return
        row, cause = DISPATCH[RequestKind.JOIN_CHANGED], changed
    if row[group.state] not in AWAITED:
        _reject(ctx, command, row.error(group.state))
        return
    replace_static_member(ctx, group, command, member, member_id, now_ms)
    await_join(ctx, group, command, member, now_ms)
    _rebalance(ctx, group, command, member, row, now_ms, cause=cause)


# -- with a member id --------------------------------------------------------------------------------------------------


def _join_existing_member(ctx: Context, group: Group, command: Join, now_ms: int) -> None:
    request = command.request
    if request.member_id in group.members.pending_member_ids:
        if request.group_instance_id is not None:
            # As Kafka: a static member is never asked to join again with an id.
            _reject(ctx, command, ErrorCode.UNKNOWN_SERVER_ERROR, "")
            return
        remove_pending_member(ctx, group, request.member_id)
        _join_new_member(ctx, group, command, request.member_id, now_ms)
        return
    member = validate_member(ctx, group, request.member_id, request.group_instance_id, command.client, now_ms)
    if not isinstance(member, Member):
        is_unknown = member is ErrorCode.UNKNOWN_MEMBER_ID
        _reject(ctx, command, DISPATCH[RequestKind.JOIN_UNKNOWN].error(group.state) if is_unknown else member)
        return
    session.seen(ctx, group, member, command.client)
    if member.role is Role.STANDBY:
        ctx.hooks.standby_join(ctx, group, command, member, now_ms)
    else:
        rejoin(ctx, group, command, member, now_ms)


def _classify(ctx: Context, group: Group, command: Join, member: Member) -> RequestKind:
    if member.rejoin is not RejoinRequest.NONE and ctx.hooks.satisfies_rejoin(ctx, group, command, member):
        return RequestKind.JOIN_REQUESTED
    # Kafka wiki, Client-side Assignment Proposal, failure step 2: a join after a crash aborts the pending sync.
    if member.protocols != command.protocols or group.reloaded_awaiting_sync:
        return RequestKind.JOIN_CHANGED
    return RequestKind.JOIN_UNCHANGED_LEADER if member.id == group.leader_id else RequestKind.JOIN_UNCHANGED


def rejoin(ctx: Context, group: Group, command: Join, member: Member, now_ms: int) -> None:
    kind = _classify(ctx, group, command, member)
    row = DISPATCH[kind]
    match row[group.state]:
        case Outcome.CURRENT_GENERATION if kind is RequestKind.JOIN_REQUESTED:
            ctx.hooks.requested_join(ctx, group, command, member, now_ms)
        case Outcome.CURRENT_GENERATION:
            # It lost our response, or its memory: its generation has not changed.
            group.members.update(member, command)
            session.refresh(ctx, group, member, now_ms)
            with_members = member.id == group.leader_id and group.state is COMPLETING
            ctx.reply(command.reply_handle, join_response(group, member, with_members=with_members))
        case _:
            rejoin_rebalance(ctx, group, command, member, kind, now_ms, cause=_rejoin_cause(group, kind))


def rejoin_rebalance(
    ctx: Context, group: Group, command: Join, member: Member, kind: RequestKind, now_ms: int, *, cause: Cause
) -> None:
    """The member takes part in the rebalance that is in progress, or starts one."""
    row = DISPATCH[kind]
    if row[group.state] not in AWAITED:
        _reject(ctx, command, row.error(group.state))
        return
    group.members.update(member, command)
    await_join(ctx, group, command, member, now_ms)
    _rebalance(ctx, group, command, member, row, now_ms, cause=cause)


def _rejoin_cause(group: Group, kind: RequestKind) -> Cause:
    if group.reloaded_awaiting_sync:
        return Cause(CauseCode.MEMBER_REJOINED_AFTER_RELOAD)
    if kind is RequestKind.JOIN_UNCHANGED_LEADER:
        return Cause(CauseCode.LEADER_REJOINED)
    # Only consumers have a subscription; Connect's workers, for example, have metadata of another kind.
    is_consumer = group.protocol_type == CONSUMER
    return Cause(CauseCode.SUBSCRIPTION_CHANGED if is_consumer else CauseCode.METADATA_CHANGED)


def await_join(ctx: Context, group: Group, command: Join, member: Member, now_ms: int) -> None:
    """The join is answered when the join phase completes."""
    superseded = group.members.set_awaiting_join(member, command.pending_response)
    if superseded is not None:
        # Kafka does not answer it; its connection would wait for ever.
        code = ErrorCode.REBALANCE_IN_PROGRESS
        ctx.reply(superseded.reply_handle, join_error(code, member.id, superseded.api_version))
    ctx.hooks.join_awaited(ctx, group, member, now_ms)


def _rebalance(
    ctx: Context, group: Group, command: Join, member: Member, row: Row, now_ms: int, *, cause: Cause
) -> None:
    """The join is AWAITED, as part of the rebalance that is in progress or of one that it starts."""
    if row[group.state] is Outcome.AWAIT:
        rebalance.join_rebalance(ctx, group, now_ms, member=member)
    else:
        rebalance.start_rebalance(ctx, group, now_ms, cause=cause, member=member, reason=command.request.reason)


# -- new members -------------------------------------------------------------------------------------------------------


def _join_new_member(ctx: Context, group: Group, command: Join, member_id: str, now_ms: int) -> None:
    member = command.new_member(member_id, now_ms)
    if not ctx.hooks.admit(ctx, group, command, member, now_ms):
        add_member_and_rebalance(ctx, group, command, member, now_ms, cause=Cause(CauseCode.MEMBER_JOINED))


def add_member_and_rebalance(
    ctx: Context, group: Group, command: Join, member: Member, now_ms: int, *, cause: Cause
) -> None:
    row = DISPATCH[RequestKind.JOIN_NEW]
    if row[group.state] not in AWAITED:
        _reject(ctx, command, row.error(group.state))
        return
    if group.state is EMPTY:
        group.protocol_type = command.request.protocol_type
    elif group.join_phase is JoinPhase.INITIAL_DELAY:
        group.join_phase = JoinPhase.INITIAL_DELAY_EXTENDED
    group.members.add(member)
    session.start_first_join(ctx, group, member, command.client, now_ms)
    _rebalance(ctx, group, command, member, row, now_ms, cause=cause)
    ctx.hooks.join_awaited(ctx, group, member, now_ms)
