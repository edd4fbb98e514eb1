"""The quiet call: one member gets another share while nobody else notices.

In a settled generation a member may be called. Its heartbeats are answered REBALANCE_IN_PROGRESS until it joins; its
JoinGroup is answered at once with the current generation, if it offers the same protocols and subscribes to the same
topics; its SyncGroup brings the new share. The bytes of its subscription are not compared: most clients write into
them what they own. For a member that was not called Kafka's rule stays, by which other bytes are another subscription.

A call ends with any rebalance. It is repeated after a reload, because nobody knows whether the member has heard it.
Whoever was called and does not come within its rebalance time-out makes all rejoin.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from holdfast.coordinator import leadership, rebalance, sessions
from holdfast.coordinator.answers import joined
from holdfast.coordinator.context import Context
from holdfast.coordinator.extensions import EPOCHS_PER_GENERATION
from holdfast.coordinator.group import CONSUMER, Group
from holdfast.coordinator.ledger import EventKind
from holdfast.coordinator.members import Call, Member, Protocol
from holdfast.coordinator.moves import Partitions, partitions_of
from holdfast.coordinator.states import ANSWERS, STABLE, Answer, Request
from holdfast.wire.apis.join_group import JoinGroupResponse
from holdfast.wire.consumer_protocol import decode_subscription, subscribed_topics
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.errors import WireError

if TYPE_CHECKING:
    from holdfast.coordinator.joining import Join


def call(ctx: Context, group: Group, member: Member, now_ms: int, *, cause: str) -> None:
    """Its share has changed: it has to come for it."""
    ctx.tell(EventKind.CALLED, group, now_ms, member=member, cause=cause)
    await_member(ctx, group, member, Call.CALLED, now_ms)


def call_standbys(ctx: Context, group: Group, now_ms: int) -> None:
    """Whoever waits and fits one of the open places is called; the others, and all if there is none, are not."""
    wanted = {place.topics for place in group.places}
    for member in group.roster.waiting.values():
        fits = topics_of(member.protocols, group) in wanted
        if fits and member.call is Call.NOT and member.instance_id not in group.extensions.registered:
            member.call = Call.CALLED
            ctx.tell(EventKind.CALLED, group, now_ms, member=member, cause="a place is open")
        elif not fits:
            member.call = Call.NOT


def await_member(ctx: Context, group: Group, member: Member, call: Call, now_ms: int) -> None:
    rebalance.end_call(member)
    member.call = call

    def time_is_up(now_ms: int) -> None:
        ctx.when_free(group, lambda later_ms: _did_not_come(ctx, group, member, later_ms), now_ms)

    member.call_timer = ctx.timers.at(now_ms + member.rebalance_timeout_ms, time_is_up)


def _did_not_come(ctx: Context, group: Group, member: Member, now_ms: int) -> None:
    due = member.call_timer is not None and member.call_timer.action is None
    if due and group.state is STABLE and group.roster.get(member.id) is member and member.call is not Call.NOT:
        rebalance.prepare(ctx, group, now_ms, cause="a member that was called did not come", member=member)


def answers_call(group: Group, member: Member, protocols: tuple[Protocol, ...]) -> bool:
    """Whether this join of the member is the one that it was called for."""
    if ANSWERS[Request.JOIN_CALLED][group.state] is not Answer.CURRENT or member.call is Call.NOT:
        return False
    same_names = [protocol.name for protocol in protocols] == [protocol.name for protocol in member.protocols]
    topics = topics_of(protocols, group)
    return (same_names or member.is_loaded) and topics is not None and topics == topics_of(member.protocols, group)


def join(ctx: Context, group: Group, command: Join, member: Member, now_ms: int) -> None:
    """It has come. Asked again because the answer was lost, the answer is the same."""
    group.roster.set_protocols(member, command.protocols)
    member.session_timeout_ms = command.request.session_timeout_ms
    member.rebalance_timeout_ms = command.rebalance_timeout_ms
    member.call = Call.JOINED
    sessions.refresh(ctx, group, member, now_ms)
    ctx.reply(command.ticket, _joined(group, command, member))


def _joined(group: Group, command: Join, member: Member) -> JoinGroupResponse:
    """A leader that can be told to skip the assignment goes on leading; any other is told that another leads."""
    if member.id != group.leader_id:
        return joined(group, member)
    if leadership.can_skip(group, command.client, command.api_version):
        return joined(group, member, with_members=True, skip=True)
    group.leader_unaware = True
    return joined(group, member, leader_id="")


def heartbeat(group: Group, member: Member) -> ErrorCode:
    called = group.state is STABLE and member.call is Call.CALLED
    return ErrorCode.REBALANCE_IN_PROGRESS if called else ErrorCode.NONE


def again(ctx: Context, group: Group, now_ms: int) -> None:
    """After a reload: whoever got another share in this generation may not have heard of it."""
    extensions = group.extensions
    if group.state is STABLE and extensions.generation == group.generation:
        for member_id in extensions.changed:
            member = group.roster.get(member_id)
            if member is not None:
                call(ctx, group, member, now_ms, cause="its share had changed before the broker restarted")


# -- when a share may change -------------------------------------------------------------------------------------------


def topics_of(protocols: Iterable[Protocol], group: Group) -> frozenset[str] | None:
    """The topics of a subscription; None if they cannot be read."""
    name = group.stored.protocol_name
    metadata = next((protocol.metadata for protocol in protocols if protocol.name == name), None)
    try:
        return None if metadata is None else frozenset(subscribed_topics(metadata))
    except WireError:
        return None


def is_settled(group: Group, gone: Sequence[Member] = ()) -> bool:
    """Everybody has what is his, and nothing is on its way from one member to another. `gone` has what it left behind.

    In a cooperative group a partition that moves is nobody's for one generation (KIP-429): the member that is to give
    it up claimed it when it joined, and does not find it in its share. It will join again by itself; if it were called,
    that join would be taken for the answer, and the partition would stay nobody's.
    """
    if group.state is not STABLE or group.protocol_type != CONSUMER or not has_epochs_left(group):
        return False
    # One that went before its SyncGroup, and is not out yet, would be waited for as long as its session lasts.
    if not group.roster.awaiting_sync <= {member.id for member in gone}:
        return False
    try:
        return all(claims(member, group) <= partitions_of(member.assignment) for member in (*group.roster, *gone))
    except WireError:
        return False


def has_epochs_left(group: Group) -> bool:
    """Whether another quiet change fits into this generation."""
    return group.epoch % EPOCHS_PER_GENERATION < EPOCHS_PER_GENERATION - 1


def hands_over(group: Group, member: Member) -> bool:
    """Whether a partition that it owned when it joined is to be given up by it, and is nobody's until then."""
    if group.protocol_type != CONSUMER:
        return False
    try:
        given_up = claims(member, group) - partitions_of(member.assignment)
        return bool(given_up) and not given_up <= set().union(*(partitions_of(one.assignment) for one in group.roster))
    except WireError:
        return False


def claims(member: Member, group: Group) -> Partitions:
    """What the member said that it owned when it joined."""
    told = decode_subscription(member.metadata_for(group.stored.protocol_name))
    return {(topic.topic, partition) for topic in told.owned_partitions for partition in topic.partitions}
