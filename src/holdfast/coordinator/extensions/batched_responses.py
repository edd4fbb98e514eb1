"""Members of which the response to JoinGroups is not delivered yet (`runtime.batched_replies`).

A standby is answered at once, while a rebalance that another entry of the request starts takes as long as its slowest
member. Until all entries have their responses no member of the batch has learned anything. So

- a member with such a response does not have to send anything: its session does not end, unless its connection does;
- if a rebalance starts, its join is awaited again. The join phase would otherwise wait for a member that waits for the
  join phase (`reopen_joins`);
- the response that is delivered in the end is what is true in the end.
"""

from __future__ import annotations

from holdfast.coordinator.classic.group import Group
from holdfast.coordinator.classic.member import Member, PendingResponse, Role
from holdfast.wire.apis.join_groups import AS_JOIN_GROUP_VERSION


def has_undelivered_response(group: Group, member: Member) -> bool:
    return any(batch.undelivered[member.id] for batch in group.ext.unanswered_batches)


def reopen_joins(group: Group) -> None:
    """A rebalance starts: members that take part in it and have not received their response have not joined yet."""
    for batch in group.ext.unanswered_batches:
        for member_id, entry in batch.undelivered_joins():
            member = group.members.get(member_id)
            if member is not None and member.role is not Role.STANDBY and member.awaiting_join is None:
                entry.clear_response()
                group.members.set_awaiting_join(member, PendingResponse(entry, AS_JOIN_GROUP_VERSION))
