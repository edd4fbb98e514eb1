"""Member ids that were handed out (KIP-394) and that no client has joined with yet."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Final

from holdfast.coordinator.classic import rebalance
from holdfast.coordinator.classic.group import Group
from holdfast.coordinator.classic.hooks import Context

MAX_PENDING: Final = 1_000
"""In one group. If a client asks for more and more of them, the oldest is forgotten. Its owner gets UNKNOWN_MEMBER_ID
when it joins, and asks again."""


def pending_member_timer(member_id: str) -> Hashable:
    """The key of the timer."""
    return "pending member", member_id


def add_pending_member(ctx: Context, group: Group, member_id: str, until_ms: int) -> None:
    pending = group.members.pending_member_ids
    if len(pending) >= MAX_PENDING:
        remove_pending_member(ctx, group, next(iter(pending)))
    pending[member_id] = None
    ctx.schedule(group, pending_member_timer(member_id), until_ms, partial(_expire, ctx, group, member_id))


def remove_pending_member(ctx: Context, group: Group, member_id: str) -> bool:
    """Returns whether the id was pending."""
    if member_id not in group.members.pending_member_ids:
        return False
    del group.members.pending_member_ids[member_id]
    ctx.cancel(group, pending_member_timer(member_id))
    return True


def _expire(ctx: Context, group: Group, member_id: str, now_ms: int) -> None:
    del group.members.pending_member_ids[member_id]
    rebalance.maybe_complete_join(ctx, group, now_ms, also_in_delay=True)
