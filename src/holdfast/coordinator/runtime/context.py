"""What every command works with: the configuration, the timers, and the effects that it collects."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.coordinator.events.causes import Cause
from holdfast.coordinator.events.group_event import EventKind, GroupEvent
from holdfast.coordinator.runtime.effects import Append, DeferredReply, Effects, Record, RunningGroup
from holdfast.coordinator.runtime.timers import Action, Timer, Timers
from holdfast.coordinator.runtime.topic_metadata import PartitionCountOf, TopicMetadata
from holdfast.wire.error_codes import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Kafka's broker configs for groups."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 0
    max_size: int = 2**31 - 1
    offset_metadata_max_chars: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000


class EventClient(Protocol):
    @property
    def client_id(self) -> str: ...

    @property
    def host(self) -> str: ...


class EventMember(Protocol):
    """What an event says of the member behind it."""

    id: str
    instance_id: str | None

    @property
    def client(self) -> EventClient: ...


@dataclass(slots=True, eq=False)
class QueuedRequest:
    """The command of a request that waits for an append; other queued commands have no client that waits."""

    handler: Callable[[Any, Any, Any, int], None]
    ctx: Context
    group: RunningGroup
    command: object

    def __call__(self, now_ms: int) -> None:
        self.handler(self.ctx, self.group, self.command, now_ms)


class ScheduledAction:
    """See `Context.schedule`. Every member that joins has one: closures would take longer to make."""

    __slots__ = ("action", "group", "key", "timer")

    timer: Timer

    def __init__(self, group: RunningGroup, key: Hashable, action: Action) -> None:
        self.group = group
        self.key = key
        self.action = action

    def __call__(self, now_ms: int) -> None:
        Context.run_exclusive(self.group, self.run, now_ms)

    def run(self, now_ms: int) -> None:
        if self.group.timers.get(self.key) is self.timer:
            del self.group.timers[self.key]
            self.action(now_ms)


class Context:
    def __init__(self, config: GroupConfig, partition_count: PartitionCountOf) -> None:
        self.config = config
        self.topics = TopicMetadata(partition_count)
        self.timers = Timers()
        self.effects = Effects()

    # -- effects -------------------------------------------------------------------------------------------------------

    def reply(self, reply_handle: object, response: Any) -> None:
        if isinstance(reply_handle, DeferredReply):
            reply_handle.set_response(response)
        else:
            self.effects.replies.append((reply_handle, response))

    def append(
        self,
        group: RunningGroup,
        records: Sequence[Record],
        on_stored: Callable[[int], None],
        on_failed: Callable[[ErrorCode, int], None],
    ) -> None:
        """Asks for the records to be stored; further commands of the group are queued until the result is known."""
        assert not group.append_in_flight
        group.append_in_flight = True
        self.effects.appends.append(Append(group, records, on_stored, on_failed))

    def emit(
        self,
        kind: EventKind,
        group: RunningGroup,
        now_ms: int,
        *,
        cause: Cause,
        member: EventMember | None = None,
        **details: Any,
    ) -> None:
        if member is not None:
            details = {
                "member_id": member.id,
                "instance_id": member.instance_id,
                "client_id": member.client.client_id,
                "client_host": member.client.host,
                **details,
            }
        event = GroupEvent(
            kind=kind,
            group_id=group.id,
            at_ms=now_ms,
            generation=group.generation,
            epoch=group.epoch,
            cause=cause,
            **details,
        )
        self.effects.events.append(event)

    def warn(self, text: str) -> None:
        self.effects.warnings.append(text)

    # -- one command at a time -----------------------------------------------------------------------------------------

    @staticmethod
    def run_exclusive(group: RunningGroup, command: Callable[[int], None], now_ms: int) -> None:
        """Runs a command of the group now, or after the append that is in flight."""
        if group.append_in_flight:
            group.queued_commands.append(command)
        else:
            command(now_ms)

    # -- timers --------------------------------------------------------------------------------------------------------

    def schedule(self, group: RunningGroup, key: Hashable, at_ms: int, action: Action) -> None:
        """Runs the action at that time, exclusively, instead of the one that is scheduled under this key.

        If an append is in flight when it is due, it runs after that, unless it was cancelled or scheduled again since.
        """
        before = group.timers.get(key)
        if before is not None:
            before.cancel()
        scheduled = ScheduledAction(group, key, action)
        group.timers[key] = scheduled.timer = self.timers.at(at_ms, scheduled)

    @staticmethod
    def cancel(group: RunningGroup, key: Hashable) -> bool:
        """Returns whether something was scheduled under this key."""
        timer = group.timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        return timer is not None

    @staticmethod
    def cancel_all(group: RunningGroup) -> None:
        for timer in group.timers.values():
            timer.cancel()
        group.timers.clear()
