"""Assignment failure (the client-side assignment document): a leader that cannot assign says so.

Its generation is void: whoever waits for a share is sent back to join at once, another leader is preferred, and the
rounds back off as long as they go wrong. In Kafka such a leader leaves or falls silent, and all wait for its session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.coordinator import rebalance
from holdfast.coordinator.answers import sync_error
from holdfast.coordinator.context import Context
from holdfast.coordinator.group import Group
from holdfast.coordinator.ledger import LONGEST_TEXT, EventKind
from holdfast.coordinator.members import Member
from holdfast.wire.apis.sync_group import AssignmentFailure
from holdfast.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from holdfast.coordinator.syncing import Sync

FIRST_BACKOFF_MS: Final = 100
LONGEST_BACKOFF_MS: Final = 10_000


def report(ctx: Context, group: Group, command: Sync, leader: Member, failure: AssignmentFailure, now_ms: int) -> None:
    told = AssignmentFailure(failure.code, failure.message[:LONGEST_TEXT])
    cause = f"code {told.code}: {told.message}"
    ctx.tell(EventKind.ASSIGNMENT_FAILED, group, now_ms, member=leader, cause=cause, members=len(group.roster))
    group.failed_leaders.add(leader.id)
    group.failed_rounds += 1
    ctx.reply(command.ticket, sync_error(ErrorCode.REBALANCE_IN_PROGRESS, told))
    rebalance.release_syncs(ctx, group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms, failure=told)
    backoff_ms = min(FIRST_BACKOFF_MS << min(group.failed_rounds - 1, 20), LONGEST_BACKOFF_MS)
    _back_off(ctx, group, now_ms, backoff_ms)
    rebalance.prepare(ctx, group, now_ms, cause="the leader could not assign", member=leader)


def _back_off(ctx: Context, group: Group, now_ms: int, backoff_ms: int) -> None:
    """The next round does not end before this, however soon all have joined."""
    group.backs_off = True
    rounds = group.failed_rounds

    def time_is_up(now_ms: int) -> None:
        ctx.when_free(group, go_on, now_ms)

    def go_on(now_ms: int) -> None:
        if group.failed_rounds == rounds:
            group.backs_off = False
            rebalance.maybe_complete(ctx, group, now_ms)

    ctx.timers.at(now_ms + backoff_ms, time_is_up)
