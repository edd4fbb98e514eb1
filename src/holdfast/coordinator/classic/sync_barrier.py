"""The members whose SyncGroup a generation waits for, and the SyncGroup requests that wait for its assignment."""

from __future__ import annotations

from typing import Final

from holdfast.coordinator.classic import session
from holdfast.coordinator.classic.group import Group
from holdfast.coordinator.classic.hooks import Context
from holdfast.coordinator.classic.member import Member
from holdfast.coordinator.classic.responses import sync_error
from holdfast.wire.apis.sync_group import AssignmentFailure
from holdfast.wire.error_codes import ErrorCode

PENDING_SYNC: Final = "pending sync"
"""The key of the timer."""


def remove_pending_sync(ctx: Context, group: Group, member_id: str) -> None:
    """The member has sent its SyncGroup."""
    pending = group.members.pending_sync_members
    pending.discard(member_id)
    if not pending:
        ctx.cancel(group, PENDING_SYNC)


def late_members(group: Group) -> list[Member]:
    """KIP-345: only its session removes a static member that missed the join phase; Apache Kafka removes it here."""
    pending = [group.members.get(member_id) for member_id in group.members.pending_sync_members]
    return [member for member in pending if member is not None and not member.missed_join_phase]


def fail_pending_syncs(
    ctx: Context, group: Group, code: ErrorCode, now_ms: int, *, failure: AssignmentFailure | None = None
) -> None:
    """Answers the SyncGroup requests that wait for the assignment; their sessions start again."""
    for member in group.members.by_id.values():
        pending = member.awaiting_sync_response
        if pending is not None:
            ctx.reply(pending.reply_handle, sync_error(code, failure if pending.has_tags else None))
            member.awaiting_sync_response = None
            session.refresh(ctx, group, member, now_ms)
