"""KIP-814: a static leader that restarts has to skip the assignment, and gets the list of the members. From then on
it watches the topics of all of them, not only those that it reads itself."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.wire.apis.describe_groups import (
    DESCRIBE_GROUPS,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from holdfast.wire.apis.join_group import JOIN_GROUP, JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from holdfast.wire.apis.offset_fetch import OFFSET_FETCH
from holdfast.wire.apis.sync_group import SYNC_GROUP, SyncGroupRequest, SyncGroupResponse
from holdfast.wire.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    encode_assignment,
    encode_subscription,
)
from tests.unit.client.scripted import ScriptedServer
from tests.unit.client.scripted_group import Group
from tests.unit.client.test_member_extensions import ME, TOPIC, consumer_of, offsets, poll_until

THEIRS, NOBODYS = "only-the-follower-reads-it", "nobody-reads-it"
FOLLOWER = "follower"
STATIC: dict[str, Any] = {"group.instance.id": "me-1"}


def both_of(topic: str) -> bytes:
    return encode_assignment(Assignment([TopicPartitions(topic, [0, 1])]))


class Returned:
    """The coordinator of two members with a topic each, whose leader comes back. Its second join is a rebalance."""

    def __init__(self) -> None:
        self.generation = 0
        self.assignments = {ME: both_of(TOPIC), FOLLOWER: both_of(THEIRS)}
        self.group = Group(
            (JOIN_GROUP, self._join),
            (SYNC_GROUP, self._sync),
            (DESCRIBE_GROUPS, self._describe),
            (OFFSET_FETCH, offsets),
            holdfast=False,
        )
        self.group.partitions = {TOPIC: 2, THEIRS: 2, NOBODYS: 2}

    def _join(self, request: JoinGroupRequest) -> JoinGroupResponse:
        self.generation += 1
        protocol = request.protocols[0]
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_name=protocol.name,
            leader=ME,
            member_id=ME,
            skip_assignment=self.generation == 1,
            members=[
                JoinGroupResponseMember(ME, "me-1", protocol.metadata),
                JoinGroupResponseMember(FOLLOWER, "follower-1", encode_subscription(Subscription([THEIRS]))),
            ],
        )

    def _sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        self.assignments |= {one.member_id: one.assignment for one in request.assignments}
        return SyncGroupResponse(assignment=self.assignments[ME])

    def _describe(self, _request: Any) -> DescribeGroupsResponse:
        members = [DescribedGroupMember(name, None, "c", "/h", b"", given) for name, given in self.assignments.items()]
        return DescribeGroupsResponse(
            groups=[DescribedGroup(group_id="g", group_state="Stable", protocol_type="consumer", members=members)]
        )


@pytest.mark.parametrize("grows", [THEIRS, TOPIC], ids=["the follower's topic", "its own"])
def test_a_restarted_leader_watches_the_topics_of_all(grows: str) -> None:
    coordinator = Returned()
    with (
        ScriptedServer(coordinator.group) as server,
        consumer_of(server, **STATIC) as (leader, callbacks),
    ):
        poll_until(leader, lambda: callbacks.calls == [("assigned", [0, 1])], "its assignment again")
        poll_until(leader, lambda: coordinator.group.messages(DESCRIBE_GROUPS), "the look whether all is assigned")
        assert len(coordinator.group.messages(JOIN_GROUP)) == 1

        coordinator.group.partitions[grows] = 4
        poll_until(leader, lambda: coordinator.group.messages(SYNC_GROUP)[1:], "the rebalance")

        _, again = coordinator.group.messages(SYNC_GROUP)
        assert {one.member_id for one in again.assignments} == {ME, FOLLOWER}


def test_control_a_topic_without_subscribers_is_not_watched() -> None:
    coordinator = Returned()
    with (
        ScriptedServer(coordinator.group) as server,
        consumer_of(server, **STATIC) as (leader, callbacks),
    ):
        poll_until(leader, lambda: callbacks.calls == [("assigned", [0, 1])], "its assignment again")

        coordinator.group.partitions[NOBODYS] = 4
        seen = coordinator.group.metadata_requests
        poll_until(leader, lambda: coordinator.group.metadata_requests > seen + 2, "it has looked at the topics")

        assert len(coordinator.group.messages(JOIN_GROUP)) == 1


def test_what_grew_while_the_leader_was_away_is_seen_when_it_is_back() -> None:
    coordinator = Returned()
    coordinator.group.partitions[THEIRS] = 4
    with (
        ScriptedServer(coordinator.group) as server,
        consumer_of(server, **STATIC) as (leader, _),
    ):
        poll_until(leader, lambda: coordinator.group.messages(SYNC_GROUP)[1:], "the rebalance")

        assert "have no owner" in coordinator.group.messages(JOIN_GROUP)[1].reason
