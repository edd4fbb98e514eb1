"""What happened in a group and why: one event for every rebalance, replacement, fencing, expiry and failure.

Events are told after the journal has the facts and outside of any acknowledgement; they go to the topic
`__group_ledger` as JSON.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

LEDGER_TOPIC: Final = "__group_ledger"
LONGEST_TEXT: Final = 1_000
"""In characters. Ids and reasons come from clients and may be of 32 kB each; the ledger is read by people."""


MOST_IDS: Final = 100
"""Told in one event."""


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
    SEATED = "member seated"
    CALLED = "member called"
    TOOK_OVER = "standby took over"
    RESYNCED = "resynced"
    ASSIGNMENT_FAILED = "assignment failed"
    CONFIGURED = "group configured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    kind: EventKind
    group_id: str
    at_ms: int
    generation: int
    """The group's generation after the event."""
    epoch: int
    """The assignment epoch after the event."""
    cause: str = ""
    """Why it happened, in words."""
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
    """Whose place the member took."""
    instance_ids: list[str] | None = None
    """The announced members that it is about."""
    stood_still_ms: int | None = None
    """How long the group had no valid assignment."""
    moved_partitions: int | None = None
    """How many partitions a member that is still there had to give up; for protocol type `consumer` only."""
    changed_owner: int | None = None
    """How many partitions have another owner than before: those, and what others took over of members that went."""

    def to_json(self) -> bytes:
        fields = {name: _shortened(value) for name, value in asdict(self).items() if value is not None}
        return json.dumps(fields, separators=(",", ":")).encode()


def _shortened(value: object) -> object:
    if isinstance(value, list):
        return [_shortened(one) for one in value[:MOST_IDS]]
    return f"{value[:LONGEST_TEXT]}…" if isinstance(value, str) and len(value) > LONGEST_TEXT else value
