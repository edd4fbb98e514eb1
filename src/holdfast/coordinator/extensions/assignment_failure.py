"""Assignment failure (Kafka wiki, Client-side Assignment Proposal): a leader reports that it cannot assign.

Its generation has no assignment. The members that wait for one get an error at once and rejoin, another leader is
preferred, and the rounds back off as long as they fail. In Kafka such a leader leaves or sends no more heartbeats, and
the others wait for the end of its session.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from holdfast.coordinator.classic import rebalance
from holdfast.coordinator.classic.commands import Sync
from holdfast.coordinator.classic.group import Group, JoinPhase
from holdfast.coordinator.classic.hooks import Context
from holdfast.coordinator.classic.member import Member
from holdfast.coordinator.classic.responses import sync_error
from holdfast.coordinator.classic.sync_barrier import fail_pending_syncs
from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.events.group_event import MAX_TEXT_LENGTH, EventKind
from holdfast.wire.apis.sync_group import AssignmentFailure
from holdfast.wire.error_codes import ErrorCode

BACKOFF: Final = "assignment backoff"
"""The key of the timer."""
FIRST_BACKOFF_MS: Final = 100
MAX_BACKOFF_MS: Final = 10_000


def report_failure(
    ctx: Context, group: Group, command: Sync, leader: Member, failure: AssignmentFailure, now_ms: int
) -> None:
    shown = AssignmentFailure(failure.code, failure.message[:MAX_TEXT_LENGTH])
    cause = Cause(CauseCode.ASSIGNOR_ERROR, count=shown.code, detail=shown.message)
    ctx.emit(EventKind.ASSIGNMENT_FAILED, group, now_ms, member=leader, cause=cause, members=len(group.members))
    group.failed_leaders.add(leader.id)
    group.ext.failed_assignments += 1
    ctx.reply(command.reply_handle, sync_error(ErrorCode.REBALANCE_IN_PROGRESS, shown))
    fail_pending_syncs(ctx, group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms, failure=shown)
    backoff_ms = min(FIRST_BACKOFF_MS << min(group.ext.failed_assignments - 1, 20), MAX_BACKOFF_MS)
    ctx.schedule(group, BACKOFF, now_ms + backoff_ms, partial(_end_backoff, ctx, group))
    cause = Cause(CauseCode.ASSIGNMENT_FAILED)
    rebalance.prepare_rebalance(ctx, group, now_ms, cause=cause, member=leader, backoff=True)


def _end_backoff(ctx: Context, group: Group, now_ms: int) -> None:
    if group.join_phase is JoinPhase.BACKOFF:
        group.join_phase = JoinPhase.COLLECTING
        rebalance.maybe_complete_join(ctx, group, now_ms)
