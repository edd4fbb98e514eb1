"""Targeted rejoin: one member gets another assignment, and the others are not affected.

In a settled generation one member can be asked to rejoin. Its heartbeats are answered REBALANCE_IN_PROGRESS until it
joins; its JoinGroup is answered at once with the current generation, if it offers the same protocols and subscribes to
the same topics; its SyncGroup returns the new assignment. The bytes of its subscription are not compared: most clients
write into them what they own. For any other member Kafka's rule applies, by which other bytes are another subscription.

The request ends with any rebalance. It is repeated after a reload, because the member may not have received it. If the
member does not rejoin within its rebalance timeout, the group rebalances.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import partial

from holdfast.coordinator.classic import rebalance, session, skip_assignment
from holdfast.coordinator.classic.commands import Join
from holdfast.coordinator.classic.group import CONSUMER, Group
from holdfast.coordinator.classic.hooks import Context
from holdfast.coordinator.classic.member import Member, Protocol, RejoinRequest
from holdfast.coordinator.classic.responses import join_response
from holdfast.coordinator.classic.state_machine import STABLE
from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.events.group_event import EventKind
from holdfast.coordinator.events.partitions_moved import Partitions, partitions_of
from holdfast.coordinator.group_extensions import EPOCHS_PER_GENERATION
from holdfast.wire.apis.join_group import JoinGroupResponse
from holdfast.wire.consumer_protocol import decode_subscription, subscribed_topics
from holdfast.wire.errors import WireError


def rejoin_timer(member: Member) -> Hashable:
    """The key of the timer."""
    return "rejoin", member


def request_rejoin(ctx: Context, group: Group, member: Member, now_ms: int, *, cause: Cause) -> None:
    """The member's assignment has changed."""
    ctx.emit(EventKind.REJOIN_REQUESTED, group, now_ms, member=member, cause=cause)
    start_rejoin_deadline(ctx, group, member, RejoinRequest.REQUESTED, now_ms)


def request_rejoin_of_standbys(ctx: Context, group: Group, now_ms: int) -> None:
    """The standbys that fit one of the vacancies are asked to rejoin; the others are asked no longer."""
    wanted = {vacancy.topics for vacancy in group.ext.vacancies}
    for member in group.members.standbys.values():
        fits = subscription_topics(member.protocols, group) in wanted
        if fits and member.rejoin is RejoinRequest.NONE and member.instance_id not in group.extensions.registered:
            member.rejoin = RejoinRequest.REQUESTED
            ctx.emit(EventKind.REJOIN_REQUESTED, group, now_ms, member=member, cause=Cause(CauseCode.VACANCY_OPEN))
        elif not fits:
            member.rejoin = RejoinRequest.NONE


def start_rejoin_deadline(ctx: Context, group: Group, member: Member, request: RejoinRequest, now_ms: int) -> None:
    member.rejoin = request
    at_ms = now_ms + member.rebalance_timeout_ms
    ctx.schedule(group, rejoin_timer(member), at_ms, partial(_rejoin_timed_out, ctx, group, member))


def _rejoin_timed_out(ctx: Context, group: Group, member: Member, now_ms: int) -> None:
    rebalance.prepare_rebalance(ctx, group, now_ms, cause=Cause(CauseCode.REJOIN_TIMED_OUT), member=member)


def clear_rejoin(ctx: Context, group: Group, member: Member) -> None:
    if member.rejoin is not RejoinRequest.NONE:
        member.rejoin = RejoinRequest.NONE
        ctx.cancel(group, rejoin_timer(member))


def clear_all(ctx: Context, group: Group) -> None:
    for member in group.members.all_members:
        clear_rejoin(ctx, group, member)


def is_same_subscription(group: Group, member: Member, protocols: tuple[Protocol, ...]) -> bool:
    """Whether the protocols' names and the topics are those that the member joined with."""
    same_names = [protocol.name for protocol in protocols] == [protocol.name for protocol in member.protocols]
    topics = subscription_topics(protocols, group)
    is_same = topics is not None and topics == subscription_topics(member.protocols, group)
    return is_same and (same_names or member.restored_from_log)


def join(ctx: Context, group: Group, command: Join, member: Member, now_ms: int) -> None:
    """The member rejoins. If it repeats the join because the response was lost, the response is the same."""
    group.members.update(member, command)
    member.rejoin = RejoinRequest.REJOINED
    session.refresh(ctx, group, member, now_ms)
    ctx.reply(command.reply_handle, _rejoin_response(group, command, member))


def _rejoin_response(group: Group, command: Join, member: Member) -> JoinGroupResponse:
    """A leader whose client honours SkipAssignment remains the leader; any other becomes a follower."""
    if member.id != group.leader_id:
        return join_response(group, member)
    if skip_assignment.supports_skip_assignment(group, command.client, command.api_version):
        return join_response(group, member, with_members=True, skip=True)
    group.leader_not_notified = True
    return join_response(group, member, leader_id="")


def reissue_after_reload(ctx: Context, group: Group, now_ms: int) -> None:
    """Members whose assignment changed within this generation may not have received it before the broker restarted."""
    extensions = group.extensions
    if group.state is STABLE and extensions.generation == group.generation:
        for member_id in extensions.changed_members:
            member = group.members.get(member_id)
            if member is not None:
                request_rejoin(ctx, group, member, now_ms, cause=Cause(CauseCode.ASSIGNMENT_CHANGED_BEFORE_RELOAD))


# -- when an assignment may change -------------------------------------------------------------------------------------


def subscription_topics(protocols: Iterable[Protocol], group: Group) -> frozenset[str] | None:
    """The topics of a subscription; None if they cannot be read."""
    name = group.stored.protocol_name
    metadata = next((protocol.metadata for protocol in protocols if protocol.name == name), None)
    try:
        return None if metadata is None else frozenset(subscribed_topics(metadata))
    except WireError:
        return None


def is_settled(group: Group, removed: Sequence[Member] = ()) -> bool:
    """Every member has its assignment, and no partition is moving from one member to another.

    In a cooperative group a partition that moves has no owner for one generation (KIP-429): the member that is to
    revoke it claimed it when it joined, and does not find it in its assignment. It will rejoin by itself. If it were
    asked to rejoin, that join would be taken for the one asked for, and the partition would stay without an owner.
    """
    if group.state is not STABLE or group.protocol_type != CONSUMER or not has_epochs_left(group):
        return False
    if not group.members.pending_sync_members <= {member.id for member in removed}:
        return False
    try:
        return all(
            owned_partitions(member, group) <= partitions_of(member.assignment) for member in (*group.members, *removed)
        )
    except WireError:
        return False


def has_epochs_left(group: Group) -> bool:
    """Whether an assignment can change once more within this generation."""
    return group.epoch % EPOCHS_PER_GENERATION < EPOCHS_PER_GENERATION - 1


def gives_up_partitions(group: Group, member: Member) -> bool:
    """Whether a partition that it owned when it joined is to be revoked by it, and has no owner until then."""
    if group.protocol_type != CONSUMER:
        return False
    try:
        revoked = owned_partitions(member, group) - partitions_of(member.assignment)
        return bool(revoked) and not revoked <= set().union(*(partitions_of(one.assignment) for one in group.members))
    except WireError:
        return False


def owned_partitions(member: Member, group: Group) -> Partitions:
    """What the member owned when it joined, by its own account."""
    subscription = decode_subscription(member.metadata_for(group.stored.protocol_name))
    return {(topic.topic, partition) for topic in subscription.owned_partitions for partition in topic.partitions}
