"""A member of a group, the client behind it, and the connection it was last seen on.

All of it is volatile: after a restart it is built from what is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class Protocol(NamedTuple):
    """An assignment strategy that a member offers, with its subscription in that strategy's format."""

    name: str
    metadata: bytes


class MemberConnection:
    """A connection, with the members that were last seen on it and the ids of their groups.

    A process that ends closes its connections at once, long before its session ends; one that is only slow does not. A
    closed connection therefore says what silence cannot.
    """

    __slots__ = ("is_closed", "members")

    def __init__(self) -> None:
        self.is_closed = False
        self.members: dict[Member, str] = {}

    def closed(self) -> list[tuple[str, Member]]:
        """Marks all of its members as disconnected, and returns them with their group ids."""
        self.is_closed = True
        gone = [(group_id, member) for member, group_id in self.members.items()]
        self.members.clear()
        for _, member in gone:
            member.connection = None
            member.disconnected = True
        return gone


@dataclass(frozen=True, slots=True)
class Client:
    """The sender of a request."""

    client_id: str
    host: str
    connection: MemberConnection | None = field(default=None, compare=False, repr=False)
    """The connection over which it was sent, where that is known."""
    software: str = field(default="", compare=False, repr=False)
    """As the client named it in ApiVersions; empty if it did not."""


class PendingResponse(NamedTuple):
    """A request that is answered later. The handle is the caller's own; it comes back with the response."""

    reply_handle: object
    api_version: int
    has_tags: bool = False
    """The request has Holdfast's own tagged fields, so the response may have them."""


class Role(Enum):
    """What a member is to the current generation and to the next one."""

    NEW = "its first join is not answered yet, and may wait for longer than a session"
    CANDIDATE = "its first join was answered, with an error; it is in no generation yet"
    STANDBY = "it is in the group without an assignment and takes part in no rebalance"
    PROMOTED = "it was a standby and takes part in the rebalance that is in progress"
    ACTIVE = "it is or was in a generation, with an assignment of its own, which may be empty"


class RejoinRequest(Enum):
    """Whether one member is asked to rejoin within the generation."""

    NONE = "it is not"
    REQUESTED = "its next heartbeat is answered REBALANCE_IN_PROGRESS"
    REJOINED = "it has rejoined; its SyncGroup returns the new assignment"


@dataclass(slots=True, eq=False)
class Member:
    id: str
    instance_id: str | None
    client: Client
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    role: Role = Role.NEW
    rejoin: RejoinRequest = RejoinRequest.NONE
    process_seen_ms: int = 0
    """When its process first joined; 0 if that was before this broker started."""
    missed_join_phase: bool = False
    """A static member that did not take part in the last join phase."""
    awaiting_join: PendingResponse | None = None
    awaiting_sync_response: PendingResponse | None = None
    restored_from_log: bool = False
    """Of its protocols only the selected one is stored. Its next join brings the others."""
    notified_of_rebalance: bool = False
    """Its last heartbeat was answered REBALANCE_IN_PROGRESS, while it was a standby or is promoted."""
    join_order: int = 0
    """Higher for a member that joined later."""
    connection: MemberConnection | None = field(default=None, repr=False)
    """The connection it was last seen on."""
    disconnected: bool = False
    """That connection is closed, and the member was not seen since."""

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    def metadata_for(self, protocol_name: str | None) -> bytes:
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        return b""

    def first_join_answered(self) -> None:
        """From now on its session counts, and a join that is awaited keeps it alive."""
        if self.role is Role.NEW:
            self.role = Role.CANDIDATE

    def seen_on(self, connection: MemberConnection | None, group_id: str) -> None:
        self.leave_connection()
        self.connection = connection
        self.disconnected = False
        if connection is not None:
            connection.members[self] = group_id

    def leave_connection(self) -> None:
        if self.connection is not None:
            self.connection.members.pop(self, None)
            self.connection = None
