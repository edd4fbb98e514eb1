"""Two processes with the same instance id at once: the old one was fenced after the new one had joined.

A commit does not name its member, so the ledger shows only these overlaps; overlaps of assignments are found in
`ownership`. A process whose session expired and that keeps working without a request to the broker leaves no record.
"""

from __future__ import annotations

from holdfast.coordinator.events.group_event import EventKind
from holdfast.spark.pipelines.forensics.ownership import Emit, Ownership
from holdfast.spark.pipelines.forensics.records import LedgerEvent


class DoubleOwnership:
    def __init__(self, ownership: Ownership, emit: Emit) -> None:
        self._ownership = ownership
        self._emit = emit
        self._rejoined_ms: dict[str, int] = {}
        """When a static member last rejoined, by instance id."""

    def on_event(self, event: LedgerEvent) -> None:
        instance_id, member_id = event.text("instance_id"), event.text("member_id")
        if instance_id is None or member_id is None:
            return
        if event.kind == EventKind.STATIC_REJOINED:
            self._rejoined_ms[instance_id] = event.at_ms
        elif event.kind == EventKind.FENCED:
            self._on_fenced(event, instance_id, member_id)
        elif event.kind in (EventKind.MEMBER_LEFT, EventKind.SESSION_EXPIRED, EventKind.DROPPED):
            self._rejoined_ms.pop(instance_id, None)

    def _on_fenced(self, event: LedgerEvent, instance_id: str, member_id: str) -> None:
        from_ms = self._rejoined_ms.get(instance_id, event.at_ms)
        for topic, partition in self._ownership.owned_by(instance_id):
            self._emit(
                "two_owners",
                {
                    "topic": topic,
                    "partition": partition,
                    "member": instance_id,
                    "other": f"{instance_id} (as {member_id}, on {event.text('client_host') or '?'})",
                    "from_ms": from_ms,
                    "to_ms": event.at_ms,
                    "evidence": "fenced: it was still active after another process had joined with its instance id",
                },
            )
