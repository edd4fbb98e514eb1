"""Pre-registration (KIP-469): static members are announced before they come, and one rebalance takes them all in.

Each that arrives takes a waiting seat while the others work on. When the last one is there, or the wait is over, the
group rebalances once. A rebalance for any other reason takes along who has arrived, and the rest is still waited for.
An empty group has nobody to disturb: there the first joins are parked, and it forms the moment the last one is there,
without the initial delay.

What is stored is who is expected until when. Who has arrived is not: after a crash they come back by themselves.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.coordinator import calls, intake, rebalance, seats, sessions
from holdfast.coordinator.answers import join_error
from holdfast.coordinator.context import Context
from holdfast.coordinator.group import CONSUMER, Group
from holdfast.coordinator.ledger import EventKind
from holdfast.coordinator.members import Client, Member
from holdfast.coordinator.states import DEAD, EMPTY, PREPARING
from holdfast.wire.apis.add_members_to_group import AddMembersToGroupResponse, AddMembersToGroupResult, Registration
from holdfast.wire.apis.cancel_registration import CancelRegistrationResponse, CancelRegistrationResult
from holdfast.wire.error_codes import ErrorCode

MOST_REGISTERED: Final = 10_000
"""In one group."""
LONGEST_ID: Final = 1_000
"""In characters: all of them stand in one record."""
LONGEST_WAIT_MS: Final = 7 * 24 * 3_600_000
RETRY_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Announcement:
    """Who is about to join, and for how long they are waited for."""

    instance_ids: Sequence[str]
    wait_ms: int
    client: Client
    ticket: object


def wrong_with(announcement: Announcement) -> str | None:
    if not announcement.instance_ids:
        return "no instance ids are given"
    if len(announcement.instance_ids) > MOST_REGISTERED:
        return f"{len(announcement.instance_ids)} instance ids are given; a group expects at most {MOST_REGISTERED}"
    if not 1 <= announcement.wait_ms <= LONGEST_WAIT_MS:
        return f"wait_ms is {announcement.wait_ms}; it must be from 1 to {LONGEST_WAIT_MS}"
    return None


def add(ctx: Context, group: Group, command: Announcement, now_ms: int) -> None:
    """Each id has a result of its own."""
    if group.state is DEAD:
        ctx.reply(command.ticket, AddMembersToGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    if group.state is not EMPTY and group.protocol_type != CONSUMER:
        message = f"the group is of type {group.protocol_type!r}; only members of type {CONSUMER!r} can be announced"
        code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        ctx.reply(command.ticket, AddMembersToGroupResponse(error_code=code, error_message=message))
        return
    registered = dict(group.extensions.registered)
    results: list[AddMembersToGroupResult] = []
    announced: dict[str, None] = {}
    for instance_id in command.instance_ids:
        result = _add_one(ctx, group, registered, announced, instance_id)
        results.append(result)
        if result.error_code == ErrorCode.NONE and result.outcome != Registration.ALREADY_MEMBER:
            registered[instance_id] = now_ms + command.wait_ms
            announced[instance_id] = None
    answer = AddMembersToGroupResponse(results=results)
    if not announced:
        ctx.reply(command.ticket, answer)
        return

    def stored(now_ms: int) -> None:
        cause = f"announced by {command.client.client_id} from {command.client.host} for {command.wait_ms} ms"
        ctx.tell(EventKind.REGISTERED, group, now_ms, cause=cause, instance_ids=list(announced))
        ctx.reply(command.ticket, answer)
        watch(ctx, group)
        intake.review(ctx, group, now_ms)

    def failed(code: ErrorCode, now_ms: int) -> None:  # noqa: ARG001
        ctx.reply(command.ticket, AddMembersToGroupResponse(error_code=code))

    ctx.store(group, list(group.extensions_record(registered=registered)), stored, failed)


def _add_one(
    ctx: Context, group: Group, registered: dict[str, int], announced: Container[str], instance_id: str
) -> AddMembersToGroupResult:
    refusal, message = ErrorCode.NONE, None
    if not 1 <= len(instance_id) <= LONGEST_ID:
        refusal, message = ErrorCode.INVALID_REQUEST, f"an instance id has 1 to {LONGEST_ID} characters"
    elif instance_id in announced:
        refusal, message = ErrorCode.INVALID_REQUEST, "it is named twice"
    elif instance_id in registered:
        return AddMembersToGroupResult(instance_id, outcome=Registration.RENEWED)
    elif group.roster.holder_of(instance_id) is not None:
        return AddMembersToGroupResult(instance_id, outcome=Registration.ALREADY_MEMBER)
    elif len(registered) >= min(MOST_REGISTERED, ctx.config.max_size):
        refusal = ErrorCode.GROUP_MAX_SIZE_REACHED
        message = f"the group expects {len(registered)} members already"
    return AddMembersToGroupResult(instance_id, refusal, message, Registration.REGISTERED)


def cancel(
    ctx: Context,
    group: Group,
    instance_ids: Sequence[str] | None,
    client: Client,
    ticket: object,
    now_ms: int,  # noqa: ARG001
) -> None:
    """They are expected no longer. Who has arrived takes part, as if it had never been announced."""
    registered = dict(group.extensions.registered)
    results: list[CancelRegistrationResult] = []
    ended: list[str] = []
    for instance_id in dict.fromkeys(registered if instance_ids is None else instance_ids):
        if registered.pop(instance_id, None) is None:
            message = f"{instance_id[:LONGEST_ID]} is not registered"
            results.append(CancelRegistrationResult(instance_id, ErrorCode.UNKNOWN_MEMBER_ID, message))
        else:
            results.append(CancelRegistrationResult(instance_id))
            ended.append(instance_id)
    answer = CancelRegistrationResponse(results=results)
    if not ended:
        ctx.reply(ticket, answer)
        return

    def done(now_ms: int) -> None:
        cause = f"cancelled by {client.client_id} from {client.host}"
        ctx.tell(EventKind.REGISTRATION_CANCELLED, group, now_ms, cause=cause, instance_ids=ended)
        ctx.reply(ticket, answer)
        _take_part(ctx, group, now_ms)

    def failed(code: ErrorCode, now_ms: int) -> None:  # noqa: ARG001
        ctx.reply(ticket, CancelRegistrationResponse(error_code=code))

    ctx.store(group, list(group.extensions_record(registered=registered)), done, failed)


# -- the end of the wait -----------------------------------------------------------------------------------------------


def _take_part(ctx: Context, group: Group, now_ms: int) -> None:
    """Whoever came, and is announced no longer, waits for nobody: it has a share if there is room, or is a standby."""
    watch(ctx, group)
    calls.call_standbys(ctx, group, now_ms)
    intake.review(ctx, group, now_ms)


def watch(ctx: Context, group: Group, not_before_ms: int = 0) -> None:
    """Sees to it that the wait ends for whoever is waited for."""
    if group.registration_timer is not None:
        group.registration_timer.cancel()
        group.registration_timer = None
    registered = group.extensions.registered
    if not registered:
        return

    def time_is_up(now_ms: int) -> None:
        ctx.when_free(group, lambda later_ms: _expire(ctx, group, later_ms), now_ms)

    at_ms = max(not_before_ms, min(registered.values()))
    group.registration_timer = ctx.timers.at(at_ms, time_is_up)
    if group.is_held:
        rebalance.hold_until(ctx, group, max(registered.values()))


def _expire(ctx: Context, group: Group, now_ms: int) -> None:
    if group.state is DEAD:
        return
    registered = group.extensions.registered
    over = [instance_id for instance_id, at_ms in registered.items() if at_ms <= now_ms]
    if not over:
        watch(ctx, group)
        return
    absent = [instance_id for instance_id in seats.missing(group) if registered[instance_id] <= now_ms]
    left = {instance_id: at_ms for instance_id, at_ms in registered.items() if at_ms > now_ms}

    def expired(now_ms: int) -> None:
        cause = f"{len(over) - len(absent)} of {len(over)} announced members came in time"
        if absent:
            ctx.tell(EventKind.REGISTRATION_EXPIRED, group, now_ms, cause=cause, instance_ids=absent)
        _take_part(ctx, group, now_ms)

    def failed(code: ErrorCode, now_ms: int) -> None:
        ctx.tell(EventKind.STORE_FAILED, group, now_ms, cause=f"the end of a registration was not stored: {code.name}")
        watch(ctx, group, not_before_ms=now_ms + RETRY_MS)

    ctx.store(group, list(group.extensions_record(registered=left)), expired, failed)


# -- joins that are parked in an empty group ---------------------------------------------------------------------------

PATIENCE: Final = 0.75
"""Of its rebalance time-out, for which a client waits for the answer to its join, or a little longer."""
LEAST_PATIENCE_MS: Final = 1_000
MOST_PATIENCE_MS: Final = 240_000


def hold(ctx: Context, group: Group, member: Member, now_ms: int) -> None:
    """The member's join is parked; if that is to wait for others, then as long as it takes."""
    if not group.is_held:
        return
    if member.is_away:
        connection_lost(ctx, group, member, now_ms)
    else:
        _keep_patient(ctx, group, member, now_ms)


def _keep_patient(ctx: Context, group: Group, member: Member, now_ms: int) -> None:
    """Before its patience ends the member is sent round once more, with the id that is its own already.

    To MEMBER_ID_REQUIRED every client answers with another join, silently; so the wait is as long as was announced,
    and not as long as the most impatient client's time-out.
    """
    parked = member.parked_join

    def time_is_up(now_ms: int) -> None:
        ctx.when_free(group, send_round, now_ms)

    def send_round(now_ms: int) -> None:
        if parked is None or group.state is not PREPARING or member.parked_join is not parked:
            return
        group.roster.park_join(member, None)
        member.is_new = False  # the limit on first joins is against ghosts; an instance id has none
        sessions.refresh(ctx, group, member, now_ms)
        ctx.reply(parked.ticket, join_error(ErrorCode.MEMBER_ID_REQUIRED, member.id, parked.api_version))

    patience_ms = min(max(int(member.rebalance_timeout_ms * PATIENCE), LEAST_PATIENCE_MS), MOST_PATIENCE_MS)
    member.patience = ctx.timers.at(now_ms + patience_ms, time_is_up)


def connection_lost(ctx: Context, group: Group, member: Member, now_ms: int) -> None:
    """Whoever waits in an empty group and has hung up is expected again: nobody would take the answer."""
    if group.is_held and member.parked_join is not None and group.roster.get(member.id) is member:
        cause = "its connection closed while it waited for the others"
        ctx.tell(EventKind.DROPPED, group, now_ms, member=member, cause=cause)
        rebalance.remove(ctx, group, member)
        rebalance.maybe_complete(ctx, group, now_ms)
