"""The requests of a member that have no response yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from holdfast.membership.generation import Generation
from holdfast.membership.phases import Phase
from holdfast.wire.apis.find_coordinator import FIND_COORDINATOR
from holdfast.wire.apis.heartbeat import HEARTBEAT
from holdfast.wire.apis.join_group import JOIN_GROUP
from holdfast.wire.apis.leave_group import LEAVE_GROUP
from holdfast.wire.apis.offset_commit import OFFSET_COMMIT
from holdfast.wire.apis.sync_group import SYNC_GROUP
from holdfast.wire.message import Api


class RequestKind(Enum):
    """At most one request of each kind is in flight."""

    FIND_COORDINATOR = "find coordinator", FIND_COORDINATOR
    JOIN = "join", JOIN_GROUP
    SYNC = "sync", SYNC_GROUP
    RESYNC = "resync", SYNC_GROUP
    HEARTBEAT = "heartbeat", HEARTBEAT
    COMMIT = "commit", OFFSET_COMMIT
    LEAVE = "leave", LEAVE_GROUP

    def __init__(self, _name: str, api: Api) -> None:
        self.api = api


@dataclass(frozen=True, slots=True)
class Sent:
    request_id: int
    kind: RequestKind
    generation: Generation
    """The member's generation when it was sent."""
    phase: Phase
    """The member's phase when it was sent."""


@dataclass(slots=True)
class InFlight:
    _sent: dict[RequestKind, Sent] = field(default_factory=dict)
    _last_id: int = 0

    def __contains__(self, kind: RequestKind) -> bool:
        return kind in self._sent

    def add(self, kind: RequestKind, generation: Generation, phase: Phase) -> Sent:
        assert kind not in self._sent, kind
        self._last_id += 1
        sent = self._sent[kind] = Sent(self._last_id, kind, generation, phase)
        return sent

    def discard(self, kind: RequestKind) -> None:
        """Its response is no longer needed."""
        self._sent.pop(kind, None)

    def pop(self, request_id: int) -> Sent | None:
        """None if the response is no longer needed."""
        for kind, sent in self._sent.items():
            if sent.request_id == request_id:
                return self._sent.pop(kind)
        return None
