"""Hot standbys (KIP-345, future works): members past `target.group.size` wait, and take the place of one who goes.

When a member with a share goes, its place stays open: its share stays as it is, every standby with the same topics is
called, and the first whose join arrives takes it, under its own id and within the generation. Nobody else notices. A
place that nobody takes in time, or that cannot be given away as it is, is an ordinary rebalance.

A member goes by its session's end, by leaving or being removed, or `standby.takeover.ms` after its connection closed.
Silence on an open connection is judged by the session alone: a pause is not a death. Until somebody has taken the
place the one who went is still stored as its owner; after a crash of the broker it has a fresh session, as any member.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from holdfast.coordinator import calls, growth, intake, leadership, presence, rebalance, sessions
from holdfast.coordinator.answers import join_error, joined
from holdfast.coordinator.context import Context
from holdfast.coordinator.extensions import BY_SESSION, CONFIG_NAMES, NO_TARGET
from holdfast.coordinator.group import Group, Place
from holdfast.coordinator.ledger import EventKind
from holdfast.coordinator.members import Call, Client, Member
from holdfast.coordinator.moves import partition_count
from holdfast.coordinator.states import COMPLETING, DEAD, STABLE
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import GroupMetadataKey

if TYPE_CHECKING:
    from holdfast.coordinator.joining import Join


def after_removal(
    ctx: Context,
    group: Group,
    gone: Sequence[Member],
    now_ms: int,
    *,
    cause: str,
    expired: bool = False,
    until_ms: int | None = None,
) -> None:
    """Members were taken out: their places open for standbys, or the others share what they had."""
    if not gone or group.state not in (COMPLETING, STABLE):
        rebalance.maybe_complete(ctx, group, now_ms, also_in_delay=expired)
    elif _can_be_replaced(ctx, group, gone):
        for member in gone:
            longest_ms = _patience_ms(group, member) if expired else member.session_timeout_ms
            _open_place(ctx, group, member, now_ms + longest_ms if until_ms is None else until_ms)
        calls.call_standbys(ctx, group, now_ms)
    else:
        rebalance.prepare(ctx, group, now_ms, cause=cause, member=gone[0])


def _can_be_replaced(ctx: Context, group: Group, gone: Sequence[Member]) -> bool:
    """Whether there is a standby for each of them, and nothing else is on its way."""
    if group.extensions.target_size == NO_TARGET or not group.roster.waiting:
        return False
    # The standbys are counted first: they are few, and to see that a group is settled takes a look at every share.
    if not _is_offered(group, gone) or not calls.is_settled(group, gone):
        return False
    led = any(member.id == group.stored.leader_id for member in gone)
    # Whoever leads next takes the topics as they are now for what was assigned.
    return not (led and growth.has_grown(ctx, group))


def _is_offered(group: Group, gone: Sequence[Member]) -> bool:
    """Whether there are standbys enough with the topics of these, and of the places that are open already."""
    standbys = _standbys(group)
    if len(standbys) < len(gone) + len(group.places):
        return False
    wanted = Counter([calls.topics_of(member.protocols, group) for member in gone])
    wanted.update(place.topics for place in group.places)
    offered = Counter(calls.topics_of(member.protocols, group) for member in standbys)
    return None not in wanted and all(offered[topics] >= count for topics, count in wanted.items())


def _standbys(group: Group) -> list[Member]:
    """Those who wait for a place, and not for others that were announced with them."""
    registered = group.extensions.registered
    waiting = group.roster.waiting.values()
    return [member for member in waiting if not member.is_away and member.instance_id not in registered]


def _patience_ms(group: Group, gone: Member) -> int:
    """How long a place is open whose owner's session is over: not for another one, if a rebalance takes less."""
    longest_ms = max(member.rebalance_timeout_ms for member in _standbys(group))
    return min(gone.session_timeout_ms, max(longest_ms, rebalance.LEAST_WAIT_MS))


def _open_place(ctx: Context, group: Group, member: Member, until_ms: int) -> None:
    led = group.stored.leader_id == member.id
    place = Place(member, calls.topics_of(member.protocols, group) or frozenset(), led)
    if led:
        group.leader_id = member.id  # nobody leads meanwhile

    def time_is_up(now_ms: int) -> None:
        ctx.when_free(group, not_taken, now_ms)

    def not_taken(now_ms: int) -> None:
        if place in group.places:
            cause = f"no standby took the place of {member.instance_id or member.id} in time"
            rebalance.prepare(ctx, group, now_ms, cause=cause, member=member)

    place.until = ctx.timers.at(until_ms, time_is_up)
    group.places.append(place)


def review_places(ctx: Context, group: Group, now_ms: int) -> None:
    """A standby is gone: if nobody is left for a place, there is nothing to wait for."""
    if not group.places or group.state is not STABLE:
        return
    if _can_be_replaced(ctx, group, ()):
        calls.call_standbys(ctx, group, now_ms)  # some may have been announced when the place opened, and are no longer
    else:
        gone = group.places[0].member
        rebalance.prepare(ctx, group, now_ms, cause="the last standby for an open place is gone", member=gone)


# -- taking a place ----------------------------------------------------------------------------------------------------


def place_for(group: Group, command: Join) -> Place | None:
    """The open place that whoever joins with this can take. Who was announced waits for the others instead."""
    if group.state is not STABLE or not group.places or not calls.has_epochs_left(group):
        return None
    if command.request.group_instance_id in group.extensions.registered:
        return None
    topics = calls.topics_of(command.protocols, group)
    fitting = [place for place in group.places if place.topics == topics]
    instance_id = command.request.group_instance_id
    own = [place for place in group.places if instance_id is not None and place.member.instance_id == instance_id]
    if own:
        # In another's place it would be stored beside the one who went: an instance id with two holders.
        return own[0] if own[0] in fitting else None
    return next(iter(fitting), None)


def take_place(ctx: Context, group: Group, command: Join, heir: Member, place: Place, now_ms: int) -> None:
    """Kafka's replacement of a static member, with another id: stored first, then answered."""
    gone = place.member
    offered, heir.protocols = heir.protocols, command.protocols
    share = group.member_record(heir, gone.assignment)
    heir.protocols = offered
    members = [*group.member_records(besides=[gone]), share]
    leader_id = heir.id if place.led else group.leader_id
    value = group.metadata_record(members, leader_id, now_ms)
    value.current_state_timestamp = group.stored.state_timestamp_ms

    def stored(now_ms: int) -> None:
        _sit(ctx, group, command, heir, place, now_ms)
        knows_skip = leadership.can_skip(group, command.client, command.api_version)
        if place.led:
            group.leader_id = heir.id
            group.leader_unaware = not knows_skip
        # As for a static leader that restarted: if it cannot skip, it is told the former leader's id, and follows.
        leads = place.led and knows_skip
        shown = gone.id if place.led and not knows_skip else group.leader_id
        ctx.reply(command.ticket, joined(group, heir, leader_id=shown, with_members=leads, skip=leads))
        calls.call_standbys(ctx, group, now_ms)

    def failed(code: ErrorCode, now_ms: int) -> None:
        ctx.tell(EventKind.STORE_FAILED, group, now_ms, member=heir, cause=f"its place was not stored: {code.name}")
        known = heir.id if heir.waits else ""
        ctx.reply(command.ticket, join_error(code, known, command.api_version))

    ctx.store(group, [(GroupMetadataKey(group.id), value), *group.quiet_change(heir.id)], stored, failed)


def _sit(ctx: Context, group: Group, command: Join, heir: Member, place: Place, now_ms: int) -> None:
    roster, gone = group.roster, place.member
    group.places.remove(place)
    group.gone = [member for member in group.gone if member is not gone]
    if place.until is not None:
        place.until.cancel()
    if heir.waits:
        roster.set_protocols(heir, command.protocols)
        roster.promote(heir)
    else:
        heir.parked_join = None
        roster.add(heir)
    heir.session_timeout_ms = command.request.session_timeout_ms
    heir.rebalance_timeout_ms = command.rebalance_timeout_ms
    heir.is_new = heir.was_absent = False
    heir.had_seat = False
    heir.in_generation = True
    heir.assignment = gone.assignment
    presence.heard(group, heir, command.client)
    sessions.refresh(ctx, group, heir, now_ms)
    calls.await_member(ctx, group, heir, Call.JOINED, now_ms)
    previous, group.told_epoch = group.told_epoch, group.epoch
    ctx.tell(
        EventKind.TOOK_OVER,
        group,
        now_ms,
        member=heir,
        cause=f"it has the place of {gone.instance_id or gone.id}",
        reason=command.request.reason,
        previous_member_id=gone.id,
        previous_epoch=previous,
        changed_owner=partition_count(gone.assignment),
    )


# -- the clock of a closed connection ----------------------------------------------------------------------------------


LEAST_RETRY_MS: Final = 1_000
"""A clock may be set to a millisecond. One that ran out too early is not looked at that often."""


def connection_lost(ctx: Context, group: Group, member: Member, now_ms: int) -> None:
    """Starts the clock, where the group has one."""
    _start_clock(ctx, group, member, now_ms + group.extensions.standby_takeover_ms)


def _start_clock(ctx: Context, group: Group, member: Member, at_ms: int) -> None:
    if group.extensions.standby_takeover_ms == BY_SESSION or member.waits:
        return

    def time_is_up(now_ms: int) -> None:
        ctx.when_free(group, lambda later_ms: _take_over(ctx, group, member, later_ms), now_ms)

    member.takeover_timer = ctx.timers.at(at_ms, time_is_up)


def _take_over(ctx: Context, group: Group, member: Member, now_ms: int) -> None:
    here = group.roster.get(member.id) is member and not member.waits
    if not here or not member.is_away or member.session is None:
        return
    if not _can_be_replaced(ctx, group, [member]):
        # A rebalance is under way, or no standby fits. Both may be otherwise long before its session ends.
        retry_ms = max(group.extensions.standby_takeover_ms, LEAST_RETRY_MS)
        _start_clock(ctx, group, member, now_ms + retry_ms)
        return
    until_ms = member.session.at_ms
    cause = f"its connection closed and it was not heard of for {group.extensions.standby_takeover_ms} ms"
    ctx.tell(EventKind.DROPPED, group, now_ms, member=member, cause=cause)
    rebalance.remove(ctx, group, member)
    after_removal(ctx, group, [member], now_ms, cause="a member's connection closed", until_ms=until_ms)


# -- configs -----------------------------------------------------------------------------------------------------------


def configure(
    ctx: Context,
    group: Group,
    changes: Mapping[str, int],
    client: Client,
    then: Callable[[ErrorCode], None],
) -> None:
    """`changes` are fields of `Extensions`."""
    if group.state is DEAD:
        then(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return
    records = group.extensions_record(**changes)
    if not records:
        then(ErrorCode.NONE)
        return

    def stored(now_ms: int) -> None:
        told = ", ".join(f"{CONFIG_NAMES[name]} = {value}" for name, value in changes.items())
        cause = f"{told}, set by {client.client_id} from {client.host}"
        ctx.tell(EventKind.CONFIGURED, group, now_ms, cause=cause)
        then(ErrorCode.NONE)
        intake.review(ctx, group, now_ms)

    ctx.store(group, list(records), stored, lambda code, _now_ms: then(code))
