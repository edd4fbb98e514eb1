"""The deletion of an empty group, with everything that is stored of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from holdfast.coordinator.classic.group import Group
from holdfast.coordinator.classic.hooks import Context
from holdfast.coordinator.classic.state_machine import DEAD, DISPATCH, RequestKind
from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.events.group_event import EventKind
from holdfast.coordinator.group_registry import GroupRegistry
from holdfast.coordinator.runtime.effects import Record
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import (
    ExtensionsKey,
    GenerationKey,
    GroupMetadataKey,
    HighestGenerationKey,
    HighestGenerationValue,
    OffsetCommitKey,
)


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    registry: GroupRegistry
    reply_handle: object


def delete_if_empty(ctx: Context, group: Group, command: DeleteGroup, now_ms: int) -> None:
    rejected = DISPATCH[RequestKind.DELETE_GROUP].rejection(group.state)
    if rejected:
        ctx.reply(command.reply_handle, rejected)
        return
    cause = Cause(CauseCode.DELETE_REQUESTED)
    delete_group(ctx, command.registry, group, now_ms, cause=cause, done=partial(ctx.reply, command.reply_handle))


def delete_group(
    ctx: Context,
    registry: GroupRegistry,
    group: Group,
    now_ms: int,
    *,
    cause: Cause,
    done: Callable[[ErrorCode], None],
    keep_configs: bool = False,
) -> None:
    """With `keep_configs`, its configs stay for the next group of its name."""
    stored = group.stored
    records: list[Record] = [(OffsetCommitKey(group.id, topic, index), None) for topic, index in stored.offsets]
    if stored.has_generation_record:
        records.append((GenerationKey(group.id), None))
    if stored.has_record:
        records.append((GroupMetadataKey(group.id), None))
    is_configured = keep_configs and group.extensions.has_configs
    if stored.has_extensions_record and not is_configured:
        records.append((ExtensionsKey(group.id), None))
    # Raised before it is stored, so that of several deletions in flight the last one stores the highest of all; and
    # stored with every group that had members, so that each partition knows enough for its own groups.
    registry.highest_deleted_generation = max(registry.highest_deleted_generation, stored.generation)
    if stored.has_record or stored.has_generation_record:
        records.append((HighestGenerationKey(), HighestGenerationValue(registry.highest_deleted_generation)))

    def deleted(now_ms: int) -> None:
        group.members.pending_member_ids.clear()
        ctx.cancel_all(group)
        group.transition_to(DEAD)
        if registry.groups.get(group.id) is group:
            del registry.groups[group.id]
            if is_configured:
                registry.get_or_create(group.id).keep_extensions(group.stored)
        ctx.emit(EventKind.DELETED, group, now_ms, cause=cause)
        done(ErrorCode.NONE)

    if records:
        ctx.append(group, records, deleted, lambda code, _now: done(code))
    else:
        deleted(now_ms)
