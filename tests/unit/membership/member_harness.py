"""A member in a harness: the test gets its requests, writes the responses and moves its clock."""

from __future__ import annotations

from typing import Any, TypeVar

from holdfast.membership import Membership, MembershipSettings
from holdfast.membership.effects import (
    Channel,
    CloseChannels,
    ConnectCoordinator,
    Effect,
    JoinComplete,
    JoinPrepare,
    SendRequest,
)
from holdfast.membership.generation import Generation
from holdfast.membership.phases import Phase
from holdfast.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorResponse, FoundCoordinator
from holdfast.wire.apis.heartbeat import HEARTBEAT, HeartbeatResponse
from holdfast.wire.apis.join_group import JOIN_GROUP, JoinGroupResponse, JoinGroupResponseMember
from holdfast.wire.apis.leave_group import LEAVE_GROUP
from holdfast.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from holdfast.wire.apis.sync_group import SYNC_GROUP, SyncGroupResponse
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.message import Api

E = TypeVar("E")

GROUP = "orders"
MINE = "member-1"
PROTOCOLS = [("range", b"\x00\x03topics")]
JOIN_VERSIONS = (0, 9)


class MemberHarness:
    def __init__(self, *, extensions: bool = False, **settings: Any) -> None:
        """`extensions`: the coordinator is a Holdfast, and says so."""
        self.now = 1_000
        self.extensions = extensions
        self.member = Membership(MembershipSettings(GROUP, "consumer", **settings))
        self.sent: list[SendRequest] = []
        """Requests that wait for an answer."""
        self.history: list[str] = []
        """Every request that went out, by the name of its API."""
        self.events: list[Effect] = []

    # -- the clock and the wire ----------------------------------------------------------------------------------------

    def perform(self) -> None:
        while effects := self.member.take_effects():
            for effect in effects:
                match effect:
                    case SendRequest():
                        self.sent.append(effect)
                        self.history.append(effect.api.name)
                    case CloseChannels(channels):
                        self.disconnect(*channels)
                    case _:
                        self.events.append(effect)

    def pass_time(self, ms: int) -> None:
        """In the steps in which the member itself wants to be woken."""
        end = self.now + ms
        while (wake := self.member.wake_at(self.now)) <= end and wake > self.now:
            self.now = wake
            self.tick()
        self.now = end
        self.tick()

    def tick(self) -> None:
        self.member.tick(self.now)
        self.perform()

    def disconnect(self, *channels: Channel) -> None:
        """The connections of these channels end."""
        broken = [send for send in self.sent if send.channel in channels]
        self.sent = [send for send in self.sent if send.channel not in channels]
        for send in broken:
            self.member.request_failed(send.request_id, self.now)
        self.perform()

    def pending(self, api: Api) -> SendRequest | None:
        return next((send for send in self.sent if send.api is api), None)

    def request(self, api: Api, version: int | None = None) -> Any:
        """The message that waits for an answer."""
        send = self.pending(api)
        assert send is not None, f"no {api.name} is outstanding, but {[one.api.name for one in self.sent]}"
        return send.build(send.max_version if version is None else version)

    def answer(self, api: Api, response: Any) -> None:
        send = self.pending(api)
        assert send is not None, f"no {api.name} is outstanding, but {[one.api.name for one in self.sent]}"
        self.sent.remove(send)
        self.member.response_received(send.request_id, response, self.now)
        self.perform()

    def event(self, kind: type[E]) -> E:
        """The oldest event that was not looked at yet; it must be of this kind."""
        assert self.events, f"no event, where a {kind.__name__} was expected"
        event = self.events.pop(0)
        assert isinstance(event, kind), f"{event}, where a {kind.__name__} was expected"
        return event

    @property
    def phase(self) -> Phase:
        """A property, so that a type checker does not remember the last value."""
        return self.member.phase

    # -- the usual way -------------------------------------------------------------------------------------------------

    def do(self, what: str, *args: Any, **kwargs: Any) -> Any:
        result = getattr(self.member, what)(*args, **kwargs)
        self.perform()
        return result

    def find_coordinator(self, join_versions: tuple[int, int] = JOIN_VERSIONS) -> None:
        self.answer(FIND_COORDINATOR, coordinator_at())
        self.event(ConnectCoordinator)
        self.do("coordinator_connected", join_versions, self.now, has_extensions=self.extensions)

    def start(self) -> None:
        """Up to the first JoinGroup."""
        self.do("join", self.now)
        number = self.event(JoinPrepare).attempt
        self.do("join_prepared", number, PROTOCOLS, self.now)
        self.tick()
        self.find_coordinator()

    def prepare(self, *, lost: bool = False) -> None:
        event = self.event(JoinPrepare)
        assert event.lost is lost
        self.do("join_prepared", event.attempt, PROTOCOLS, self.now)

    def follow(self, generation: int = 1, member_id: str = MINE) -> None:
        """JoinGroup and SyncGroup succeed, as a follower."""
        self.answer(JOIN_GROUP, joined(generation, member_id, leader="somebody-else"))
        self.answer(SYNC_GROUP, SyncGroupResponse(assignment=b"\x00\x01"))
        assert self.event(JoinComplete).generation_id == generation

    def stable(self, generation: int = 1, member_id: str = MINE) -> None:
        self.start()
        self.follow(generation, member_id)

    def heartbeat(self, code: ErrorCode = ErrorCode.NONE) -> None:
        """The next heartbeat is due, sent, and answered with this."""
        if self.pending(HEARTBEAT) is None:
            self.pass_time(self.member.settings.heartbeat_interval_ms)
        self.answer(HEARTBEAT, HeartbeatResponse(error_code=code))

    def sent_since(self, mark: int) -> list[str]:
        return self.history[mark:]


def coordinator_at(node_id: int = 7, code: ErrorCode = ErrorCode.NONE) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(coordinators=[FoundCoordinator(GROUP, node_id, "broker", 9092, code, None)])


def joined(
    generation: int,
    member_id: str = MINE,
    *,
    leader: str = MINE,
    members: list[JoinGroupResponseMember] | None = None,
    skip: bool = False,
    protocol: str = "range",
    protocol_type: str | None = "consumer",
) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=generation,
        protocol_type=protocol_type,
        protocol_name=protocol,
        leader=leader,
        skip_assignment=skip,
        member_id=member_id,
        members=members or [],
    )


def refused(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, protocol_name=None, leader="", member_id=member_id, members=[])


def commit_answer(code: ErrorCode = ErrorCode.NONE, topic: str = "t", partition: int = 0) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[OffsetCommitResponseTopic(name=topic, partitions=[OffsetCommitResponsePartition(partition, code)])]
    )


__all__ = [
    "FIND_COORDINATOR",
    "GROUP",
    "HEARTBEAT",
    "JOIN_GROUP",
    "LEAVE_GROUP",
    "MINE",
    "OFFSET_COMMIT",
    "PROTOCOLS",
    "SYNC_GROUP",
    "Generation",
    "MemberHarness",
    "commit_answer",
    "coordinator_at",
    "joined",
    "refused",
]
