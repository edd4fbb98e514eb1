"""A member on the server_pair (see `recorder`): it joins, syncs, beats, commits and leaves, rightly or wrongly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.wire.apis.heartbeat import HeartbeatRequest
from holdfast.wire.apis.join_group import JOIN_GROUP, JoinGroupRequest, JoinGroupRequestProtocol
from holdfast.wire.apis.leave_group import LeaveGroupRequest, MemberIdentity
from holdfast.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.wire.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from holdfast.wire.message import Api
from tests.conformance.recorder import Connection, Recorder
from tests.conformance.versions import NAMES_PROTOCOL, Row

Protocols = Sequence[tuple[str, bytes]]

BOTH: Protocols = (("range", b"\x01"), ("roundrobin", b"\x02"))
RANGE: Protocols = BOTH[:1]
ROUND_ROBIN: Protocols = BOTH[1:]
SESSION_MS = 3000
REBALANCE_MS = 1500
OPENING_S = 10.0
"""How long the answers of an opening may take, which is not yet the run."""


class Member(Connection):
    def __init__(
        self,
        recorder: Recorder,
        name: str,
        instance_id: str | None = None,
        *,
        protocols: Protocols = RANGE,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        client_id: str = "cid",
        row: Row | None = None,
    ) -> None:
        super().__init__(recorder, name, client_id, row)
        recorder.enter(self)
        self.instance_id = instance_id
        self.protocols = protocols
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.member_id = ""
        self.generation = -1
        self.protocol: str | None = None

    @property
    def group(self) -> str:
        return self.recorder.group

    # -- JoinGroup -----------------------------------------------------------------------------------------------------

    def sends_join(self, **said: Any) -> None:
        """A dynamic newcomer takes the detour for its id where its version has one."""
        if self.row.hands_out_ids and self.instance_id is None and not said.get("member_id", self.member_id):
            self.takes_id()
        self.sends_join_request(**said)

    def takes_id(self) -> None:
        """KIP-394: the answer has the id to come back with."""
        self.sends_join_request()
        self.receives()

    def sends_join_request(self, **said: Any) -> None:
        """Exactly this request, no detour."""
        protocols: Protocols = said.pop("protocols", self.protocols)
        asked: dict[str, Any] = {
            "group_id": self.group,
            "session_timeout_ms": self.session_ms,
            "rebalance_timeout_ms": self.rebalance_ms,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name, metadata) for name, metadata in protocols],
        }
        self.sends(JoinGroupRequest(**(asked | said)))

    def joins(self, **said: Any) -> Any:
        self.sends_join(**said)
        return self.receives()

    def _learn(self, api: Api, answer: Any) -> None:
        if api is not JOIN_GROUP:
            return
        self.recorder.transcript.name_member(answer.member_id, self.name, self.instance_id or self.client_id)
        if answer.error_code in (0, 79):
            self.member_id = answer.member_id
        if answer.error_code == 0:
            self.generation, self.protocol = answer.generation_id, answer.protocol_name

    # -- the others ----------------------------------------------------------------------------------------------------

    def sends_sync(self, plan: Mapping[Member, bytes] | None = None, **said: Any) -> None:
        asked: dict[str, Any] = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": "consumer" if self.row.number >= NAMES_PROTOCOL else None,
            "protocol_name": self.protocol if self.row.number >= NAMES_PROTOCOL else None,
            "assignments": [SyncGroupRequestAssignment(to.member_id, what) for to, what in (plan or {}).items()],
        }
        self.sends(SyncGroupRequest(**(asked | said)))

    def syncs(self, plan: Mapping[Member, bytes] | None = None, **said: Any) -> Any:
        self.sends_sync(plan, **said)
        return self.receives()

    def beats(self, **said: Any) -> Any:
        asked: dict[str, Any] = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
        }
        return self.requests(HeartbeatRequest(**(asked | said)))

    def leaves(self, *entries: MemberIdentity, **said: Any) -> Any:
        """Leaves, or takes others out; before row 5 a request names one member only."""
        if not self.row.is_static:
            return self.requests(LeaveGroupRequest(**({"group_id": self.group, "member_id": self.member_id} | said)))
        wanted = list(entries) or [MemberIdentity(said.pop("member_id", self.member_id), self.instance_id)]
        return self.requests(LeaveGroupRequest(**({"group_id": self.group, "members": wanted} | said)))

    def commits(
        self, offset: int = 7, *topics: str, epoch: int = -1, metadata: str | None = "", partition: int = 0, **said: Any
    ) -> Any:
        """This offset for one partition of the topics, `orders` if none is named."""
        where = OffsetCommitRequestPartition(partition, offset, epoch, committed_metadata=metadata)
        asked: dict[str, Any] = {
            "group_id": self.group,
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "topics": [self._commit_topic(name, where) for name in topics or ("orders",)],
        }
        return self.requests(OffsetCommitRequest(**(asked | said)))

    def _commit_topic(self, name: str, where: OffsetCommitRequestPartition) -> OffsetCommitRequestTopic:
        by_id = self.version_of(OFFSET_COMMIT) >= 10
        return OffsetCommitRequestTopic(
            "" if by_id else name, self.recorder.server.topics[name] if by_id else bytes(16), [where]
        )


# -- openings that many scenarios share --------------------------------------------------------------------------------


def stable(recorder: Recorder, *members: Member) -> None:
    """All members in one generation, the first leading, each with its own byte as its assignment."""
    joined(recorder, *members)
    plan = {member: bytes([number]) for number, member in enumerate(members, start=1)}
    for member in members:
        member.sends_sync(plan if member is members[0] else None)
    for member in members:
        member.receives(within_s=OPENING_S)


def joined(recorder: Recorder, *members: Member) -> None:
    """All members in one generation that awaits its assignment; the first, who came first, leads."""
    for member in members:
        if member.row.hands_out_ids and member.instance_id is None and not member.member_id:
            member.takes_id()  # before the initial delay runs
    for count, member in enumerate(members, start=1):
        member.sends_join()
        recorder.awaits_members(count)
    for member in members:
        member.receives(within_s=OPENING_S)


def pair(recorder: Recorder, **fields: Any) -> tuple[Member, Member]:
    """Two static members, stable: L, who leads, has 01 and F has 02."""
    leader = Member(recorder, "L", "L", **({"protocols": BOTH} | fields))
    follower = Member(recorder, "F", "F", **({"protocols": BOTH} | fields))
    stable(recorder, leader, follower)
    return leader, follower
