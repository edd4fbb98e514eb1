"""A group that was loaded from the log is served again."""

from __future__ import annotations

from holdfast.coordinator.classic import rebalance, session
from holdfast.coordinator.classic.group import Group
from holdfast.coordinator.classic.hooks import Context
from holdfast.coordinator.classic.state_machine import COMPLETING
from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.extensions import admission, registration, standby_members, targeted_rejoin


def resume(ctx: Context, group: Group, now_ms: int) -> None:
    """All members have new sessions, and what was to happen within the generation is started again."""
    is_sound = group.restore()
    standby_members.group_reloaded(group)
    for member in group.members:
        session.refresh(ctx, group, member, now_ms)
    if group.state is COMPLETING:
        group.rebalance_began_ms = now_ms
        rebalance.schedule_pending_sync(ctx, group, now_ms)
    targeted_rejoin.reissue_after_reload(ctx, group, now_ms)
    registration.schedule_expiry(ctx, group)
    admission.reconsider_admission(ctx, group, now_ms)
    if not is_sound:
        rebalance.prepare_rebalance(ctx, group, now_ms, cause=Cause(CauseCode.MEMBER_STORED_TWICE))
    elif len(group.members) > ctx.config.max_size:
        rebalance.prepare_rebalance(ctx, group, now_ms, cause=Cause(CauseCode.MAX_SIZE_EXCEEDED))
