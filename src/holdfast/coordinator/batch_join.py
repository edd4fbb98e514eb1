"""JoinGroups: the members of one process join in one request, and the join phase does not end in the middle of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from holdfast.coordinator import intake, joining, rebalance, sessions
from holdfast.coordinator.answers import join_error, joined
from holdfast.coordinator.batches import Batch
from holdfast.coordinator.context import Context
from holdfast.coordinator.group import Group
from holdfast.coordinator.joining import Join
from holdfast.wire.apis.join_group import JoinGroupRequest
from holdfast.wire.apis.join_groups import JoinGroupsRequest
from holdfast.wire.error_codes import ErrorCode

MOST_MEMBERS: Final = 1_000
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
    if any(_is_nameless(command) for command in commands):
        _name_them(ctx, group, commands, now_ms)
        return
    group.gathering += 1
    # First those for whom there may be a rebalance: the others then take part in it, and none is answered too early.
    left = deque(sorted(commands, key=lambda command: not _may_begin_a_rebalance(group, command)))

    def go_on(now_ms: int) -> None:
        while left and not group.busy:
            joining.join(ctx, group, left.popleft(), now_ms)
        if left or group.busy:
            # A static member that restarted is stored before the next one is looked at.
            ctx.when_free(group, go_on, now_ms)
            return
        group.gathering -= 1
        rebalance.maybe_complete(ctx, group, now_ms)
        intake.review(ctx, group, now_ms)

    go_on(now_ms)


def _may_begin_a_rebalance(group: Group, command: Join) -> bool:
    roster, request = group.roster, command.request
    member = roster.get(request.member_id) if request.member_id else roster.holder_of(request.group_instance_id)
    if member is None:
        return True
    return [protocol.name for protocol in member.protocols] != [protocol.name for protocol in command.protocols]


def _is_nameless(command: Join) -> bool:
    return not command.request.member_id and command.request.group_instance_id is None


def _name_them(ctx: Context, group: Group, commands: Sequence[Join], now_ms: int) -> None:
    """KIP-394: who has no id is given one to come back with. The others come again together with it."""
    for command in commands:
        if _is_nameless(command):
            joining.join(ctx, group, command, now_ms)
        else:
            code = ErrorCode.REBALANCE_IN_PROGRESS
            ctx.reply(command.ticket, join_error(code, command.request.member_id, command.api_version))


def deliver(ctx: Context, batch: Batch, now_ms: int) -> None:
    """All of them are heard now, and from now on each of them is expected to be heard of."""
    group = batch.group
    if group is not None:
        group.batches.remove(batch)
        for member, slot in batch.joined():
            sessions.refresh(ctx, group, member, now_ms)
            if member.waits:
                slot.answer = joined(group, member)  # the generation may be another than when it sat down
    for slot in batch.slots:
        ctx.effects.replies.append((slot.ticket, slot.answer))
