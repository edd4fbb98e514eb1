"""Is the sender the member it says it is? The same check in every request, before the generation and the state."""

from __future__ import annotations

from typing import Final

from holdfast.coordinator.classic.group import Group
from holdfast.coordinator.classic.hooks import Context
from holdfast.coordinator.classic.member import Client, Member
from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.events.group_event import EventKind
from holdfast.wire.error_codes import ErrorCode

MAX_FENCED: Final = 1_000
"""Fenced senders that are remembered in one group, to report each once."""


def validate_member(
    ctx: Context, group: Group, member_id: str, instance_id: str | None, client: Client, now_ms: int
) -> Member | ErrorCode:
    """The member, or the error. A fenced sender is reported as an event.

    KIP-345: an instance id that another member has is FENCED_INSTANCE_ID, one that no member has UNKNOWN_MEMBER_ID. A
    static member's member id is valid without its instance id; that is how it leaves to become dynamic.

    No member id at all is UNKNOWN_MEMBER_ID, unlike in Kafka (docs/differences.md, 51). librdkafka forgets its id
    when its own session timer ends, for example because the broker was down, and may heartbeat or commit before it
    joins again. There is no second process to fence, and FENCED_INSTANCE_ID would end the only one.
    """
    if not member_id:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if instance_id is None:
        return group.members.get(member_id) or ErrorCode.UNKNOWN_MEMBER_ID
    member = group.members.static_member(instance_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.id != member_id:
        _report_fenced(ctx, group, member_id, instance_id, client, now_ms)
        return ErrorCode.FENCED_INSTANCE_ID
    return member


def _report_fenced(
    ctx: Context, group: Group, member_id: str, instance_id: str | None, client: Client, now_ms: int
) -> None:
    """Once for each sender: one that repeats its request in a loop must not fill the event log."""
    if (instance_id, member_id) in group.fenced_members:
        return
    if len(group.fenced_members) >= MAX_FENCED:
        group.fenced_members.clear()
    group.fenced_members.add((instance_id, member_id))
    ctx.emit(
        EventKind.FENCED,
        group,
        now_ms,
        cause=Cause(CauseCode.FENCED_INSTANCE_ID),
        member_id=member_id,
        instance_id=instance_id,
        client_id=client.client_id,
        client_host=client.host,
    )
