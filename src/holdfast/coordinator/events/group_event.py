"""What happened in a group and why: one event for every rebalance, replacement, fencing, expiry and failure.

The driver writes them to the topic `__group_ledger` as JSON. No response waits for that.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final

from holdfast.coordinator.events.causes import Cause

LEDGER_TOPIC: Final = "__group_ledger"
MAX_TEXT_LENGTH: Final = 1_000
"""In characters. Ids and reasons come from clients and may have 32 kB each; the ledger is read by people."""
MAX_IDS: Final = 100
"""In one event."""


class EventKind(StrEnum):
    REBALANCE_STARTED = "rebalance started"
    GENERATION_FORMED = "generation formed"
    ASSIGNED = "assigned"
    BECAME_EMPTY = "became empty"
    STATIC_REJOINED = "static member rejoined"
    FENCED = "fenced"
    MEMBER_LEFT = "member left"
    SESSION_EXPIRED = "session expired"
    DROPPED = "member dropped"
    DELETED = "group deleted"
    STORE_FAILED = "store failed"
    REGISTERED = "members registered"
    REGISTRATION_CANCELLED = "registration cancelled"
    REGISTRATION_EXPIRED = "registration expired"
    STANDBY_ADDED = "standby added"
    REJOIN_REQUESTED = "rejoin requested"
    TOOK_OVER = "standby took over"
    RESYNCED = "resynced"
    ASSIGNMENT_FAILED = "assignment failed"
    CONFIGURED = "group configured"
    NAME_CONFLICT = "name used in Kafka"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEvent:
    kind: EventKind
    group_id: str
    at_ms: int
    generation: int
    """The group's generation after the event."""
    epoch: int
    """The assignment epoch after the event."""
    cause: Cause
    member_id: str | None = None
    """The member behind it."""
    instance_id: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    reason: str | None = None
    """The client's own reason (KIP-800)."""
    members: int | None = None
    previous_generation: int | None = None
    previous_epoch: int | None = None
    """Where ownership changed: the assignment epoch of the owners before."""
    previous_member_id: str | None = None
    """The member whose assignment it took over."""
    instance_ids: list[str] | None = None
    """The registered members that it is about."""
    unassigned_ms: int | None = None
    """How long the group had no valid assignment."""
    moved_partitions: int | None = None
    """How many partitions a member that is still there had to give up; for protocol type `consumer` only."""
    changed_owner: int | None = None
    """How many partitions have another owner: those, and the partitions of removed members that others took over."""

    def to_json(self) -> bytes:
        """`cause` is the sentence for people, `cause_code` and what follows it are for programs."""
        values: dict[str, object] = {}
        for name in _FIELDS:
            if name == "cause":
                values["cause"] = self.cause.sentence
                values.update((f"cause_{part}", getattr(self.cause, part)) for part in _CAUSE_FIELDS)
            else:
                values[name] = getattr(self, name)
        shown = {name: _shortened(value) for name, value in values.items() if value is not None}
        return json.dumps(shown, separators=(",", ":")).encode()


_FIELDS: Final = tuple(field.name for field in fields(GroupEvent))
_CAUSE_FIELDS: Final = tuple(field.name for field in fields(Cause))


def _shortened(value: object) -> object:
    if isinstance(value, list):
        return [_shortened(one) for one in value[:MAX_IDS]]
    return f"{value[:MAX_TEXT_LENGTH]}…" if isinstance(value, str) and len(value) > MAX_TEXT_LENGTH else value
