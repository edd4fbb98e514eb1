"""OffsetCommit and OffsetFetch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.coordinator.classic import session
from holdfast.coordinator.classic.group import Group
from holdfast.coordinator.classic.hooks import Context
from holdfast.coordinator.classic.member import Client, Member
from holdfast.coordinator.classic.state_machine import DISPATCH, WITHOUT_MEMBERS, RequestKind
from holdfast.coordinator.classic.validate_member import validate_member
from holdfast.types import TopicPartition
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import OffsetCommitValue
from holdfast.wire.offset_records import OffsetRecords

PartitionErrors = dict[TopicPartition, ErrorCode]
"""The response to a commit: errors are per partition only."""


@dataclass(slots=True, eq=False)  # frozen it would take half a microsecond more to make
class Commit:
    """An OffsetCommit of topics and partitions that exist."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    client: Client
    reply_handle: object
    offsets: Mapping[TopicPartition, OffsetCommitValue]


@dataclass(frozen=True, slots=True)
class ImportOffsets:
    offsets: Mapping[TopicPartition, OffsetCommitValue]
    reply_handle: object


def import_offsets(ctx: Context, group: Group, command: ImportOffsets, now_ms: int) -> None:  # noqa: ARG001
    """Without the limits of a commit, because another coordinator has accepted the offsets."""

    def stored(now_ms: int) -> None:  # noqa: ARG001
        ctx.reply(command.reply_handle, ErrorCode.NONE)

    def failed(code: ErrorCode, now_ms: int) -> None:  # noqa: ARG001
        ctx.reply(command.reply_handle, code)

    ctx.append(group, OffsetRecords(group.id, command.offsets), stored, failed)


def fetch(ctx: Context, group: Group, reply_handle: object) -> None:
    """The response is (error, all committed offsets). A client need not be a member."""
    rejected = DISPATCH[RequestKind.FETCH_OFFSETS].rejection(group.state)
    ctx.reply(reply_handle, (rejected, {} if rejected else group.stored.offsets))


def commit(ctx: Context, group: Group, command: Commit, now_ms: int) -> None:
    standby = group.members.standbys.get(command.member_id)
    was_disconnected = standby is not None and standby.disconnected
    _commit(ctx, group, command, now_ms)
    if was_disconnected and standby is not None and not standby.disconnected:
        ctx.hooks.standby_returned(ctx, group, now_ms)


def _commit(ctx: Context, group: Group, command: Commit, now_ms: int) -> None:
    code = _validate(ctx, group, command, now_ms)
    if code is not ErrorCode.NONE:
        ctx.reply(command.reply_handle, dict.fromkeys(command.offsets, code))
        return
    limit, offsets = ctx.config.offset_metadata_max_chars, command.offsets
    errors: PartitionErrors = dict.fromkeys(offsets, ErrorCode.NONE)
    rejected = [key for key, value in offsets.items() if len(value.metadata) > limit]
    if rejected:
        errors.update(dict.fromkeys(rejected, ErrorCode.OFFSET_METADATA_TOO_LARGE))
        offsets = {key: value for key, value in offsets.items() if errors[key] is ErrorCode.NONE}
    if not offsets:
        ctx.reply(command.reply_handle, errors)
        return

    def stored(now_ms: int) -> None:  # noqa: ARG001
        ctx.reply(command.reply_handle, errors)

    def failed(code: ErrorCode, now_ms: int) -> None:  # noqa: ARG001
        ctx.reply(command.reply_handle, {key: before or code for key, before in errors.items()})

    ctx.append(group, OffsetRecords(group.id, offsets), stored, failed)


def _validate(ctx: Context, group: Group, command: Commit, now_ms: int) -> ErrorCode:
    has_generation = command.generation >= 0
    row = DISPATCH[RequestKind.COMMIT if has_generation else RequestKind.COMMIT_WITHOUT_GENERATION]
    rejected = row.rejection(group.state)
    if not rejected and not has_generation:
        return ErrorCode.NONE  # the group has no members: a tool, or a consumer that assigns its partitions itself
    member = validate_member(ctx, group, command.member_id, command.instance_id, command.client, now_ms)
    if not isinstance(member, Member):
        # For a sender that is not a member, the table applies if the group has no members or the commit no generation.
        applies = group.state in WITHOUT_MEMBERS or not has_generation
        return rejected if applies and member is ErrorCode.UNKNOWN_MEMBER_ID else member
    if command.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if not rejected:
        session.keep_alive(ctx, group, member, command.client, now_ms)
    return rejected
