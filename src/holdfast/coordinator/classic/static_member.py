"""KIP-345: a static member that restarts is the same member under a new member id."""

from __future__ import annotations

from typing import Final

from holdfast.coordinator.classic import session, skip_assignment
from holdfast.coordinator.classic.commands import Join
from holdfast.coordinator.classic.group import CONSUMER, Group
from holdfast.coordinator.classic.hooks import Context
from holdfast.coordinator.classic.member import Member
from holdfast.coordinator.classic.responses import FIRST_WITH_NULL_PROTOCOL, join_error, join_response, sync_error
from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.events.group_event import EventKind
from holdfast.coordinator.runtime.effects import Record
from holdfast.wire.apis.join_group import JoinGroupResponse
from holdfast.wire.consumer_protocol import subscribed_topics, topic_count
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.errors import WireError
from holdfast.wire.group_records import GroupMetadataKey

MAX_TOPICS_COMPARED: Final = 20_000
"""In one subscription. Reading more of them would hold up the event loop; such a member restarts as on Kafka."""


def why_rebalance_on_restart(ctx: Context, group: Group, command: Join, member: Member) -> Cause | None:
    """Why a stable group rebalances for a static member that restarted; None if it only gets a new member id."""
    if group.members.protocol_if(member, command.protocols) != group.stored.protocol_name:
        return Cause(CauseCode.STATIC_MEMBER_CHANGED_PROTOCOL)
    if _changes_topics(group, command, member):
        return Cause(CauseCode.STATIC_MEMBER_CHANGED_TOPICS)
    if ctx.hooks.restart_needs_rebalance(ctx, group, member):
        return Cause(CauseCode.STATIC_MEMBER_RESTARTED)
    return None


def _changes_topics(group: Group, command: Join, member: Member) -> bool:
    """Whether a restarted member reads other topics than its predecessor.

    Kafka does not compare: a topic that was added to the subscription has no reader until something else makes the
    group rebalance, and one that was removed stays assigned to a member that does not read it (docs/differences.md,
    55). The rest of a subscription does not count. Most clients write into it what they own, which changes with each
    restart.
    """
    name = group.stored.protocol_name
    before = member.metadata_for(name)
    after = next((protocol.metadata for protocol in command.protocols if protocol.name == name), before)
    if group.protocol_type != CONSUMER or before == after:
        return False
    try:
        if max(topic_count(before), topic_count(after)) > MAX_TOPICS_COMPARED:
            return False
        return set(subscribed_topics(before)) != set(subscribed_topics(after))
    except WireError:
        return False  # as in Kafka, bytes that are no subscription are not looked into


def replace_static_member(ctx: Context, group: Group, command: Join, member: Member, new_id: str, now_ms: int) -> None:
    """Awaited requests of its predecessor are fenced."""
    old_id = member.id
    awaiting_join = group.members.set_awaiting_join(member, None)
    if awaiting_join is not None:
        fenced = join_error(ErrorCode.FENCED_INSTANCE_ID, old_id, awaiting_join.api_version)
        ctx.reply(awaiting_join.reply_handle, fenced)
    if member.awaiting_sync_response is not None:
        ctx.reply(member.awaiting_sync_response.reply_handle, sync_error(ErrorCode.FENCED_INSTANCE_ID))
        member.awaiting_sync_response = None
    if group.leader_id == old_id:
        group.leader_id = new_id
    group.members.rename(member, new_id)
    group.failed_leaders.discard(old_id)  # another process may be able to assign
    member.client = command.client
    member.process_seen_ms = now_ms
    member.first_join_answered()  # the limit on first joins is for members without a client
    group.members.update(member, command)
    session.keep_alive(ctx, group, member, command.client, now_ms)


def replace_static_member_durably(
    ctx: Context, group: Group, command: Join, member: Member, new_id: str, now_ms: int
) -> None:
    """In a stable group: the new member id is stored, then answered. The other members are not affected."""
    old_id, old_leader_id = member.id, group.leader_id
    leads = old_leader_id == old_id
    record = group.member_record(member, member.assignment)
    record.member_id = new_id
    record.client_id, record.client_host = command.client.client_id, command.client.host
    record.session_timeout = command.request.session_timeout_ms
    record.rebalance_timeout = command.rebalance_timeout_ms
    record.subscription = next(
        (p.metadata for p in command.protocols if p.name == group.stored.protocol_name), record.subscription
    )
    members = [record, *group.member_records(excluding=[member])]
    value = group.metadata_record(members, new_id if leads else old_leader_id, now_ms)
    value.current_state_timestamp = group.stored.state_timestamp_ms
    records: list[Record] = [(GroupMetadataKey(group.id), value)]

    def stored(now_ms: int) -> None:
        replace_static_member(ctx, group, command, member, new_id, now_ms)
        cause = Cause(CauseCode.STATIC_MEMBER_REPLACED)
        ctx.emit(EventKind.STATIC_REJOINED, group, now_ms, member=member, cause=cause, reason=command.request.reason)
        ctx.reply(command.reply_handle, _replaced_response(group, command, member, old_leader_id, leads=leads))
        ctx.hooks.after_replaced(ctx, group, member, now_ms)

    def failed(code: ErrorCode, now_ms: int) -> None:
        cause = Cause(CauseCode.MEMBER_ID_NOT_STORED, detail=code.name)
        ctx.emit(EventKind.STORE_FAILED, group, now_ms, member=member, cause=cause)
        ctx.reply(command.reply_handle, _replacement_failed_response(group, code, old_leader_id, command.api_version))

    ctx.append(group, records, stored, failed)


def _replaced_response(
    group: Group, command: Join, member: Member, old_leader_id: str | None, *, leads: bool
) -> JoinGroupResponse:
    """KIP-814: a leader whose client honours SkipAssignment remains the leader.

    Any other gets its own old id as the leader's, so that it follows. Then no member watches the topics, and the
    coordinator has to.
    """
    knows_skip = skip_assignment.supports_skip_assignment(group, command.client, command.api_version)
    if leads:
        group.leader_not_notified = not knows_skip
    return join_response(
        group,
        member,
        leader_id=group.leader_id if knows_skip else old_leader_id,
        with_members=leads and knows_skip,
        skip=leads and knows_skip,
    )


def _replacement_failed_response(
    group: Group, code: ErrorCode, leader_id: str | None, api_version: int
) -> JoinGroupResponse:
    """As Kafka answers here: the error, and the generation that still holds."""
    name = group.stored.protocol_name
    return JoinGroupResponse(
        error_code=code,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=name if name is not None or api_version >= FIRST_WITH_NULL_PROTOCOL else "",
        leader=leader_id or "",
        member_id="",
    )
