"""How the extensions attach to Kafka's protocol (`classic.hooks`)."""

from __future__ import annotations

from typing import Final

from holdfast.coordinator.classic import join_group, session
from holdfast.coordinator.classic.commands import Join, Sync
from holdfast.coordinator.classic.group import Group
from holdfast.coordinator.classic.hooks import Context, Hooks
from holdfast.coordinator.classic.member import Client, Member, RejoinRequest, Role
from holdfast.coordinator.classic.state_machine import DISPATCH, EMPTY, PREPARING, STABLE, Outcome, RequestKind
from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.extensions import (
    admission,
    assignment_failure,
    partition_growth,
    registered_wait,
    resync,
    standby_members,
    standby_takeover,
    targeted_rejoin,
)
from holdfast.coordinator.extensions.batched_responses import has_undelivered_response
from holdfast.wire.apis.heartbeat import HeartbeatRequest
from holdfast.wire.error_codes import ErrorCode

# -- admit -------------------------------------------------------------------------------------------------------------


def _admit(ctx: Context, group: Group, command: Join, member: Member, now_ms: int) -> bool:
    if group.state is EMPTY:
        return False
    vacancy = standby_takeover.vacancy_for(group, command) if group.ext.vacancies else None
    if vacancy is not None:
        standby_takeover.fill_vacancy(ctx, group, command, member, vacancy, now_ms)
        return True
    instance_id = command.request.group_instance_id
    if standby_members.should_be_standby(group, command.protocols, instance_id):
        standby_members.add_standby(ctx, group, command, member, now_ms)
        admission.reconsider_admission(ctx, group, now_ms)
        return True
    registered = group.extensions.registered
    if instance_id in registered and standby_members.is_last_registered(group, instance_id):
        cause = Cause(CauseCode.REGISTRATION_COMPLETE, count=len(registered))
        join_group.add_member_and_rebalance(ctx, group, command, member, now_ms, cause=cause)
        return True
    return False


def _satisfies_rejoin(ctx: Context, group: Group, command: Join, member: Member) -> bool:
    if not targeted_rejoin.is_same_subscription(group, member, command.protocols):
        return False
    return not _leader_missed_growth(ctx, group, member)


def _restart_needs_rebalance(ctx: Context, group: Group, member: Member) -> bool:
    # KIP-429: a member that revokes a partition rejoins so that it can be assigned. Its new process owns nothing and
    # would not; the partition would have no owner. By Kafka's rules that lasts until the next rebalance. The same goes
    # for partitions that were added and that the leader did not assign before it restarted.
    return _leader_missed_growth(ctx, group, member) or targeted_rejoin.gives_up_partitions(group, member)


def _leader_missed_growth(ctx: Context, group: Group, member: Member) -> bool:
    """A leader that gets SkipAssignment takes the topics as they are now for those that were assigned."""
    return member.id == group.leader_id and partition_growth.has_unassigned_new_partitions(ctx, group)


def _after_replaced(ctx: Context, group: Group, member: Member, now_ms: int) -> None:
    if member.rejoin is not RejoinRequest.NONE:
        # Its predecessor was asked to rejoin. This is that join: its SyncGroup returns the new assignment.
        targeted_rejoin.start_rejoin_deadline(ctx, group, member, RejoinRequest.REJOINED, now_ms)
    if member.id == group.leader_id:
        partition_growth.rebalance_if_grown(ctx, group, Cause(CauseCode.TOPIC_GREW_DURING_RESTART), now_ms)


# -- standbys ----------------------------------------------------------------------------------------------------------


def _standby_join(ctx: Context, group: Group, command: Join, member: Member, now_ms: int) -> None:
    """Answered at once, or fills a vacancy."""
    if group.state is PREPARING:
        # It hung up when this rebalance started, and is back: if there is a free slot, it takes part. kafka-go joins
        # over a new connection each time. Answered at once, it would be in an old generation by the time it reads it.
        standby_members.promote_standbys(group)
        if member.role is not Role.STANDBY:
            join_group.rejoin(ctx, group, command, member, now_ms)
            return
    vacancy = standby_takeover.vacancy_for(group, command)
    if vacancy is not None:
        standby_takeover.fill_vacancy(ctx, group, command, member, vacancy, now_ms)
        return
    if not standby_members.can_be_standby(group, command.protocols):
        # The group has to agree on another protocol; then the member is a standby under that one.
        group.members.promote(member)
        kind, cause = RequestKind.JOIN_CHANGED, Cause(CauseCode.STANDBY_CHANGED_PROTOCOLS)
        join_group.rejoin_rebalance(ctx, group, command, member, kind, now_ms, cause=cause)
        return
    was_requested = member.rejoin is not RejoinRequest.NONE
    standby_members.rejoin(ctx, group, command, member, now_ms)
    if was_requested:
        standby_takeover.recheck_vacancies(ctx, group, now_ms)
    admission.reconsider_admission(ctx, group, now_ms)


def _standby_sync(ctx: Context, group: Group, command: Sync, member: Member, now_ms: int) -> None:
    returned = session.seen(ctx, group, member, command.client)
    standby_members.sync(ctx, group, command, member, now_ms)
    if returned:
        admission.reconsider_admission(ctx, group, now_ms)


def _standby_heartbeat(
    ctx: Context, group: Group, request: HeartbeatRequest, client: Client, member: Member, now_ms: int
) -> ErrorCode:
    returned = session.seen(ctx, group, member, client)
    code = standby_members.heartbeat(ctx, group, request, member, now_ms)
    if returned:
        admission.reconsider_admission(ctx, group, now_ms)
    return code


# -- rebalances and assignments ----------------------------------------------------------------------------------------


def _rebalance_started(ctx: Context, group: Group) -> None:
    if group.state is STABLE:
        standby_takeover.close_vacancies(ctx, group)
        targeted_rejoin.clear_all(ctx, group)
    if group.members.standbys or group.ext.unanswered_batches:
        standby_members.promote_standbys(group)


def _on_sync(ctx: Context, group: Group, command: Sync, member: Member, now_ms: int) -> bool:
    found, failure = DISPATCH[RequestKind.SYNC][group.state], command.request.failure
    if found is Outcome.ASSIGNMENT and command.request.resync_from_epoch >= 0:
        resync.resync(ctx, group, command, member, now_ms)
        return True
    if found is Outcome.AWAIT and failure is not None and member.id == group.leader_id:
        assignment_failure.report_failure(ctx, group, command, member, failure, now_ms)
        return True
    return False


def _after_stable(ctx: Context, group: Group, now_ms: int) -> None:
    group.ext.failed_assignments = 0
    admission.reconsider_admission(ctx, group, now_ms)


# -- removed and disconnected members ----------------------------------------------------------------------------------


def _member_removed(ctx: Context, group: Group, member: Member) -> None:
    targeted_rejoin.clear_rejoin(ctx, group, member)
    ctx.cancel(group, registered_wait.join_keepalive_timer(member))
    ctx.cancel(group, standby_takeover.takeover_timer(member))
    ctx.cancel(group, admission.reconnect_timer(member))


def _keeps_session(group: Group, member: Member) -> bool:
    return not member.disconnected and has_undelivered_response(group, member)


def _on_disconnect(ctx: Context, group: Group, member: Member, now_ms: int) -> None:
    registered_wait.on_disconnect(ctx, group, member, now_ms)
    admission.on_disconnect(ctx, group, member, now_ms)
    standby_takeover.on_disconnect(ctx, group, member, now_ms)


EXTENSIONS: Final = Hooks(
    admit=_admit,
    satisfies_rejoin=_satisfies_rejoin,
    requested_join=targeted_rejoin.join,
    restart_needs_rebalance=_restart_needs_rebalance,
    after_replaced=_after_replaced,
    standby_join=_standby_join,
    standby_sync=_standby_sync,
    standby_heartbeat=_standby_heartbeat,
    standby_returned=admission.reconsider_admission,
    standby_removed=standby_takeover.recheck_vacancies,
    rebalance_started=_rebalance_started,
    first_rebalance=registered_wait.start_waiting,
    joined_rebalance=registered_wait.member_joined,
    join_awaited=registered_wait.hold_join,
    may_complete=admission.may_complete,
    before_complete=admission.before_complete,
    without_leader=admission.without_leader,
    generation_records=admission.generation_records,
    generation_formed=admission.generation_formed,
    on_sync=_on_sync,
    synced=targeted_rejoin.clear_rejoin,
    assignment_records=partition_growth.assignment_records,
    after_stable=_after_stable,
    heartbeat_after_reload=partition_growth.check_after_reload,
    member_removed=_member_removed,
    after_removed=standby_takeover.open_vacancies,
    keeps_session=_keeps_session,
    on_disconnect=_on_disconnect,
    on_reconnect=standby_takeover.cancel_takeover,
)
