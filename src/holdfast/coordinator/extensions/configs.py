"""The configs of a group: `target.group.size` and `standby.takeover.ms`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.coordinator.classic.group import Group
from holdfast.coordinator.classic.hooks import Context
from holdfast.coordinator.classic.member import Client
from holdfast.coordinator.classic.state_machine import DISPATCH, RequestKind
from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.events.group_event import EventKind
from holdfast.coordinator.extensions import admission
from holdfast.coordinator.extensions.record import extensions_record
from holdfast.coordinator.group_extensions import CONFIG_NAMES
from holdfast.wire.error_codes import ErrorCode


@dataclass(frozen=True, slots=True)
class Configure:
    changes: Mapping[str, int]
    """Fields of `Extensions`."""
    client: Client
    reply_handle: object


def configure(ctx: Context, group: Group, command: Configure, now_ms: int) -> None:  # noqa: ARG001
    """The response is an error code."""
    rejected = DISPATCH[RequestKind.CONFIGURE].rejection(group.state)
    records = () if rejected else extensions_record(group, **command.changes)
    if not records:
        ctx.reply(command.reply_handle, rejected)
        return

    def stored(now_ms: int) -> None:
        configs = ", ".join(f"{CONFIG_NAMES[name]} = {value}" for name, value in command.changes.items())
        by = f"{command.client.client_id} from {command.client.host}"
        cause = Cause(CauseCode.CONFIG_CHANGED, detail=f"{configs}, set by {by}")
        ctx.emit(EventKind.CONFIGURED, group, now_ms, cause=cause)
        ctx.reply(command.reply_handle, ErrorCode.NONE)
        admission.reconsider_admission(ctx, group, now_ms)

    def failed(code: ErrorCode, now_ms: int) -> None:  # noqa: ARG001
        ctx.reply(command.reply_handle, code)

    ctx.append(group, list(records), stored, failed)
