"""OffsetDelete, and the tombstones of offsets that are deleted or expired."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from holdfast.coordinator.classic.group import CONSUMER, Group
from holdfast.coordinator.classic.hooks import Context
from holdfast.coordinator.classic.state_machine import DISPATCH, Outcome, RequestKind
from holdfast.coordinator.offsets.commit import PartitionErrors
from holdfast.coordinator.runtime.effects import Record
from holdfast.types import TopicPartition
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import OffsetCommitKey


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    partitions: Sequence[TopicPartition]
    reply_handle: object


@dataclass(frozen=True, slots=True)
class OffsetDeletion:
    """The response to OffsetDelete: an error for all, or one for each partition."""

    error_code: ErrorCode
    partitions: PartitionErrors


def delete(ctx: Context, group: Group, command: DeleteOffsets, now_ms: int) -> None:  # noqa: ARG001
    row, rejected = DISPATCH[RequestKind.DELETE_OFFSETS], ErrorCode.NONE
    topics: set[str] | None = set()
    match row[group.state]:
        case Outcome.ACCEPT:
            pass
        case Outcome.UNSUBSCRIBED if group.protocol_type == CONSUMER:
            topics = group.topics()
        case Outcome.UNSUBSCRIBED:
            rejected = ErrorCode.NON_EMPTY_GROUP
        case _:
            rejected = row.error(group.state)
    if rejected:
        ctx.reply(command.reply_handle, OffsetDeletion(rejected, {}))
        return
    errors: PartitionErrors = {
        key: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topics is None or key[0] in topics else ErrorCode.NONE
        for key in command.partitions
    }
    deleted = [key for key, code in errors.items() if code is ErrorCode.NONE and key in group.stored.offsets]

    def done(code: ErrorCode) -> None:
        failed = {key: before or code for key, before in errors.items()}
        ctx.reply(command.reply_handle, OffsetDeletion(ErrorCode.NONE, failed))

    append_tombstones(ctx, group, deleted, done)


def append_tombstones(
    ctx: Context, group: Group, offsets: Iterable[TopicPartition], done: Callable[[ErrorCode], None]
) -> None:
    """Deletes these offsets, if there are any."""
    records: list[Record] = [(OffsetCommitKey(group.id, topic, index), None) for topic, index in offsets]
    if records:
        ctx.append(group, records, lambda _now: done(ErrorCode.NONE), lambda code, _now: done(code))
    else:
        done(ErrorCode.NONE)
