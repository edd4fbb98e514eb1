"""A group that another broker serves from now on is unloaded.

As in Kafka (`GroupCoordinator.onResignation`, and `CoordinatorRuntime.scheduleUnloadOperation` since version 4) every
request that waits for the group gets NOT_COORDINATOR, upon which its client looks for the new coordinator. Nothing is
stored and no event is written: for the group nothing has happened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from holdfast.coordinator.classic.commands import Heartbeat, Join, Leave, Sync
from holdfast.coordinator.classic.group import Group
from holdfast.coordinator.classic.hooks import Context
from holdfast.coordinator.classic.members import Members
from holdfast.coordinator.classic.responses import join_error, sync_error
from holdfast.coordinator.classic.state_machine import DEAD
from holdfast.coordinator.delete_group import DeleteGroup
from holdfast.coordinator.extensions.configs import Configure
from holdfast.coordinator.extensions.registration import AddMembers, CancelRegistration
from holdfast.coordinator.group_extensions import ExtensionState
from holdfast.coordinator.offsets.commit import Commit, ImportOffsets
from holdfast.coordinator.offsets.delete import DeleteOffsets, OffsetDeletion
from holdfast.coordinator.runtime.context import QueuedRequest
from holdfast.coordinator.runtime.effects import Append, Effects
from holdfast.wire.apis.add_members_to_group import AddMembersToGroupResponse
from holdfast.wire.apis.cancel_registration import CancelRegistrationResponse
from holdfast.wire.apis.heartbeat import HeartbeatResponse
from holdfast.wire.apis.join_groups import AS_JOIN_GROUP_VERSION
from holdfast.wire.apis.leave_group import LeaveGroupResponse
from holdfast.wire.error_codes import ErrorCode

CODE: Final = ErrorCode.NOT_COORDINATOR


def unload(ctx: Context, group: Group) -> None:
    """Answers every request of the group but the one whose append is in flight (`end_append`)."""
    ctx.cancel_all(group)
    _answer_awaiting_members(ctx, group)
    for queued in group.queued_commands:
        if isinstance(queued, QueuedRequest):
            for command in _commands(queued):
                ctx.reply(command.reply_handle, _response(command))
    group.queued_commands.clear()
    _answer_batches(group)
    group.members, group.ext = Members(), ExtensionState()
    group.transition_to(DEAD)


def end_append(ctx: Context, append: Append, now_ms: int) -> None:
    """An append of an unloaded group has ended, with whatever result: only its request is answered."""
    group = append.group
    group.append_in_flight = False
    append.on_failed(CODE, now_ms)
    ctx.cancel_all(group)
    ctx.effects = Effects(replies=ctx.effects.replies)


def _answer_awaiting_members(ctx: Context, group: Group) -> None:
    for member in group.members.all_members:
        member.leave_connection()
        awaiting_join, awaiting_sync = member.awaiting_join, member.awaiting_sync_response
        member.awaiting_join = member.awaiting_sync_response = None
        if awaiting_join is not None:
            ctx.reply(awaiting_join.reply_handle, join_error(CODE, member.id, awaiting_join.api_version))
        if awaiting_sync is not None:
            ctx.reply(awaiting_sync.reply_handle, sync_error(CODE))


def _answer_batches(group: Group) -> None:
    """A response that is not delivered yet is no longer true."""
    for batch in group.ext.unanswered_batches:
        batch.group_id = None
        for member_id, entry in list(batch.undelivered_joins()):
            entry.clear_response()
            entry.set_response(join_error(CODE, member_id, AS_JOIN_GROUP_VERSION))


def _commands(queued: QueuedRequest) -> Iterable[Any]:
    """The commands of the request, each with a reply handle: of JoinGroups, one for each entry that is left."""
    return queued.command if isinstance(queued.command, list | deque) else (queued.command,)


def _response(command: Any) -> Any:
    match command:
        case Join():
            return join_error(CODE, command.request.member_id, command.api_version)
        case Sync():
            return sync_error(CODE)
        case Heartbeat():
            return HeartbeatResponse(error_code=CODE)
        case Leave():
            return LeaveGroupResponse(error_code=CODE)
        case Commit():
            return dict.fromkeys(command.offsets, CODE)
        case DeleteOffsets():
            return OffsetDeletion(CODE, {})
        case AddMembers():
            return AddMembersToGroupResponse(error_code=CODE)
        case CancelRegistration():
            return CancelRegistrationResponse(error_code=CODE)
        case DeleteGroup() | Configure() | ImportOffsets():
            return CODE
    raise AssertionError(f"no response to {command}")
