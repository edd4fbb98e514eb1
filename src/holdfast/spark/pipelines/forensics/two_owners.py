"""Two processes that had one seat at once: the old one was heard of after the new one had taken it.

A commit does not say who made it, so that is all that the ledger shows of overlaps in time; what the assignments show
is found in `ownership`. A process that was expired and works on, without asking the broker, leaves no trace at all.
"""

from __future__ import annotations

from holdfast.coordinator.ledger import EventKind
from holdfast.spark.pipelines.forensics.facts import Event
from holdfast.spark.pipelines.forensics.ownership import Emit, Ownership


class TwoOwners:
    def __init__(self, ownership: Ownership, emit: Emit) -> None:
        self._ownership = ownership
        self._emit = emit
        self._taken_ms: dict[str, int] = {}
        """When a seat was last taken again, by instance id."""

    def on_event(self, event: Event) -> None:
        instance_id, member_id = event.text("instance_id"), event.text("member_id")
        if instance_id is None or member_id is None:
            return
        if event.kind == EventKind.STATIC_REJOINED:
            self._taken_ms[instance_id] = event.at_ms
        elif event.kind == EventKind.FENCED:
            self._fenced(event, instance_id, member_id)
        elif event.kind in (EventKind.MEMBER_LEFT, EventKind.SESSION_EXPIRED, EventKind.DROPPED):
            self._taken_ms.pop(instance_id, None)

    def _fenced(self, event: Event, instance_id: str, member_id: str) -> None:
        from_ms = self._taken_ms.get(instance_id, event.at_ms)
        for topic, partition in self._ownership.held_by(instance_id):
            self._emit(
                "two_owners",
                {
                    "topic": topic,
                    "partition": partition,
                    "member": instance_id,
                    "other": f"{instance_id} (as {member_id}, on {event.text('client_host') or '?'})",
                    "from_ms": from_ms,
                    "to_ms": event.at_ms,
                    "evidence": "fenced: it was still there when its seat was another's",
                },
            )
