"""Hot standbys (KIP-345, future work): members past `target.group.size` take over from a member that is lost.

When a member with an assignment is removed, its assignment becomes a vacancy: the assignment stays as it is, every
standby with the same topics is asked to rejoin, and the first that joins fills the vacancy, under its own id and within
the generation. The other members are not affected. A vacancy that is not filled in time, or that cannot be filled as it
is, is an ordinary rebalance.

A member is removed by the end of its session, by LeaveGroup, or `standby.takeover.ms` after its connection closed.
Silence on an open connection is judged by the session alone: a pause is not a failure. Until the vacancy is filled the
removed member is still stored as its owner; after a crash of the broker it has a new session, as any member.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Final

from holdfast.coordinator.classic import rebalance, session, skip_assignment
from holdfast.coordinator.classic.commands import Join
from holdfast.coordinator.classic.group import Group
from holdfast.coordinator.classic.hooks import Context
from holdfast.coordinator.classic.member import Member, RejoinRequest, Role
from holdfast.coordinator.classic.responses import join_error, join_response
from holdfast.coordinator.classic.state_machine import STABLE
from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.events.group_event import EventKind
from holdfast.coordinator.events.partitions_moved import partition_count
from holdfast.coordinator.extensions import partition_growth, targeted_rejoin
from holdfast.coordinator.extensions.record import in_generation_change
from holdfast.coordinator.group_extensions import BY_SESSION, NO_TARGET, Vacancy
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import GroupMetadataKey


def vacancy_timer(vacancy: Vacancy) -> Hashable:
    """The key of the timer."""
    return "vacancy", vacancy


def takeover_timer(member: Member) -> Hashable:
    """The key of the timer."""
    return "takeover", member


def open_vacancies(
    ctx: Context,
    group: Group,
    removed: Sequence[Member],
    expired: bool,
    now_ms: int,
    *,
    until_ms: int | None = None,
) -> bool:
    """Members of a generation were removed. Returns whether standbys can take over their assignments."""
    if not _can_be_replaced(ctx, group, removed):
        return False
    for member in removed:
        timeout_ms = _vacancy_timeout_ms(group, member) if expired else member.session_timeout_ms
        _open_vacancy(ctx, group, member, now_ms + timeout_ms if until_ms is None else until_ms)
    targeted_rejoin.request_rejoin_of_standbys(ctx, group, now_ms)
    return True


def _can_be_replaced(ctx: Context, group: Group, removed: Sequence[Member]) -> bool:
    """Whether there is a standby for each of them, and no partition is moving."""
    if group.extensions.target_size == NO_TARGET or not group.members.standbys:
        return False
    # The standbys are counted first: they are few, and `is_settled` looks at every assignment.
    if not _has_matching_standbys(group, removed) or not targeted_rejoin.is_settled(group, removed):
        return False
    led = any(member.id == group.stored.leader_id for member in removed)
    # The next leader would take the topics as they are now for those that were assigned.
    return not (led and partition_growth.has_unassigned_new_partitions(ctx, group))


def _has_matching_standbys(group: Group, removed: Sequence[Member]) -> bool:
    """Whether there are enough standbys with the topics of these members and of the vacancies that are open already."""
    standbys = _available_standbys(group)
    if len(standbys) < len(removed) + len(group.ext.vacancies):
        return False
    wanted = Counter([targeted_rejoin.subscription_topics(member.protocols, group) for member in removed])
    wanted.update(vacancy.topics for vacancy in group.ext.vacancies)
    offered = Counter(targeted_rejoin.subscription_topics(member.protocols, group) for member in standbys)
    return None not in wanted and all(offered[topics] >= count for topics, count in wanted.items())


def _available_standbys(group: Group) -> list[Member]:
    """Those that wait for a vacancy, and not for other registered members."""
    registered = group.extensions.registered
    standbys = group.members.standbys.values()
    return [member for member in standbys if not member.disconnected and member.instance_id not in registered]


def _vacancy_timeout_ms(group: Group, removed: Member) -> int:
    """How long a vacancy is open after a session expired: not for another session, if a rebalance takes less."""
    longest_ms = max(member.rebalance_timeout_ms for member in _available_standbys(group))
    return min(removed.session_timeout_ms, max(longest_ms, rebalance.MIN_JOIN_WAIT_MS))


def _open_vacancy(ctx: Context, group: Group, member: Member, until_ms: int) -> None:
    was_leader = group.stored.leader_id == member.id
    topics = targeted_rejoin.subscription_topics(member.protocols, group) or frozenset()
    vacancy = Vacancy(member, topics, was_leader)
    if was_leader:
        group.leader_id = member.id  # no member leads meanwhile
    group.ext.vacancies.append(vacancy)
    ctx.schedule(group, vacancy_timer(vacancy), until_ms, partial(_vacancy_timed_out, ctx, group, member))


def _vacancy_timed_out(ctx: Context, group: Group, member: Member, now_ms: int) -> None:
    cause = Cause(CauseCode.VACANCY_TIMED_OUT, member=member.instance_id or member.id)
    rebalance.prepare_rebalance(ctx, group, now_ms, cause=cause, member=member)


def close_vacancies(ctx: Context, group: Group) -> None:
    for vacancy in group.ext.vacancies:
        ctx.cancel(group, vacancy_timer(vacancy))
    group.ext.vacancies.clear()


def recheck_vacancies(ctx: Context, group: Group, now_ms: int) -> None:
    """A standby was removed: if none is left for a vacancy, the group rebalances."""
    if not group.ext.vacancies or group.state is not STABLE:
        return
    if _can_be_replaced(ctx, group, ()):
        # Some may have been registered when the vacancy opened, and are no longer.
        targeted_rejoin.request_rejoin_of_standbys(ctx, group, now_ms)
    else:
        removed = group.ext.vacancies[0].member
        rebalance.prepare_rebalance(ctx, group, now_ms, cause=Cause(CauseCode.NO_STANDBY_LEFT), member=removed)


# -- filling a vacancy -------------------------------------------------------------------------------------------------


def vacancy_for(group: Group, command: Join) -> Vacancy | None:
    """The vacancy that the sender of this join can fill. A registered member waits for the others instead."""
    vacancies, instance_id = group.ext.vacancies, command.request.group_instance_id
    if group.state is not STABLE or not vacancies or not targeted_rejoin.has_epochs_left(group):
        return None
    if instance_id in group.extensions.registered:
        return None
    topics = targeted_rejoin.subscription_topics(command.protocols, group)
    fitting = [vacancy for vacancy in vacancies if vacancy.topics == topics]
    own = [vacancy for vacancy in vacancies if instance_id is not None and vacancy.member.instance_id == instance_id]
    if own:
        # In another vacancy it would be stored beside its former self: an instance id with two members.
        return own[0] if own[0] in fitting else None
    return next(iter(fitting), None)


def fill_vacancy(ctx: Context, group: Group, command: Join, member: Member, vacancy: Vacancy, now_ms: int) -> None:
    """Kafka's replacement of a static member, with another member: stored first, then answered."""
    removed = vacancy.member
    offered, member.protocols = member.protocols, command.protocols
    record = group.member_record(member, removed.assignment)
    member.protocols = offered
    members = [*group.member_records(excluding=[removed]), record]
    value = group.metadata_record(members, member.id if vacancy.was_leader else group.leader_id, now_ms)
    value.current_state_timestamp = group.stored.state_timestamp_ms

    def stored(now_ms: int) -> None:
        _activate_standby(ctx, group, command, member, vacancy, now_ms)
        knows_skip = skip_assignment.supports_skip_assignment(group, command.client, command.api_version)
        if vacancy.was_leader:
            group.leader_id = member.id
            group.leader_not_notified = not knows_skip
        # As for a static leader that restarted: if it cannot skip, it gets the former leader's id, and follows.
        leads = vacancy.was_leader and knows_skip
        shown = removed.id if vacancy.was_leader and not knows_skip else group.leader_id
        ctx.reply(command.reply_handle, join_response(group, member, leader_id=shown, with_members=leads, skip=leads))
        targeted_rejoin.request_rejoin_of_standbys(ctx, group, now_ms)

    def failed(code: ErrorCode, now_ms: int) -> None:
        cause = Cause(CauseCode.TAKEOVER_NOT_STORED, detail=code.name)
        ctx.emit(EventKind.STORE_FAILED, group, now_ms, member=member, cause=cause)
        known_id = member.id if member.role is Role.STANDBY else ""
        ctx.reply(command.reply_handle, join_error(code, known_id, command.api_version))

    ctx.append(group, [(GroupMetadataKey(group.id), value), *in_generation_change(group, member.id)], stored, failed)


def _activate_standby(ctx: Context, group: Group, command: Join, member: Member, vacancy: Vacancy, now_ms: int) -> None:
    removed = vacancy.member
    group.ext.vacancies.remove(vacancy)
    ctx.cancel(group, vacancy_timer(vacancy))
    group.departed_members = [departed for departed in group.departed_members if departed is not removed]
    if member.role is Role.STANDBY:
        group.members.promote(member)
    else:
        member.awaiting_join = None
        group.members.add(member)
    group.members.update(member, command)
    member.role = Role.ACTIVE
    member.missed_join_phase = False
    member.assignment = removed.assignment
    session.keep_alive(ctx, group, member, command.client, now_ms)
    targeted_rejoin.start_rejoin_deadline(ctx, group, member, RejoinRequest.REJOINED, now_ms)
    previous, group.last_event_epoch = group.last_event_epoch, group.epoch
    ctx.emit(
        EventKind.TOOK_OVER,
        group,
        now_ms,
        member=member,
        cause=Cause(CauseCode.STANDBY_TOOK_OVER, member=removed.instance_id or removed.id),
        reason=command.request.reason,
        previous_member_id=removed.id,
        previous_epoch=previous,
        changed_owner=partition_count(removed.assignment),
    )


# -- closed connections ------------------------------------------------------------------------------------------------


MIN_RETRY_MS: Final = 1_000
"""standby.takeover.ms may be a millisecond. A takeover that came too early is not tried again that often."""


def on_disconnect(ctx: Context, group: Group, member: Member, now_ms: int) -> None:
    _schedule_takeover(ctx, group, member, now_ms + group.extensions.standby_takeover_ms)


def cancel_takeover(ctx: Context, group: Group, member: Member) -> None:
    ctx.cancel(group, takeover_timer(member))


def _schedule_takeover(ctx: Context, group: Group, member: Member, at_ms: int) -> None:
    is_replaceable = member.role is not Role.STANDBY and group.members.get(member.id) is member
    if group.extensions.standby_takeover_ms != BY_SESSION and is_replaceable:
        ctx.schedule(group, takeover_timer(member), at_ms, partial(_takeover_timed_out, ctx, group, member))


def _takeover_timed_out(ctx: Context, group: Group, member: Member, now_ms: int) -> None:
    if member.role is Role.STANDBY or not member.disconnected:
        return
    if not _can_be_replaced(ctx, group, [member]):
        # A rebalance is in progress, or no standby fits. Both may change long before its session ends.
        retry_ms = max(group.extensions.standby_takeover_ms, MIN_RETRY_MS)
        _schedule_takeover(ctx, group, member, now_ms + retry_ms)
        return
    until_ms = group.timers[member].at_ms
    cause = Cause(CauseCode.TAKEOVER_TIMED_OUT, count=group.extensions.standby_takeover_ms)
    ctx.emit(EventKind.DROPPED, group, now_ms, member=member, cause=cause)
    rebalance.remove_member(ctx, group, member)
    if not open_vacancies(ctx, group, [member], False, now_ms, until_ms=until_ms):
        cause = Cause(CauseCode.MEMBER_DISCONNECTED)
        rebalance.prepare_rebalance(ctx, group, now_ms, cause=cause, member=member)
