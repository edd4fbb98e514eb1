"""Is the sender who it says it is? The same check in every request, before the generation and before the state."""

from __future__ import annotations

from holdfast.coordinator.members import Member, Roster
from holdfast.wire.error_codes import ErrorCode


def identify(roster: Roster, member_id: str, instance_id: str | None) -> Member | ErrorCode:
    """The member, or why not.

    KIP-345: an instance id that somebody else holds is FENCED_INSTANCE_ID, one that nobody holds UNKNOWN_MEMBER_ID. A
    static member's member id without its instance id is good everywhere; that is how it leaves to become dynamic.

    No member id at all is UNKNOWN_MEMBER_ID, unlike in Kafka (docs/differences.md, 51). librdkafka forgets its id
    when its own session timer ends, for example because the broker was down, and may heartbeat or commit before it
    joins again. There is no second process to fence, and FENCED_INSTANCE_ID would end the only one.
    """
    if not member_id:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if instance_id is not None:
        holder = roster.holder_of(instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if holder.id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    member = roster.get(member_id)
    return ErrorCode.UNKNOWN_MEMBER_ID if member is None else member
