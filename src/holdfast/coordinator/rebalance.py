"""The join phase: how a rebalance begins, whom it waits for, and how it ends in a new generation."""

from __future__ import annotations

from typing import Final

from holdfast.coordinator import batches, presence, seats, sessions
from holdfast.coordinator.answers import join_error, joined, sync_error
from holdfast.coordinator.context import Context
from holdfast.coordinator.effects import Record
from holdfast.coordinator.group import CONSUMER, Group
from holdfast.coordinator.ledger import EventKind
from holdfast.coordinator.members import Call, Member
from holdfast.coordinator.states import COMPLETING, EMPTY, PREPARING, STABLE
from holdfast.coordinator.timers import Timer
from holdfast.wire.apis.sync_group import AssignmentFailure
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import GenerationKey, GenerationValue, GroupMetadataKey, GroupMetadataValue

# -- beginning ---------------------------------------------------------------------------------------------------------

LEAST_WAIT_MS: Final = 1_000
"""A member may give 0 as its rebalance time-out. A join phase that nobody comes to is not ended and begun again with
every millisecond for that: a stranger with many such groups would take all the time there is. Kafka does."""


def prepare(
    ctx: Context,
    group: Group,
    now_ms: int,
    *,
    cause: str,
    member: Member | None = None,
    reason: str | None = None,
) -> None:
    """Begins a rebalance, unless one is under way; completes it at once if nobody is to be waited for."""
    if group.state in (EMPTY, COMPLETING, STABLE):
        if group.state is COMPLETING:
            group.assignments_void = True
            release_syncs(ctx, group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        _cancel(group.sync_timer)
        _end_quiet_changes(group)
        seats.promote(group)
        batches.recall(group)
        first = group.state is EMPTY
        group.enter(PREPARING)
        group.rebalance_began_ms = now_ms
        group.leader_unaware = group.restored_in_sync = False
        ctx.tell(EventKind.REBALANCE_STARTED, group, now_ms, member=member, cause=cause, reason=reason)
        if first:
            _begin_to_form(ctx, group, member, now_ms)
        else:
            group.initial_delay_left_ms = None
            _wait(ctx, group, now_ms, group.roster.longest_rebalance_timeout_ms())
    elif group.is_held and member is not None and not _was_announced(group, member):
        group.is_held = False
        _begin_initial_delay(ctx, group, now_ms)
    maybe_complete(ctx, group, now_ms)


def _end_quiet_changes(group: Group) -> None:
    """Whatever was to happen within the generation happens with the next one."""
    for place in group.places:
        _cancel(place.until)
    group.places.clear()
    for member in group.roster.everybody:
        end_call(member)


def end_call(member: Member) -> None:
    member.call = Call.NOT
    _cancel(member.call_timer)
    member.call_timer = None


def _was_announced(group: Group, member: Member) -> bool:
    return group.protocol_type == CONSUMER and member.instance_id in group.extensions.registered


def _begin_to_form(ctx: Context, group: Group, member: Member | None, now_ms: int) -> None:
    """An empty group that expects members waits for exactly those; any other for whoever may still come."""
    if member is not None and _was_announced(group, member):
        group.is_held = True
        group.initial_delay_left_ms = None
        hold_until(ctx, group, max(group.extensions.registered.values()))
    else:
        _begin_initial_delay(ctx, group, now_ms)


def hold_until(ctx: Context, group: Group, at_ms: int) -> None:
    _wait(ctx, group, at_ms, 0)


def review_hold(ctx: Context, group: Group, now_ms: int) -> None:
    """A registration ended: whoever came of it does not wait for those who were announced by another."""
    if group.is_held and not all(_was_announced(group, member) for member in group.roster):
        group.is_held = False
        _begin_initial_delay(ctx, group, now_ms)


def _begin_initial_delay(ctx: Context, group: Group, now_ms: int) -> None:
    """KIP-134: a group that leaves EMPTY gives its other members time to arrive."""
    delay_ms = ctx.config.initial_rebalance_delay_ms
    group.initial_delay_left_ms = max(group.roster.longest_rebalance_timeout_ms() - delay_ms, 0)
    group.joined_during_delay = False
    if delay_ms == 0:
        group.initial_delay_left_ms = None
    if delay_ms == 0 and not group.gathering:
        complete(ctx, group, now_ms)
    else:
        _wait(ctx, group, now_ms, delay_ms)


def _wait_again(ctx: Context, group: Group, now_ms: int) -> None:
    """The join phase came to nothing and begins anew."""
    _wait(ctx, group, now_ms, max(LEAST_WAIT_MS, group.roster.longest_rebalance_timeout_ms()))


def _wait(ctx: Context, group: Group, now_ms: int, delay_ms: int) -> None:
    _cancel(group.rebalance_timer)

    def time_is_up(now_ms: int) -> None:
        ctx.when_free(group, lambda later_ms: _time_is_up(ctx, group, timer, later_ms), now_ms)

    timer = group.rebalance_timer = ctx.timers.at(now_ms + delay_ms, time_is_up)


def _time_is_up(ctx: Context, group: Group, timer: Timer, now_ms: int) -> None:
    if group.state is not PREPARING or group.rebalance_timer is not timer:
        return
    left_ms = group.initial_delay_left_ms
    if left_ms is not None and left_ms > 0 and group.joined_during_delay:
        delay_ms = min(ctx.config.initial_rebalance_delay_ms, left_ms)
        group.initial_delay_left_ms = max(left_ms - delay_ms, 0)
        group.joined_during_delay = False
        _wait(ctx, group, now_ms, delay_ms)
        return
    complete(ctx, group, now_ms)


# -- who goes ----------------------------------------------------------------------------------------------------------


def remove(ctx: Context, group: Group, member: Member) -> None:
    """Takes a member out and answers what it has parked. The caller sees to the rest (`standbys.after_removal`)."""
    if member.session is not None:
        member.session.cancel()
    presence.forget(member)
    end_call(member)
    parked_join = group.roster.park_join(member, None)
    if parked_join is not None:
        ctx.reply(parked_join.ticket, join_error(ErrorCode.UNKNOWN_MEMBER_ID, "", parked_join.api_version))
    if member.parked_sync is not None:
        # Apache Kafka never answers this one; the client would wait for its own time-out.
        ctx.reply(member.parked_sync.ticket, sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
        member.parked_sync = None
    group.roster.remove(member)
    if member.assignment:
        group.gone.append(member)
    group.failed_leaders.discard(member.id)
    if group.leader_id == member.id:
        # Whoever it is, the end of the join phase chooses among those who are there.
        group.leader_id = next((other.id for other in group.roster), None)


def release_syncs(
    ctx: Context, group: Group, code: ErrorCode, now_ms: int, *, failure: AssignmentFailure | None = None
) -> None:
    """Sends everybody who waits for the assignment away; they live on. Who can read it is told what went wrong."""
    for member in group.roster:
        parked = member.parked_sync
        if parked is not None:
            ctx.reply(parked.ticket, sync_error(code, failure if parked.has_tags else None))
            member.parked_sync = None
            sessions.refresh(ctx, group, member, now_ms)


# -- the end of the join phase -----------------------------------------------------------------------------------------


def maybe_complete(ctx: Context, group: Group, now_ms: int, *, also_in_delay: bool = False) -> None:
    """Ends the join phase if nobody is waited for.

    The initial delay is for those who may still come. As in Kafka, one who did not come back ends it for the rest.
    """
    if group.state is not PREPARING or group.busy or not group.roster.all_joined:
        return
    delayed = group.initial_delay_left_ms is not None and not also_in_delay
    # A group that nobody is in is empty, also if members are expected.
    expects_more = group.is_held and len(group.roster) > 0 and not seats.all_here(group)
    if not (delayed or expects_more or group.gathering or group.backs_off):
        complete(ctx, group, now_ms)


def complete(ctx: Context, group: Group, now_ms: int) -> None:
    """Ends the join phase: those who did not come are out, unless their seat is kept by an instance id."""
    roster = group.roster
    for member in [m for m in roster if m.parked_join is None and not m.is_static]:
        ctx.tell(EventKind.DROPPED, group, now_ms, member=member, cause="did not rejoin in time")
        remove(ctx, group, member)
    group.initial_delay_left_ms = None
    was_held = group.is_held
    group.is_held = group.backs_off = False
    if not len(roster) and was_held:
        # Whoever began to wait for the others is gone, and nobody has heard of a generation: nothing is to be stored.
        _cancel(group.rebalance_timer)
        group.enter(EMPTY)
        return
    if not len(roster) and roster.waiting:
        seats.promote(group, also_away=True)
        batches.recall(group)
        _wait_again(ctx, group, now_ms)
        return
    if not len(roster):
        _become_empty(ctx, group, now_ms)
        return
    surplus = seats.surplus(group)
    leader = _choose_leader(group, surplus)
    if leader is None and roster.parked_joins:
        _give_up_the_absent(ctx, group, now_ms)
        surplus = seats.surplus(group)
        leader = _choose_leader(group, surplus)
    if leader is None:
        # Static members only, and all of them away: their seats wait until one returns, a standby comes or the sessions
        # end.
        seats.promote(group, nobody_else=True)
        batches.recall(group)
        _wait_again(ctx, group, now_ms)
        return
    _cancel(group.rebalance_timer)
    _form_generation(ctx, group, leader, surplus, now_ms)


def _give_up_the_absent(ctx: Context, group: Group, now_ms: int) -> None:
    """All who have a share are away, and there is a target: kept seats would shut out those who came instead of them.

    As when a target is lowered, who is given up is unknown from then on, and comes back as a standby.
    """
    roster, target = group.roster, group.extensions.target_size
    absent = [member for member in roster if member.parked_join is None and member.in_generation]
    absent.sort(key=lambda member: member.number)
    for member in absent[max(0, target - roster.parked_joins) :]:
        cause = f"away, and others have come: target.group.size is {target}"
        ctx.tell(EventKind.DROPPED, group, now_ms, member=member, cause=cause)
        remove(ctx, group, member)


def _choose_leader(group: Group, surplus: list[Member]) -> Member | None:
    """The old leader if it is there, else anybody who is; but rather one who has not just failed to assign."""
    out = set(surplus)
    here = [member for member in group.roster if member.parked_join is not None and member not in out]
    able = [member for member in here if member.id not in group.failed_leaders] or here
    leader = group.roster.get(group.leader_id) if group.leader_id is not None else None
    return leader if leader in able else next(iter(able), None)


def _form_generation(ctx: Context, group: Group, leader: Member, surplus: list[Member], now_ms: int) -> None:
    """Stores the new generation before anybody hears of it: it must not go back, whatever happens."""
    protocol_name = group.roster.elect_protocol()
    out = set(surplus)
    record = GenerationValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation + 1,
        protocol=protocol_name,
        leader=leader.id,
        current_state_timestamp=now_ms,
        members=[group.generation_member(member, protocol_name) for member in group.roster if member not in out],
    )

    def formed(now_ms: int) -> None:
        _generation_formed(ctx, group, leader, surplus, now_ms)

    def failed(code: ErrorCode, now_ms: int) -> None:
        ctx.tell(EventKind.STORE_FAILED, group, now_ms, cause=f"the generation could not be stored: {code.name}")
        for member in group.roster:
            member.is_new = False  # from here on its session counts, and a join that waits keeps it alive
            parked = group.roster.park_join(member, None)
            if parked is not None:
                ctx.reply(parked.ticket, join_error(code, member.id, parked.api_version))
                sessions.refresh(ctx, group, member, now_ms)
        _wait_again(ctx, group, now_ms)

    ctx.store(group, [(GenerationKey(group.id), record), *_arrivals(group, surplus)], formed, failed)


def _arrivals(group: Group, surplus: list[Member]) -> tuple[Record, ...]:
    """Whoever was announced and has come, or is in the generation, is expected no longer."""
    registered = group.extensions.registered
    lost = {member for member in surplus if member.parked_join is None}
    here = {member.instance_id for member in group.roster if member not in lost}
    left = {instance_id: at_ms for instance_id, at_ms in registered.items() if instance_id not in here}
    return group.extensions_record(registered=left) if len(left) < len(registered) else ()


def _generation_formed(ctx: Context, group: Group, leader: Member, surplus: list[Member], now_ms: int) -> None:
    group.enter(COMPLETING)
    group.leader_id = leader.id
    roster = group.roster
    seated = [(member, roster.park_join(member, None)) for member in surplus]
    for member, _ in seated:
        roster.seat(member)
        member.is_new = member.had_seat = False
        seats.tell_seated(ctx, group, member, now_ms)
    ctx.tell(
        EventKind.GENERATION_FORMED,
        group,
        now_ms,
        member=leader,
        cause=f"protocol {group.stored.protocol_name}",
        members=len(roster),
        previous_generation=group.generation - 1,
    )
    roster.awaiting_sync = {member.id for member in roster}
    for member in roster:
        member.is_new = False
        parked = roster.park_join(member, None)
        member.was_absent = parked is None
        member.had_seat = False
        member.in_generation = True
        sessions.refresh(ctx, group, member, now_ms)
        if parked is not None:
            ctx.reply(parked.ticket, joined(group, member, with_members=member is leader))
    for member, parked in seated:
        if parked is not None:
            sessions.refresh(ctx, group, member, now_ms)
            ctx.reply(parked.ticket, joined(group, member))
    await_syncs(ctx, group, now_ms)


def _become_empty(ctx: Context, group: Group, now_ms: int) -> None:
    # The generation advances also here, so that nobody who was a member can commit as one.
    record = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation + 1,
        protocol=None,
        leader=None,
        current_state_timestamp=now_ms,
        members=[],
    )

    def emptied(now_ms: int) -> None:
        _cancel(group.rebalance_timer)
        group.leader_id = None
        if group.roster.parked_joins or len(group.roster):
            return
        group.enter(EMPTY)
        group.gone.clear()
        ctx.tell(EventKind.BECAME_EMPTY, group, now_ms, cause="the last member is gone", members=0)

    def failed(code: ErrorCode, now_ms: int) -> None:
        ctx.tell(EventKind.STORE_FAILED, group, now_ms, cause=f"the empty group could not be stored: {code.name}")
        _wait(ctx, group, now_ms, RETRY_MS)

    ctx.store(group, [(GroupMetadataKey(group.id), record)], emptied, failed)


RETRY_MS = 1_000
"""How soon an empty group is stored again after a failure: nobody waits for it."""


# -- waiting for the syncs ---------------------------------------------------------------------------------------------


def await_syncs(ctx: Context, group: Group, now_ms: int) -> None:
    """KAFKA-12890: who joined but does not sync must not hold the group up for ever, heartbeats or not."""
    _cancel(group.sync_timer)
    generation = group.generation

    def time_is_up(now_ms: int) -> None:
        ctx.when_free(group, lambda later_ms: _drop_unsynced(ctx, group, generation, later_ms), now_ms)

    delay_ms = group.roster.longest_rebalance_timeout_ms()
    group.sync_timer = ctx.timers.at(now_ms + delay_ms, time_is_up)


def _drop_unsynced(ctx: Context, group: Group, generation: int, now_ms: int) -> None:
    if group.state not in (COMPLETING, STABLE) or group.generation != generation:
        return
    late = [group.roster.get(member_id) for member_id in group.roster.awaiting_sync]
    # KIP-345: a static member that is away goes only by its session; Apache Kafka drops it here.
    dropped = [member for member in late if member is not None and not member.was_absent]
    for member in dropped:
        ctx.tell(EventKind.DROPPED, group, now_ms, member=member, cause="joined but did not sync in time")
        remove(ctx, group, member)
    if dropped:
        prepare(ctx, group, now_ms, cause="members did not sync in time", member=dropped[0])


def synced(group: Group, member_id: str) -> None:
    """The member has sent its SyncGroup; when all have, nobody is waited for."""
    awaiting = group.roster.awaiting_sync
    awaiting.discard(member_id)
    if not awaiting:
        _cancel(group.sync_timer)


def _cancel(timer: Timer | None) -> None:
    if timer is not None:
        timer.cancel()
