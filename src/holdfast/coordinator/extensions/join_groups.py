"""JoinGroups: the members of one process join in one request, and the join phase does not end in the middle of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from holdfast.coordinator.classic import join_group, rebalance, session
from holdfast.coordinator.classic.commands import Join
from holdfast.coordinator.classic.group import Group
from holdfast.coordinator.classic.hooks import Context
from holdfast.coordinator.classic.member import Role
from holdfast.coordinator.classic.responses import join_error, join_response
from holdfast.coordinator.extensions import admission
from holdfast.coordinator.runtime.batched_replies import JoinBatch
from holdfast.coordinator.runtime.context import QueuedRequest
from holdfast.wire.apis.join_group import JoinGroupRequest
from holdfast.wire.apis.join_groups import JoinGroupsRequest
from holdfast.wire.error_codes import ErrorCode

MAX_MEMBERS: Final = 1_000
"""In one request, which is handled in one round of the event loop. A process with more members sends several."""


def entries(request: JoinGroupsRequest) -> list[JoinGroupRequest]:
    """Each member's JoinGroup."""
    return [
        JoinGroupRequest(
            group_id=request.group_id,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            protocol_type=request.protocol_type,
            protocols=member.protocols,
            reason=member.reason,
        )
        for member in request.members
    ]


def join(ctx: Context, group: Group, commands: Sequence[Join], now_ms: int) -> None:
    if any(_has_no_id(command) for command in commands):
        _require_member_ids(ctx, group, commands, now_ms)
        return
    group.ext.open_batches += 1
    # First the joins that may start a rebalance: the others then take part in it, and none is answered too early.
    remaining = deque(sorted(commands, key=lambda command: not _may_start_rebalance(group, command)))

    _handle_remaining(ctx, group, remaining, now_ms)


def _handle_remaining(ctx: Context, group: Group, remaining: deque[Join], now_ms: int) -> None:
    while remaining and not group.append_in_flight:
        join_group.join(ctx, group, remaining.popleft(), now_ms)
    if group.append_in_flight:
        # A static member that restarted is stored before the next entry is handled.
        group.queued_commands.append(QueuedRequest(_handle_remaining, ctx, group, remaining))
        return
    group.ext.open_batches -= 1
    rebalance.maybe_complete_join(ctx, group, now_ms)
    admission.reconsider_admission(ctx, group, now_ms)


def _may_start_rebalance(group: Group, command: Join) -> bool:
    members, request = group.members, command.request
    member = members.get(request.member_id) if request.member_id else members.static_member(request.group_instance_id)
    if member is None:
        return True
    return [protocol.name for protocol in member.protocols] != [protocol.name for protocol in command.protocols]


def _has_no_id(command: Join) -> bool:
    return not command.request.member_id and command.request.group_instance_id is None


def _require_member_ids(ctx: Context, group: Group, commands: Sequence[Join], now_ms: int) -> None:
    """KIP-394: entries without an id get one to join again with. The others are to be sent again together with them."""
    for command in commands:
        if _has_no_id(command):
            join_group.join(ctx, group, command, now_ms)
        else:
            code = ErrorCode.REBALANCE_IN_PROGRESS
            ctx.reply(command.reply_handle, join_error(code, command.request.member_id, command.api_version))


def deliver_answered(ctx: Context, groups: Mapping[str, Group], answered: list[JoinBatch], now_ms: int) -> None:
    """Delivers the batches that are still answered, and empties the list."""
    batches = list(dict.fromkeys(answered))
    answered.clear()
    for batch in batches:
        if not batch.unanswered:
            _deliver(ctx, None if batch.group_id is None else groups.get(batch.group_id), batch, now_ms)


def _deliver(ctx: Context, group: Group | None, batch: JoinBatch, now_ms: int) -> None:
    """Delivers the responses of a batch; from now on the sessions of its members count."""
    if group is not None:
        group.ext.unanswered_batches.remove(batch)
        for member_id, entry in batch.undelivered_joins():
            member = group.members.get(member_id)
            if member is not None:
                session.refresh(ctx, group, member, now_ms)
                if member.role is Role.STANDBY:
                    entry.response = join_response(group, member)  # the generation may be another one by now
    for entry in batch.entries:
        ctx.effects.replies.append((entry.reply_handle, entry.response))
