"""How long a member may be silent.

A member whose request is awaited is alive: it waits for the coordinator. Only the first join of a new member has a
limit of its own. Once an awaited request is answered, the session starts again.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from holdfast.coordinator.classic.group import Group
from holdfast.coordinator.classic.hooks import Context
from holdfast.coordinator.classic.member import Client, Member, Role

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""Kafka's: how long the first join of a member may be awaited. It limits what clients leave behind that disconnect and
join again as another member, over and over."""

HUNG_APPEND_MS: Final = 1_000
"""An append that takes this long hangs: a broker of the group log is down, or a disk does not respond."""


def refresh(ctx: Context, group: Group, member: Member, now_ms: int) -> None:
    """The member has shown that it is alive."""
    timer = group.timers.get(member)
    if timer is None or not timer.move(now_ms + member.session_timeout_ms):
        _schedule_expiry(ctx, group, member, now_ms + member.session_timeout_ms)


def keep_alive(ctx: Context, group: Group, member: Member, client: Client, now_ms: int) -> None:
    """A valid request of the member. A request with an error does not keep a session alive."""
    if client.connection is not member.connection or member.disconnected:
        seen(ctx, group, member, client)
    refresh(ctx, group, member, now_ms)


def seen(ctx: Context, group: Group, member: Member, client: Client) -> bool:
    """Notes the connection of a request. Returns whether the member had been disconnected."""
    connection = client.connection
    if connection is member.connection and not member.disconnected:
        return False
    if connection is not None and connection.is_closed:
        # It was closed while the request was queued behind an append.
        member.leave_connection()
        member.disconnected = True
        return False
    returned, is_new = member.disconnected, member.connection is None
    member.seen_on(connection, group.id)
    if returned or not is_new:
        ctx.hooks.on_reconnect(ctx, group, member)
    return returned


def extend_after_append(ctx: Context, group: Group, began_ms: int, now_ms: int) -> None:
    """Sessions do not run while an append hangs: a member whose commit waits for it cannot send a heartbeat on the
    same connection."""
    hung_ms = now_ms - began_ms
    if hung_ms < HUNG_APPEND_MS:
        return
    for member in group.members.all_members:
        timer = group.timers.get(member)
        if timer is None:
            continue
        until_ms = min(timer.at_ms + hung_ms, now_ms + member.session_timeout_ms)
        if until_ms > timer.at_ms and not timer.move(until_ms):
            _schedule_expiry(ctx, group, member, until_ms)  # it was due, and waited for the append


def start_first_join(ctx: Context, group: Group, member: Member, client: Client, now_ms: int) -> None:
    seen(ctx, group, member, client)
    _schedule_expiry(ctx, group, member, now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)


def _schedule_expiry(ctx: Context, group: Group, member: Member, at_ms: int) -> None:
    ctx.schedule(group, member, at_ms, partial(_expired, ctx, group, member))


def _expired(ctx: Context, group: Group, member: Member, now_ms: int) -> None:
    is_awaited = member.awaiting_sync_response is not None or (
        member.awaiting_join is not None and member.role is not Role.NEW
    )
    if is_awaited or ctx.hooks.keeps_session(group, member):
        refresh(ctx, group, member, now_ms)
    else:
        ctx.session_expired(ctx, group, member, now_ms)
