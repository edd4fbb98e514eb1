"""How long a member may be silent.

A member whose request is parked is alive by that: it waits for us. So does one whose answer waits for those of its
batch, as long as it has not hung up. Only the first join of a new member has a limit of its own. After a parked request
ends, the session starts again, or the member would live for ever.
"""

from __future__ import annotations

from holdfast.coordinator import batches
from holdfast.coordinator.context import NEW_MEMBER_JOIN_TIMEOUT_MS, Context
from holdfast.coordinator.group import Group
from holdfast.coordinator.members import Member


def refresh(ctx: Context, group: Group, member: Member, now_ms: int) -> None:
    """The member has shown that it is alive."""
    _run_until(ctx, group, member, now_ms + member.session_timeout_ms)


def begin_first_join(ctx: Context, group: Group, member: Member, now_ms: int) -> None:
    _run_until(ctx, group, member, now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)


def _run_until(ctx: Context, group: Group, member: Member, at_ms: int) -> None:
    if member.session is not None and member.session.action is not None:
        ctx.timers.move(member.session, at_ms)
        return

    def ended(now_ms: int) -> None:
        ctx.when_free(group, lambda later_ms: _ended(ctx, group, member, later_ms), now_ms)

    member.session = ctx.timers.at(at_ms, ended)


def _ended(ctx: Context, group: Group, member: Member, now_ms: int) -> None:
    if group.is_dead or group.roster.get(member.id) is not member:
        return
    if member.session is not None and member.session.action is not None:
        return  # it showed itself while this waited for an append
    has_parked = member.parked_sync is not None or (member.parked_join is not None and not member.is_new)
    if has_parked or (not member.is_away and batches.has_unheard_answer(group, member)):
        refresh(ctx, group, member, now_ms)
        return
    ctx.on_silence(group, member, now_ms)
