"""JoinGroup: who is admitted, under which id, and whether the group rebalances for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.coordinator import (
    batches,
    calls,
    growth,
    intake,
    leadership,
    presence,
    rebalance,
    registration,
    seats,
    sessions,
    standbys,
)
from holdfast.coordinator.answers import (
    FIRST_WITH_NULL_PROTOCOL,
    join_error,
    joined,
    sync_error,
)
from holdfast.coordinator.context import Context
from holdfast.coordinator.effects import Record
from holdfast.coordinator.group import CONSUMER, Group
from holdfast.coordinator.identity import identify
from holdfast.coordinator.ledger import EventKind
from holdfast.coordinator.members import Call, Client, Member, Parked, Protocol, deduplicated
from holdfast.coordinator.states import ANSWERS, COMPLETING, DEAD, EMPTY, PREPARING, Answer, Request
from holdfast.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from holdfast.wire.consumer_protocol import subscribed_topics, topic_count
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.errors import WireError
from holdfast.wire.group_records import GroupMetadataKey

FIRST_WITH_REQUIRED_ID: Final = 4
LONGEST_STRING: Final = 32_767
"""Of the wire and of the journal, in bytes."""
MOST_BYTES_PER_CHAR: Final = 4
MAX_FENCED: Final = 1_000
"""Impostors remembered in one group, to tell of each once."""
MAX_PENDING: Final = 1_000
"""Ids handed out and not used, in one group. A client that asks for ever gets the oldest of them forgotten; its owner,
should it come after all, is told that it is unknown and asks again."""

MOST_TOPICS_COMPARED: Final = 20_000
"""In one subscription. Reading more of them would hold up everybody else; such a member restarts as on Kafka."""


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup request with what the world adds to it."""

    request: JoinGroupRequest
    api_version: int
    client: Client
    ticket: object
    fresh_id: str
    """Random; the part of a new member id that makes it unique."""
    protocols: tuple[Protocol, ...]

    @classmethod
    def of(cls, request: JoinGroupRequest, api_version: int, client: Client, ticket: object, fresh_id: str) -> Join:
        offered = deduplicated([(protocol.name, protocol.metadata) for protocol in request.protocols])
        return cls(request, api_version, client, ticket, fresh_id, offered)

    @property
    def parked(self) -> Parked:
        return Parked(self.ticket, self.api_version)

    @property
    def rebalance_timeout_ms(self) -> int:
        timeout_ms = self.request.rebalance_timeout_ms
        # JoinGroup v0 has no rebalance timeout: the session's serves for it.
        return timeout_ms if timeout_ms >= 0 else self.request.session_timeout_ms

    def new_member(self, member_id: str, now_ms: int) -> Member:
        return Member(
            id=member_id,
            instance_id=self.request.group_instance_id,
            client=self.client,
            session_timeout_ms=self.request.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            protocols=self.protocols,
            appeared_ms=now_ms,
            is_new=True,
            parked_join=self.parked,
        )


def join(ctx: Context, group: Group, command: Join, now_ms: int) -> None:
    """A join whose group id and session time-out are good."""
    request = command.request
    if not has_room(ctx, group, request):
        _refuse_for_size(ctx, group, command, now_ms)
    elif group.state is DEAD:
        _refuse(ctx, command, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    elif not _speaks_our_protocol(group, command):
        _refuse(ctx, command, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif request.member_id:
        _join_by_id(ctx, group, command, now_ms)
    elif request.group_instance_id is None:
        _join_without_id(ctx, group, command, now_ms)
    else:
        _join_by_instance(ctx, group, command, now_ms)


def _refuse(ctx: Context, command: Join, code: ErrorCode, member_id: str | None = None) -> None:
    shown = command.request.member_id if member_id is None else member_id
    ctx.reply(command.ticket, join_error(code, shown, command.api_version))


# -- who is admitted ---------------------------------------------------------------------------------------------------


def has_room(ctx: Context, group: Group, request: JoinGroupRequest) -> bool:
    """group.max.size counts parked joins while a rebalance is prepared, members otherwise; who waits counts always."""
    if group.state in (EMPTY, DEAD):
        return True
    roster = group.roster
    member = roster.get(request.member_id)
    if not request.member_id:
        # Apache Kafka refuses a restarted static member in a full group, although it only takes its own seat.
        member = roster.holder_of(request.group_instance_id)
    if group.state is PREPARING:
        limit = ctx.config.max_size
        if member is not None:
            return member.is_static or member.parked_join is not None or roster.parked_joins < limit
        # A newcomer must not take the seat of a static member that is away. Counted only where it may matter.
        few = roster.parked_joins + roster.static_members + len(roster.waiting) < limit
        return few or roster.seats_taken < limit
    return member is not None or len(roster) + len(roster.waiting) < ctx.config.max_size


def _refuse_for_size(ctx: Context, group: Group, command: Join, now_ms: int) -> None:
    member_id = command.request.member_id
    was_pending = _forget_pending(group, member_id)
    member = group.roster.get(member_id)
    if member is not None:
        rebalance.remove(ctx, group, member)
    _refuse(ctx, command, ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    if member is not None:
        standbys.after_removal(ctx, group, [member], now_ms, cause="the group is full")
    elif was_pending:
        rebalance.maybe_complete(ctx, group, now_ms)  # it may have been the last one waited for


def _speaks_our_protocol(group: Group, command: Join) -> bool:
    protocol_type = command.request.protocol_type
    if not protocol_type or not command.protocols:
        return False
    if group.state is EMPTY:
        return True
    return protocol_type == group.protocol_type and group.roster.can_agree_on(p.name for p in command.protocols)


# -- without a member id -----------------------------------------------------------------------------------------------


def _member_id(name: str, fresh_id: str) -> str:
    """Named after its owner, as far as there is room: neither the wire nor a record has any for a longer string."""
    room = LONGEST_STRING - len(fresh_id) - 1
    if len(name) * MOST_BYTES_PER_CHAR > room:
        name = name.encode()[:room].decode(errors="ignore")
    return f"{name}-{fresh_id}"


def _join_without_id(ctx: Context, group: Group, command: Join, now_ms: int) -> None:
    member_id = _member_id(command.client.client_id, command.fresh_id)
    if command.api_version < FIRST_WITH_REQUIRED_ID:
        _admit(ctx, group, command, member_id, now_ms)
        return
    # KIP-394: it must come back with the id, so that one who gives up and starts over leaves no ghost behind.
    pending = group.roster.pending
    if len(pending) >= MAX_PENDING:
        _forget_pending(group, next(iter(pending)))

    def expired(now_ms: int) -> None:
        def forget(later_ms: int) -> None:
            if pending.pop(member_id, None) is not None:
                rebalance.maybe_complete(ctx, group, later_ms, also_in_delay=True)

        ctx.when_free(group, forget, now_ms)

    pending[member_id] = ctx.timers.at(now_ms + command.request.session_timeout_ms, expired)
    _refuse(ctx, command, ErrorCode.MEMBER_ID_REQUIRED, member_id)


def _forget_pending(group: Group, member_id: str) -> bool:
    timer = group.roster.pending.pop(member_id, None)
    if timer is not None:
        timer.cancel()
    return timer is not None


def _join_by_instance(ctx: Context, group: Group, command: Join, now_ms: int) -> None:
    """KIP-345: an instance id without a member id is a static member that starts, or starts again."""
    instance_id = command.request.group_instance_id or ""
    member_id = _member_id(instance_id, command.fresh_id)
    holder = group.roster.holder_of(instance_id)
    if holder is None:
        _admit(ctx, group, command, member_id, now_ms)
        return
    if holder.waits:
        _take_seat(ctx, group, command, holder, member_id, now_ms)
        _rejoin_waiting(ctx, group, command, holder, now_ms)
        return
    cause: str | None = "a static member restarted"
    if ANSWERS[Request.JOIN_STATIC_AGAIN][group.state] is Answer.REPLACE:
        cause = _why_not_replaced(ctx, group, command, holder)
    if cause is None:
        _replace_stored(ctx, group, command, holder, member_id, now_ms)
        return
    _take_seat(ctx, group, command, holder, member_id, now_ms)
    _park(ctx, group, command, holder, now_ms)
    rebalance.prepare(ctx, group, now_ms, cause=cause, member=holder, reason=command.request.reason)


def _why_not_replaced(ctx: Context, group: Group, command: Join, holder: Member) -> str | None:
    """Why a stable group rebalances for a static member that restarted; None if it takes its share over quietly."""
    if group.roster.would_elect(holder, command.protocols) != group.stored.protocol_name:
        return "a static member restarted with another protocol"
    if _changes_topics(group, command, holder):
        return "a static member restarted with other topics"
    # KIP-429: who gives a partition up joins again for it to be assigned. Its new process owns nothing and would not;
    # then nobody has the partition. By Kafka's rules that lasts until something else makes the group rebalance.
    # The same goes for partitions that were added and that its leader did not assign before it restarted.
    if _overlooks_growth(ctx, group, holder) or calls.hands_over(group, holder):
        return "a static member restarted"
    return None


def _changes_topics(group: Group, command: Join, holder: Member) -> bool:
    """Whether a restarted member reads other topics than its predecessor.

    Kafka does not look: a topic that was added to the subscription has no reader until something else makes the group
    rebalance, and one that was removed stays assigned to a member that does not read it (docs/differences.md, 55). What
    else is in a subscription does not count. Most clients write into it what they own, which changes with each restart.
    """
    name = group.stored.protocol_name
    before = holder.metadata_for(name)
    after = next((protocol.metadata for protocol in command.protocols if protocol.name == name), before)
    if group.protocol_type != CONSUMER or before == after:
        return False
    try:
        if max(topic_count(before), topic_count(after)) > MOST_TOPICS_COMPARED:
            return False
        return set(subscribed_topics(before)) != set(subscribed_topics(after))
    except WireError:
        return False  # as in Kafka, bytes that are no subscription are nothing to us


# -- with a member id --------------------------------------------------------------------------------------------------


def _join_by_id(ctx: Context, group: Group, command: Join, now_ms: int) -> None:
    request = command.request
    if request.member_id in group.roster.pending:
        if request.group_instance_id is not None:
            # As Kafka: a static member is never asked to come back with an id.
            _refuse(ctx, command, ErrorCode.UNKNOWN_SERVER_ERROR, "")
            return
        _forget_pending(group, request.member_id)
        _admit(ctx, group, command, request.member_id, now_ms)
        return
    member = identify(group.roster, request.member_id, request.group_instance_id)
    if isinstance(member, ErrorCode):
        if member is ErrorCode.FENCED_INSTANCE_ID:
            tell_fenced(ctx, group, request.member_id, request.group_instance_id, command.client, now_ms)
        _refuse(ctx, command, member)
        return
    presence.heard(group, member, command.client)
    if member.waits:
        _rejoin_waiting(ctx, group, command, member, now_ms)
    elif calls.answers_call(group, member, command.protocols) and not _overlooks_growth(ctx, group, member):
        calls.join(ctx, group, command, member, now_ms)
    else:
        _rejoin(ctx, group, command, member, now_ms)


def _overlooks_growth(ctx: Context, group: Group, member: Member) -> bool:
    """A leader that is told to skip the assignment takes the topics as they are now for those that were assigned."""
    return member.id == group.leader_id and growth.has_grown(ctx, group)


def _rejoin_waiting(ctx: Context, group: Group, command: Join, member: Member, now_ms: int) -> None:
    """Quiet whatever its bytes, and if a place is open, the member takes it."""
    if group.state is PREPARING:
        # It hung up when this rebalance had begun, and is there again: if there is room, it takes part. kafka-go joins
        # over a new connection each time. Answered at once, it would be in an old generation as soon as it hears that.
        seats.promote(group)
        batches.recall(group)
        if not member.waits:
            _rejoin(ctx, group, command, member, now_ms)
            return
    place = standbys.place_for(group, command)
    if place is not None:
        standbys.take_place(ctx, group, command, member, place, now_ms)
        return
    if not seats.can_sit(group, command.protocols):
        # The group has to agree on another protocol; then the member waits on under that one.
        group.roster.promote(member)
        _update(group, member, command)
        _park(ctx, group, command, member, now_ms)
        cause = "a member that waits offers other protocols"
        rebalance.prepare(ctx, group, now_ms, cause=cause, member=member, reason=command.request.reason)
        return
    was_called = member.call is not Call.NOT
    seats.rejoin(ctx, group, command, member, now_ms)
    if was_called:
        standbys.review_places(ctx, group, now_ms)
    intake.review(ctx, group, now_ms)


def _rejoin(ctx: Context, group: Group, command: Join, member: Member, now_ms: int) -> None:
    is_leader = member.id == group.leader_id
    # The client-side assignment document, failure step 2: a join after the coordinator's crash aborts the sync.
    aborts_sync = group.restored_in_sync
    if member.protocols != command.protocols or aborts_sync:
        kind = Request.JOIN_CHANGED
    else:
        kind = Request.JOIN_UNCHANGED_LEADER if is_leader else Request.JOIN_UNCHANGED
    answer = ANSWERS[kind][group.state]
    _update(group, member, command)
    if answer is Answer.CURRENT:
        # It lost our reply, or its memory: the generation it is in has not changed.
        sessions.refresh(ctx, group, member, now_ms)
        ctx.reply(command.ticket, joined(group, member, with_members=is_leader and group.state is COMPLETING))
        return
    assert answer in (Answer.PARK, Answer.REBALANCE)
    _park(ctx, group, command, member, now_ms)
    if aborts_sync:
        cause = "a member rejoined after the broker's restart"
    else:
        # Only consumers have a subscription; Connect's workers, say, have metadata of another kind.
        changed = "subscription" if group.protocol_type == CONSUMER else "metadata"
        cause = "the leader rejoined" if kind is Request.JOIN_UNCHANGED_LEADER else f"a member changed its {changed}"
    rebalance.prepare(ctx, group, now_ms, cause=cause, member=member, reason=command.request.reason)


def _update(group: Group, member: Member, command: Join) -> None:
    group.roster.set_protocols(member, command.protocols)
    member.session_timeout_ms = command.request.session_timeout_ms
    member.rebalance_timeout_ms = command.rebalance_timeout_ms


def _park(ctx: Context, group: Group, command: Join, member: Member, now_ms: int) -> None:
    superseded = group.roster.park_join(member, command.parked)
    if superseded is not None:
        # Kafka leaves it without an answer; its connection would wait for ever.
        code = ErrorCode.REBALANCE_IN_PROGRESS
        ctx.reply(superseded.ticket, join_error(code, member.id, superseded.api_version))
    registration.hold(ctx, group, member, now_ms)


# -- new members -------------------------------------------------------------------------------------------------------


def _admit(ctx: Context, group: Group, command: Join, member_id: str, now_ms: int) -> None:
    """A new member. Usually its join is parked, and there is a rebalance for it."""
    request, member = command.request, command.new_member(member_id, now_ms)
    place = standbys.place_for(group, command)
    if place is not None:
        standbys.take_place(ctx, group, command, member, place, now_ms)
        return
    if seats.can_sit(group, command.protocols) and seats.must_wait(group, request.group_instance_id):
        seats.sit_down(ctx, group, command, member, now_ms)
        intake.review(ctx, group, now_ms)
        return
    if group.state is EMPTY:
        group.protocol_type = request.protocol_type
    elif group.initial_delay_left_ms is not None:
        group.joined_during_delay = True
    is_last = seats.is_last_expected(group, request.group_instance_id)
    group.roster.add(member)
    presence.heard(group, member, command.client)
    sessions.begin_first_join(ctx, group, member, now_ms)
    cause = "the announced members are all there" if is_last else "a new member joined"
    rebalance.prepare(ctx, group, now_ms, cause=cause, member=member, reason=request.reason)
    registration.hold(ctx, group, member, now_ms)


# -- static members that restarted -------------------------------------------------------------------------------------


def tell_fenced(
    ctx: Context, group: Group, member_id: str, instance_id: str | None, client: Client, now_ms: int
) -> None:
    """Once for each impostor: one that asks in a loop must not fill the ledger."""
    if (instance_id, member_id) in group.fenced:
        return
    if len(group.fenced) >= MAX_FENCED:
        group.fenced.clear()
    group.fenced.add((instance_id, member_id))
    ctx.tell(
        EventKind.FENCED,
        group,
        now_ms,
        cause="the instance id is held under another member id",
        member_id=member_id,
        instance_id=instance_id,
        client_id=client.client_id,
        client_host=client.host,
    )


def _take_seat(ctx: Context, group: Group, command: Join, member: Member, new_id: str, now_ms: int) -> None:
    """The restarted instance sits down; whatever its predecessor has parked is fenced."""
    old_id = member.id
    parked_join = group.roster.park_join(member, None)
    if parked_join is not None:
        fenced = join_error(ErrorCode.FENCED_INSTANCE_ID, old_id, parked_join.api_version)
        ctx.reply(parked_join.ticket, fenced)
    if member.parked_sync is not None:
        ctx.reply(member.parked_sync.ticket, sync_error(ErrorCode.FENCED_INSTANCE_ID))
        member.parked_sync = None
    if group.leader_id == old_id:
        group.leader_id = new_id
    group.roster.rename(member, new_id)
    group.failed_leaders.discard(old_id)  # another process may be able to
    member.client = command.client
    member.appeared_ms = now_ms
    presence.heard(group, member, command.client)
    member.is_new = False  # the limit on first joins is against ghosts; an instance id has none
    _update(group, member, command)
    sessions.refresh(ctx, group, member, now_ms)


def _replace_stored(ctx: Context, group: Group, command: Join, member: Member, new_id: str, now_ms: int) -> None:
    """In a stable group: the new member id is stored first, then answered, and nobody else notices."""
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
    members = [record, *group.member_records(besides=[member])]
    value = group.metadata_record(members, new_id if leads else old_leader_id, now_ms)
    value.current_state_timestamp = group.stored.state_timestamp_ms
    records: list[Record] = [(GroupMetadataKey(group.id), value)]

    def stored(now_ms: int) -> None:
        _take_seat(ctx, group, command, member, new_id, now_ms)
        if member.call is not Call.NOT:
            # Its predecessor was called. This is the join that was asked for: its SyncGroup brings the new share.
            calls.await_member(ctx, group, member, Call.JOINED, now_ms)
        ctx.tell(
            EventKind.STATIC_REJOINED, group, now_ms, member=member, cause="no rebalance", reason=command.request.reason
        )
        knows_skip = leadership.can_skip(group, command.client, command.api_version)
        # KIP-814: a leader that can be told to skip the assignment goes on leading. Any other is told its own old id as
        # the leader's, so that it follows; then nobody watches the topics, and we must.
        if leads:
            group.leader_unaware = not knows_skip
        ctx.reply(
            command.ticket,
            joined(
                group,
                member,
                leader_id=group.leader_id if knows_skip else old_leader_id,
                with_members=leads and knows_skip,
                skip=leads and knows_skip,
            ),
        )
        if leads:
            cause = "a topic grew while its leader restarted"
            growth.see_to_it(ctx, group, now_ms, cause=cause)

    def failed(code: ErrorCode, now_ms: int) -> None:
        ctx.tell(EventKind.STORE_FAILED, group, now_ms, member=member, cause=f"its new id was not stored: {code.name}")
        ctx.reply(command.ticket, _not_replaced(group, code, old_leader_id, command.api_version))

    ctx.store(group, records, stored, failed)


def _not_replaced(group: Group, code: ErrorCode, leader_id: str | None, api_version: int) -> JoinGroupResponse:
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
