"""Deletes the expired offsets of a group, and the group if nothing else is left of it."""

from __future__ import annotations

from holdfast.coordinator.classic.group import Group
from holdfast.coordinator.classic.hooks import Context
from holdfast.coordinator.classic.state_machine import EMPTY
from holdfast.coordinator.delete_group import delete_group
from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.group_registry import GroupRegistry
from holdfast.coordinator.offsets.delete import append_tombstones
from holdfast.coordinator.offsets.expiry import expired_offsets
from holdfast.wire.error_codes import ErrorCode


def expire_offsets(ctx: Context, registry: GroupRegistry, group: Group, now_ms: int) -> None:
    expired = expired_offsets(group, ctx.config.offsets_retention_ms, now_ms)
    if len(expired) == len(group.stored.offsets) and _is_expired(group):
        cause = Cause(CauseCode.GROUP_EXPIRED)
        delete_group(ctx, registry, group, now_ms, cause=cause, done=_done, keep_configs=True)
    elif expired:
        append_tombstones(ctx, group, expired, _done)


def _is_expired(group: Group) -> bool:
    """It has no members, none is registered, and there is something to delete."""
    is_empty = group.state is EMPTY and not (group.members.pending_member_ids or group.extensions.registered)
    return is_empty and (group.has_history or not group.is_stored)


def _done(code: ErrorCode) -> None:
    """No client waits for it; what failed is tried again."""
