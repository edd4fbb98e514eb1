"""Pre-registration (KIP-469): static members are registered before they join, and one rebalance admits them all.

A registered member that joins is a standby while the others keep their assignments. When the last one has joined, or
the deadline is over, the group rebalances once. A rebalance for any other reason admits those that have joined, and the
rest is still waited for. In an empty group the first joins are awaited (`registered_wait`).

The registered instance ids are stored with their deadlines. Which of them have joined is not: after a crash they join
again by themselves.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from holdfast.coordinator.classic.group import CONSUMER, Group
from holdfast.coordinator.classic.hooks import Context
from holdfast.coordinator.classic.member import Client
from holdfast.coordinator.classic.state_machine import DISPATCH, EMPTY, RequestKind
from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.events.group_event import EventKind
from holdfast.coordinator.extensions import admission, registered_wait, standby_members, targeted_rejoin
from holdfast.coordinator.extensions.record import extensions_record
from holdfast.wire.apis.add_members_to_group import AddMembersToGroupResponse, AddMembersToGroupResult, Registration
from holdfast.wire.apis.cancel_registration import CancelRegistrationResponse, CancelRegistrationResult
from holdfast.wire.error_codes import ErrorCode

MAX_REGISTERED: Final = 10_000
"""In one group."""
MAX_ID_LENGTH: Final = 1_000
"""In characters: one record stores all of them."""
MAX_WAIT_MS: Final = 7 * 24 * 3_600_000
RETRY_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class AddMembers:
    """An AddMembersToGroup request: the instance ids, and how long they are waited for."""

    instance_ids: Sequence[str]
    wait_ms: int
    client: Client
    reply_handle: object


def validate(command: AddMembers) -> str | None:
    if not command.instance_ids:
        return "no instance ids are given"
    if len(command.instance_ids) > MAX_REGISTERED:
        return f"{len(command.instance_ids)} instance ids are given; a group expects at most {MAX_REGISTERED}"
    if not 1 <= command.wait_ms <= MAX_WAIT_MS:
        return f"wait_ms is {command.wait_ms}; it must be from 1 to {MAX_WAIT_MS}"
    return None


def add(ctx: Context, group: Group, command: AddMembers, now_ms: int) -> None:
    """Each id has a result of its own."""
    rejected = DISPATCH[RequestKind.ADD_MEMBERS].rejection(group.state)
    if rejected:
        ctx.reply(command.reply_handle, AddMembersToGroupResponse(error_code=rejected))
        return
    if group.state is not EMPTY and group.protocol_type != CONSUMER:
        message = f"the group is of type {group.protocol_type!r}; only members of type {CONSUMER!r} can be registered"
        code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        ctx.reply(command.reply_handle, AddMembersToGroupResponse(error_code=code, error_message=message))
        return
    registered = dict(group.extensions.registered)
    results: list[AddMembersToGroupResult] = []
    added: dict[str, None] = {}
    for instance_id in command.instance_ids:
        result = _add_one(ctx, group, registered, added, instance_id)
        results.append(result)
        if result.error_code == ErrorCode.NONE and result.outcome != Registration.ALREADY_MEMBER:
            registered[instance_id] = now_ms + command.wait_ms
            added[instance_id] = None
    response = AddMembersToGroupResponse(results=results)
    if not added:
        ctx.reply(command.reply_handle, response)
        return

    def stored(now_ms: int) -> None:
        by = f"{command.client.client_id} from {command.client.host}"
        cause = Cause(CauseCode.REGISTERED_BY_CLIENT, count=command.wait_ms, detail=by)
        ctx.emit(EventKind.REGISTERED, group, now_ms, cause=cause, instance_ids=list(added))
        ctx.reply(command.reply_handle, response)
        schedule_expiry(ctx, group)
        admission.reconsider_admission(ctx, group, now_ms)

    def failed(code: ErrorCode, now_ms: int) -> None:  # noqa: ARG001
        ctx.reply(command.reply_handle, AddMembersToGroupResponse(error_code=code))

    ctx.append(group, list(extensions_record(group, registered=registered)), stored, failed)


def _add_one(
    ctx: Context, group: Group, registered: dict[str, int], added: Container[str], instance_id: str
) -> AddMembersToGroupResult:
    refusal, message = ErrorCode.NONE, None
    if not 1 <= len(instance_id) <= MAX_ID_LENGTH:
        refusal, message = ErrorCode.INVALID_REQUEST, f"an instance id has 1 to {MAX_ID_LENGTH} characters"
    elif instance_id in added:
        refusal, message = ErrorCode.INVALID_REQUEST, "it is named twice"
    elif instance_id in registered:
        return AddMembersToGroupResult(instance_id, outcome=Registration.RENEWED)
    elif group.members.static_member(instance_id) is not None:
        return AddMembersToGroupResult(instance_id, outcome=Registration.ALREADY_MEMBER)
    elif len(registered) >= min(MAX_REGISTERED, ctx.config.max_size):
        refusal = ErrorCode.GROUP_MAX_SIZE_REACHED
        message = f"the group expects {len(registered)} members already"
    return AddMembersToGroupResult(instance_id, refusal, message, Registration.REGISTERED)


@dataclass(frozen=True, slots=True)
class CancelRegistration:
    instance_ids: Sequence[str] | None
    """None for all of them."""
    client: Client
    reply_handle: object


def cancel(ctx: Context, group: Group, command: CancelRegistration, now_ms: int) -> None:  # noqa: ARG001
    """The group waits for them no longer. Those that have joined are as if they had never been registered."""
    rejected = DISPATCH[RequestKind.CANCEL_REGISTRATION].rejection(group.state)
    if rejected:
        ctx.reply(command.reply_handle, CancelRegistrationResponse(error_code=rejected))
        return
    registered = dict(group.extensions.registered)
    results: list[CancelRegistrationResult] = []
    ended: list[str] = []
    for instance_id in dict.fromkeys(registered if command.instance_ids is None else command.instance_ids):
        if registered.pop(instance_id, None) is None:
            message = f"{instance_id[:MAX_ID_LENGTH]} is not registered"
            results.append(CancelRegistrationResult(instance_id, ErrorCode.UNKNOWN_MEMBER_ID, message))
        else:
            results.append(CancelRegistrationResult(instance_id))
            ended.append(instance_id)
    response = CancelRegistrationResponse(results=results)
    if not ended:
        ctx.reply(command.reply_handle, response)
        return

    def stored(now_ms: int) -> None:
        by = f"{command.client.client_id} from {command.client.host}"
        cause = Cause(CauseCode.REGISTRATION_CANCELLED, detail=by)
        ctx.emit(EventKind.REGISTRATION_CANCELLED, group, now_ms, cause=cause, instance_ids=ended)
        ctx.reply(command.reply_handle, response)
        _release_registered(ctx, group, now_ms)

    def failed(code: ErrorCode, now_ms: int) -> None:  # noqa: ARG001
        ctx.reply(command.reply_handle, CancelRegistrationResponse(error_code=code))

    ctx.append(group, list(extensions_record(group, registered=registered)), stored, failed)


# -- the deadline ------------------------------------------------------------------------------------------------------


def _release_registered(ctx: Context, group: Group, now_ms: int) -> None:
    """Members that are registered no longer wait for no other: they are admitted, or are standbys like any other."""
    schedule_expiry(ctx, group)
    targeted_rejoin.request_rejoin_of_standbys(ctx, group, now_ms)
    admission.reconsider_admission(ctx, group, now_ms)


def schedule_expiry(ctx: Context, group: Group, not_before_ms: int = 0) -> None:
    registered = group.extensions.registered
    if not registered:
        ctx.cancel(group, admission.REGISTRATION)
        return
    at_ms = max(not_before_ms, min(registered.values()))
    ctx.schedule(group, admission.REGISTRATION, at_ms, partial(_expire, ctx, group))
    registered_wait.extend_wait(ctx, group)


def _expire(ctx: Context, group: Group, now_ms: int) -> None:
    registered = group.extensions.registered
    over = [instance_id for instance_id, at_ms in registered.items() if at_ms <= now_ms]
    if not over:
        schedule_expiry(ctx, group)
        return
    missing = standby_members.missing_registered(group)
    absent = [instance_id for instance_id in missing if registered[instance_id] <= now_ms]
    remaining = {instance_id: at_ms for instance_id, at_ms in registered.items() if at_ms > now_ms}

    def stored(now_ms: int) -> None:
        if absent:
            cause = Cause(CauseCode.REGISTRATION_TIMED_OUT, count=len(over) - len(absent), total=len(over))
            ctx.emit(EventKind.REGISTRATION_EXPIRED, group, now_ms, cause=cause, instance_ids=absent)
        _release_registered(ctx, group, now_ms)

    def failed(code: ErrorCode, now_ms: int) -> None:
        cause = Cause(CauseCode.REGISTRATION_END_NOT_STORED, detail=code.name)
        ctx.emit(EventKind.STORE_FAILED, group, now_ms, cause=cause)
        schedule_expiry(ctx, group, not_before_ms=now_ms + RETRY_MS)

    ctx.append(group, list(extensions_record(group, registered=remaining)), stored, failed)
