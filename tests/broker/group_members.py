"""Members of groups that say exactly what a test wants said, each on a connection of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.coordinator.events.group_event import LEDGER_TOPIC
from holdfast.wire.apis.delete_groups import DeleteGroupsRequest
from holdfast.wire.apis.describe_groups import DescribedGroup, DescribeGroupsRequest
from holdfast.wire.apis.heartbeat import HeartbeatRequest
from holdfast.wire.apis.join_group import (
    JOIN_GROUP,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from holdfast.wire.apis.join_groups import JoinGroupsMember
from holdfast.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from holdfast.wire.apis.list_groups import ListGroupsRequest
from holdfast.wire.apis.metadata import MetadataRequest
from holdfast.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from holdfast.wire.apis.sync_group import (
    SYNC_GROUP,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from holdfast.wire.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    encode_assignment,
    encode_subscription,
)
from tests.broker.wire_client import WireClient
from tests.support.eventually import eventually

JOIN_VERSION = 9
SYNC_VERSION = 5
HEARTBEAT_VERSION = 4
LEAVE_VERSION = 5
COMMIT_VERSION = 9
FETCH_VERSION = 9
MEMBER_ID_REQUIRED = 79
SESSION_MS = 30_000

RANGE = (("range", encode_subscription(Subscription(["orders"]))),)
"""One protocol only: a coordinator that was restarted knows no other, and would see a change."""

Protocols = Sequence[tuple[str, bytes]]


def partitions(*indexes: int) -> bytes:
    """An assignment of these partitions of `orders`."""
    return encode_assignment(Assignment([TopicPartitions("orders", list(indexes))]))


def batch_entry(instance_id: str | None, member_id: str = "") -> JoinGroupsMember:
    """Of a JoinGroups request."""
    return JoinGroupsMember(member_id, instance_id, [JoinGroupRequestProtocol(name, said) for name, said in RANGE])


class WireMember(WireClient):
    """A connection, and what its owner remembers of its membership."""

    def __init__(
        self,
        address: tuple[str, int],
        group: str,
        instance_id: str | None = None,
        member_id: str = "",
        generation: int = -1,
    ) -> None:
        super().__init__(address)
        self.group = group
        self.instance_id = instance_id
        self.member_id = member_id
        self.generation = generation
        self.leader = ""

    def again(self, address: tuple[str, int]) -> WireMember:
        """The same member on a new connection, as after the end of a broker."""
        return WireMember(address, self.group, self.instance_id, self.member_id, self.generation)

    # -- joining -------------------------------------------------------------------------------------------------------

    def join_request(self, protocols: Protocols = RANGE, **fields: object) -> JoinGroupRequest:
        asked = {
            "group_id": self.group,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": SESSION_MS,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name, metadata) for name, metadata in protocols],
        }
        return JoinGroupRequest(**{**asked, **fields})  # type: ignore[arg-type]  # whatever the test wants said

    def take_id(self, version: int = JOIN_VERSION) -> None:
        """KIP-394: the id that a dynamic member must come back with."""
        answer = self.ask(self.join_request(), version)
        assert answer.error_code == MEMBER_ID_REQUIRED, answer
        self.member_id = answer.member_id

    def send_join(self, protocols: Protocols = RANGE, version: int = JOIN_VERSION) -> None:
        self.send(self.join_request(protocols), version)

    def joined(self, version: int = JOIN_VERSION) -> JoinGroupResponse:
        """The answer to a join that was sent; good or not."""
        answer: JoinGroupResponse = self.receive(JOIN_GROUP, version)[1]
        if answer.error_code == 0:
            self.member_id, self.generation, self.leader = answer.member_id, answer.generation_id, answer.leader
        return answer

    def join(self, protocols: Protocols = RANGE, version: int = JOIN_VERSION) -> JoinGroupResponse:
        """Joins, with the detour for an id if there must be one."""
        if not self.member_id and self.instance_id is None and version >= 4:
            self.take_id(version)
        self.send_join(protocols, version)
        answer = self.joined(version)
        assert answer.error_code == 0, answer
        return answer

    # -- what members do -----------------------------------------------------------------------------------------------

    def send_sync(self, assignments: Mapping[str, bytes] | None = None) -> None:
        given = [SyncGroupRequestAssignment(member, data) for member, data in (assignments or {}).items()]
        self.send(
            SyncGroupRequest(self.group, self.generation, self.member_id, self.instance_id, "consumer", "range", given),
            SYNC_VERSION,
        )

    def synced(self) -> SyncGroupResponse:
        answer: SyncGroupResponse = self.receive(SYNC_GROUP, SYNC_VERSION)[1]
        return answer

    def sync(self, assignments: Mapping[str, bytes] | None = None) -> SyncGroupResponse:
        self.send_sync(assignments)
        return self.synced()

    def heartbeat(self) -> int:
        asked = HeartbeatRequest(self.group, self.generation, self.member_id, self.instance_id)
        return int(self.ask(asked, HEARTBEAT_VERSION).error_code)

    def leave(self, *entries: MemberIdentity) -> LeaveGroupResponse:
        """Leaves, or takes others out."""
        wanted = entries or (MemberIdentity(self.member_id, self.instance_id),)
        answer: LeaveGroupResponse = self.ask(LeaveGroupRequest(self.group, members=list(wanted)), LEAVE_VERSION)
        return answer

    def commit(self, offset: int, metadata: str = "", partition: int = 0, topic: str = "orders") -> int:
        position = OffsetCommitRequestPartition(partition, offset, committed_metadata=metadata)
        asked = OffsetCommitRequest(
            self.group,
            self.generation,
            self.member_id,
            self.instance_id,
            topics=[OffsetCommitRequestTopic(topic, partitions=[position])],
        )
        return int(self.ask(asked, COMMIT_VERSION).topics[0].partitions[0].error_code)


# -- what others do ----------------------------------------------------------------------------------------------------


def committed(client: WireClient, group: str) -> dict[tuple[str, int], int]:
    (answer,) = client.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None)]), 9).groups
    assert answer.error_code == 0, answer
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in answer.topics
        for partition in topic.partitions
    }


def described(client: WireClient, group: str) -> DescribedGroup:
    (answer,) = client.ask(DescribeGroupsRequest([group]), 5).groups
    found: DescribedGroup = answer
    return found


def delete_group(client: WireClient, group: str) -> int:
    return int(client.ask(DeleteGroupsRequest([group]), 2).results[0].error_code)


def wait_for_state(client: WireClient, group: str, state: str) -> None:
    eventually(lambda: described(client, group).group_state == state, f"{group} is {state}")


def wait_until_loaded(client: WireClient) -> None:
    eventually(lambda: client.ask(ListGroupsRequest(), 4).error_code == 0, "all groups are loaded")


def wait_for_ledger(client: WireClient) -> None:
    """The ledger is made beside the first group, in its own time."""

    def is_there() -> bool:
        return any(topic.name == LEDGER_TOPIC for topic in client.ask(MetadataRequest(None), 9).topics)

    eventually(is_there, "the ledger has its topic")


def form(*members: WireMember) -> None:
    """All of them in one generation that awaits its assignment; the first to be there leads.

    The initial delay must be 0: then the first member alone is a generation, and waits in the next for the others.
    """
    first = members[0]
    first.join()
    for count, newcomer in enumerate(members[1:], start=1):
        if newcomer.instance_id is None:
            newcomer.take_id()
        newcomer.send_join()
        for member in members[:count]:
            wait_for_state(member, first.group, "PreparingRebalance")
            member.send_join()
        for member in members[: count + 1]:
            assert member.joined().error_code == 0
    assert {member.generation for member in members} == {first.generation}


def assign_evenly(*members: WireMember) -> None:
    """The first, who leads, gives each member the partition of its number, and all get theirs."""
    plan = {member.member_id: partitions(number) for number, member in enumerate(members)}
    for member in members:
        member.send_sync(plan if member is members[0] else None)
    for member in members:
        answer = member.synced()
        assert (answer.error_code, answer.assignment) == (0, plan[member.member_id])
