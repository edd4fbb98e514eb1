"""What a command asks its driver to do: append records, deliver responses, publish events, log warnings.

The coordinator only collects effects. The driver performs them in order and reports the result of each append.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.coordinator.events.group_event import GroupEvent
from holdfast.coordinator.runtime.timers import Timer
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import GroupRecordKey, GroupRecordValue

Record = tuple[GroupRecordKey, GroupRecordValue | None]
"""A record for the group log; without a value, a tombstone."""


class RunningGroup(Protocol):
    """What the runtime needs to know of a group, of whatever type."""

    id: str
    append_in_flight: bool
    queued_commands: deque[Callable[[int], None]]
    timers: dict[Hashable, Timer]
    generation: int
    epoch: int


@dataclass(slots=True, eq=False)
class Append:
    """Records that must be stored before anything that depends on them is sent.

    `on_stored` is called once they are stored and replayed, `on_failed` with the error if they could not be stored.
    Then nothing has changed. Until one of them is called, further commands of the group are queued.
    """

    group: RunningGroup
    records: Sequence[Record]
    on_stored: Callable[[int], None]
    on_failed: Callable[[ErrorCode, int], None]
    began_ms: int = 0
    """When the driver got it."""


class DeferredReply:
    """A reply handle that keeps its response back for a while, instead of passing it to the driver."""

    __slots__ = ()

    def set_response(self, response: Any) -> None:
        raise NotImplementedError


@dataclass(slots=True)
class Effects:
    replies: list[tuple[object, Any]] = field(default_factory=list)
    """Reply handles with their responses."""
    appends: list[Append] = field(default_factory=list)
    events: list[GroupEvent] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    """For the log."""
