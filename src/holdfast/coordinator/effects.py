"""What a command asks the world to do: records to store, answers to give, events to tell.

The coordinator only collects them; whoever drives it performs them, in order, and reports what became of each append.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.coordinator.ledger import Event
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import GroupRecordKey, GroupRecordValue

Record = tuple[GroupRecordKey, GroupRecordValue | None]
"""A fact for the journal; without a value, the end of one."""


@dataclass(slots=True, eq=False)
class Append:
    """Records that must be stored before anything that depends on them is said.

    `then` is called once they are stored and applied, `otherwise` with the error if they could not be: then nothing
    has changed. Until one of them is called, further commands of the group wait.
    """

    group_id: str
    records: list[Record]
    then: Callable[[int], None]
    otherwise: Callable[[ErrorCode, int], None]


@dataclass(slots=True)
class Effects:
    replies: list[tuple[object, Any]] = field(default_factory=list)
    """Tickets with their responses."""
    appends: list[Append] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
