"""What one who is let in may do: each refusal beside the same request by one who may."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast.broker.authorization.acls import Operation
from holdfast.wire.apis.add_members_to_group import AddMembersToGroupRequest
from holdfast.wire.apis.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from holdfast.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from holdfast.wire.apis.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialDeletion
from holdfast.wire.apis.cancel_registration import CancelRegistrationRequest
from holdfast.wire.apis.create_acls import AclCreation, CreateAclsRequest
from holdfast.wire.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from holdfast.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest
from holdfast.wire.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from holdfast.wire.apis.delete_groups import DeleteGroupsRequest
from holdfast.wire.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from holdfast.wire.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from holdfast.wire.apis.describe_acls import DescribeAclsRequest
from holdfast.wire.apis.describe_cluster import DescribeClusterRequest
from holdfast.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from holdfast.wire.apis.describe_groups import DescribeGroupsRequest
from holdfast.wire.apis.describe_log_dirs import DescribeLogDirsRequest
from holdfast.wire.apis.describe_producers import DescribeProducersRequest
from holdfast.wire.apis.describe_producers import TopicRequest as ProducersOf
from holdfast.wire.apis.describe_quorum import DescribeQuorumPartition, DescribeQuorumRequest, DescribeQuorumTopic
from holdfast.wire.apis.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from holdfast.wire.apis.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from holdfast.wire.apis.elect_leaders import ElectLeadersRequest, TopicPartitions
from holdfast.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast.wire.apis.find_coordinator import FindCoordinatorRequest
from holdfast.wire.apis.heartbeat import HeartbeatRequest
from holdfast.wire.apis.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from holdfast.wire.apis.init_producer_id import InitProducerIdRequest
from holdfast.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from holdfast.wire.apis.join_groups import JoinGroupsMember, JoinGroupsRequest
from holdfast.wire.apis.leave_group import LeaveGroupRequest, MemberIdentity
from holdfast.wire.apis.list_config_resources import ListConfigResourcesRequest
from holdfast.wire.apis.list_groups import ListGroupsRequest
from holdfast.wire.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from holdfast.wire.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from holdfast.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from holdfast.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.wire.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from holdfast.wire.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchRequestTopic,
)
from holdfast.wire.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from holdfast.wire.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast.wire.apis.sync_group import SyncGroupRequest
from holdfast.wire.apis.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker.secured_broker import PASSWORDS, SecuredBroker, authenticate, user_acl
from tests.broker.wire_client import WireClient, batch, fetch_request, produce_request

TOPIC_REFUSED, GROUP_REFUSED, CLUSTER_REFUSED, UNKNOWN_TOPIC_ID = 29, 30, 31, 100
UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC, INVALID_UPDATE_VERSION = 3, 17, 95
MINE, HERS = "mine-1", "hers"
"""Topics and groups: alice may do everything to what begins with `mine`; `hers` is somebody else's."""


@dataclass(frozen=True)
class SecuredTopics:
    admin: WireClient
    alice: WireClient
    ids: dict[str, bytes]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredTopics]:
    broker = SecuredBroker(tmp_path_factory.mktemp("rights"))
    broker.grant(
        user_acl("alice", Operation.ALL, topic="mine", prefixed=True),
        user_acl("alice", Operation.ALL, group="mine", prefixed=True),
        user_acl("bob", Operation.READ, topic=HERS),
        user_acl("bob", Operation.READ, group=HERS),
    )
    with broker, broker.connect_as("admin") as admin, broker.connect_as("alice") as alice:
        ids = {}
        for name in (MINE, HERS):
            admin.create_topic(name, 2)
            (topic,) = admin.ask(MetadataRequest([MetadataRequestTopic(name=name)]), 12).topics
            ids[name] = topic.topic_id
            assert admin.produce(name, batch(b"one", b"two")).error_code == 0
        yield SecuredTopics(admin, alice, ids)


def both(world: SecuredTopics, request: Any, version: int) -> tuple[Any, Any]:
    """What alice is answered, and the administrator."""
    return world.alice.ask(request, version), world.admin.ask(request, version)


# -- records -----------------------------------------------------------------------------------------------------------


def test_produce(world: SecuredTopics) -> None:
    assert world.alice.produce(HERS, batch(b"x")).error_code == TOPIC_REFUSED
    assert world.alice.produce(MINE, batch(b"x")).error_code == 0
    ends = {record.value for record in world.admin.fetch_all(HERS)}
    assert ends == {b"one", b"two"}, "nothing was written"


def test_produce_to_several_topics_and_by_id_is_refused_for_each(world: SecuredTopics) -> None:
    for version in (9, 13):
        request = ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(name, world.ids[name], [PartitionProduceData(0, batch(b"x"))]) for name in (HERS, MINE)
            ],
        )
        answers = {
            (answer.name if version < 13 else answer.topic_id): answer.partition_responses[0].error_code
            for answer in world.alice.ask(request, version).responses
        }
        hers, mine = (HERS, MINE) if version < 13 else (world.ids[HERS], world.ids[MINE])
        assert answers == {hers: TOPIC_REFUSED, mine: 0}
    assert {record.value for record in world.admin.fetch_all(HERS)} == {b"one", b"two"}


def test_produce_without_an_answer_closes_the_connection(world: SecuredTopics) -> None:
    with WireClient(world.alice.socket.getpeername()) as client:
        authenticate(client, "alice", PASSWORDS["alice"], "SCRAM-SHA-256")
        client.send(produce_request(MINE, batch(b"x"), acks=0), 9)
        assert client.ask(MetadataRequest([]), 9), "the control: no answer, and no end"
        client.send(produce_request(HERS, batch(b"x"), acks=0), 9)
        assert client.is_closed_by_broker()


def test_fetch_by_name_and_by_id(world: SecuredTopics) -> None:
    for version in (12, 13):
        topics = [
            FetchTopic(name, world.ids[name], [FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)])
            for name in (HERS, MINE)
        ]
        alices, admins = both(world, FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics), version)
        found = {
            topic.topic or topic.topic_id: (topic.partitions[0].error_code, len(bytes(topic.partitions[0].records)) > 0)
            for topic in alices.responses
        }
        hers, mine = (HERS, MINE) if version < 13 else (world.ids[HERS], world.ids[MINE])
        assert found == {hers: (TOPIC_REFUSED, False), mine: (0, True)}
        assert [topic.partitions[0].error_code for topic in admins.responses] == [0, 0]


def test_a_fetch_of_what_is_not_allowed_alone_is_answered_at_once(world: SecuredTopics) -> None:
    answer = world.alice.ask(fetch_request(HERS, offset=2, max_wait_ms=600_000), 12)
    assert answer.responses[0].partitions[0].error_code == TOPIC_REFUSED


def test_list_offsets_and_leader_epochs(world: SecuredTopics) -> None:
    request = ListOffsetsRequest(
        -1, topics=[ListOffsetsTopic(n, [ListOffsetsPartition(0, -1, -1)]) for n in (HERS, MINE)]
    )
    alices, admins = both(world, request, 7)
    assert {one.name: one.partitions[0].error_code for one in alices.topics} == {HERS: TOPIC_REFUSED, MINE: 0}
    assert {one.name: one.partitions[0].error_code for one in admins.topics} == {HERS: 0, MINE: 0}
    assert [one.partitions[0].offset for one in alices.topics if one.name == HERS] == [-1]
    epochs = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(name, [OffsetForLeaderPartition(0, -1, 0)]) for name in (HERS, MINE)]
    )
    alices, admins = both(world, epochs, 4)
    assert {one.topic: one.partitions[0].error_code for one in alices.topics} == {HERS: TOPIC_REFUSED, MINE: 0}
    assert {one.topic: one.partitions[0].error_code for one in admins.topics} == {HERS: 0, MINE: 0}


def test_delete_records(world: SecuredTopics) -> None:
    request = DeleteRecordsRequest(
        [DeleteRecordsTopic(name, [DeleteRecordsPartition(0, 0)]) for name in (HERS, MINE)], 1000
    )
    alices, admins = both(world, request, 2)
    assert {one.name: one.partitions[0].error_code for one in alices.topics} == {HERS: TOPIC_REFUSED, MINE: 0}
    assert {one.name: one.partitions[0].error_code for one in admins.topics} == {HERS: 0, MINE: 0}


def test_an_id_for_a_producer_needs_some_topic_to_write_to(world: SecuredTopics) -> None:
    request = InitProducerIdRequest(None, 1000)
    alices, admins = both(world, request, 4)
    assert alices.error_code == admins.error_code == 0
    with WireClient(world.alice.socket.getpeername()) as bob:
        authenticate(bob, "bob", PASSWORDS["bob"], "PLAIN")
        assert bob.ask(request, 4).error_code == CLUSTER_REFUSED


# -- what is seen ------------------------------------------------------------------------------------------------------


def test_metadata_of_all_topics_has_those_that_may_be_seen(world: SecuredTopics) -> None:
    for version in (0, 9, 12):
        alices, admins = both(world, MetadataRequest(None if version else []), version)
        assert [topic.name for topic in alices.topics if not topic.name.startswith("mine")] == []
        assert {MINE, HERS} <= {topic.name for topic in admins.topics}
        assert MINE in {topic.name for topic in alices.topics}


def test_metadata_by_name_does_not_reveal_whether_the_topic_exists(world: SecuredTopics) -> None:
    names = [HERS, "not-there", MINE, "mine-not-there"]
    alices, admins = both(world, MetadataRequest([MetadataRequestTopic(name=name) for name in names]), 12)
    assert {topic.name: topic.error_code for topic in alices.topics} == {
        HERS: TOPIC_REFUSED,
        "not-there": TOPIC_REFUSED,
        MINE: 0,
        "mine-not-there": 3,
    }
    assert all(
        topic.topic_id == bytes(16) and not topic.partitions for topic in alices.topics if topic.error_code == 29
    )
    assert {topic.name: topic.error_code for topic in admins.topics}[HERS] == 0


def test_metadata_by_id_does_not_reveal_the_name(world: SecuredTopics) -> None:
    request = MetadataRequest([MetadataRequestTopic(topic_id=world.ids[HERS])])
    alices, admins = both(world, request, 12)
    (hidden,), (shown,) = alices.topics, admins.topics
    assert (hidden.error_code, hidden.name) == (UNKNOWN_TOPIC_ID, None)
    assert (shown.error_code, shown.name) == (0, HERS)


def test_topic_partitions_shows_what_may_be_seen(world: SecuredTopics) -> None:
    names = [HERS, "not-there", MINE, "mine-not-there"]
    alices, admins = both(world, DescribeTopicPartitionsRequest([TopicRequest(name) for name in names]), 0)
    assert {topic.name: topic.error_code for topic in alices.topics} == {
        HERS: TOPIC_REFUSED,
        "not-there": TOPIC_REFUSED,
        MINE: 0,
        "mine-not-there": 3,
    }
    assert all(
        topic.topic_id == bytes(16) and not topic.partitions for topic in alices.topics if topic.error_code == 29
    )
    assert {topic.name: topic.error_code for topic in admins.topics}[HERS] == 0
    alices, admins = both(world, DescribeTopicPartitionsRequest(), 0)
    assert HERS in {topic.name for topic in admins.topics}
    assert MINE in {topic.name for topic in alices.topics}
    assert HERS not in {topic.name for topic in alices.topics}


def test_authorized_operations_are_returned_on_request(world: SecuredTopics) -> None:
    request = MetadataRequest(
        [MetadataRequestTopic(name=MINE)],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    alices, admins = both(world, request, 9)
    assert alices.topics[0].topic_authorized_operations == admins.topics[0].topic_authorized_operations != 0
    assert (alices.cluster_authorized_operations, bool(admins.cluster_authorized_operations)) == (0, True)
    alices, admins = both(world, DescribeClusterRequest(include_cluster_authorized_operations=True), 0)
    assert (alices.cluster_authorized_operations, bool(admins.cluster_authorized_operations)) == (0, True)
    assert alices.error_code == 0 and alices.brokers, "where to connect is no secret"


# -- topics and configs ------------------------------------------------------------------------------------------------


def test_create_topics_grow_and_delete_them(world: SecuredTopics) -> None:
    def created(client: WireClient, *names: str) -> dict[str, int]:
        topics = [CreatableTopic(name, 1, 1) for name in names]
        return {one.name: one.error_code for one in client.ask(CreateTopicsRequest(topics, 1000), 7).topics}

    assert created(world.alice, "mine-2", "hers-2") == {"mine-2": 0, "hers-2": TOPIC_REFUSED}
    assert created(world.admin, "hers-2") == {"hers-2": 0}

    grow = CreatePartitionsRequest([CreatePartitionsTopic(name, 2, None) for name in ("mine-2", "hers-2")], 1000)
    assert {one.name: one.error_code for one in world.alice.ask(grow, 3).results} == {
        "mine-2": 0,
        "hers-2": TOPIC_REFUSED,
    }
    (topic,) = world.admin.ask(MetadataRequest([MetadataRequestTopic(name="hers-2")]), 12).topics
    assert len(topic.partitions) == 1, "it was not grown"

    by_id = DeleteTopicsRequest(topics=[DeleteTopicState(None, topic.topic_id)])
    (refused,) = world.alice.ask(by_id, 6).responses
    assert (refused.name, refused.error_code) == (None, TOPIC_REFUSED)
    by_name = DeleteTopicsRequest(topic_names=["mine-2", "hers-2"])
    assert {one.name: one.error_code for one in world.alice.ask(by_name, 5).responses} == {
        "mine-2": 0,
        "hers-2": TOPIC_REFUSED,
    }
    (deleted,) = world.admin.ask(by_id, 6).responses
    assert (deleted.name, deleted.error_code) == ("hers-2", 0)


TOPIC, BROKER, GROUP = 2, 4, 32
RESOURCES = [(TOPIC, MINE), (TOPIC, HERS), (BROKER, "1"), (GROUP, MINE), (GROUP, HERS)]
REFUSALS = {
    (TOPIC, MINE): 0,
    (TOPIC, HERS): TOPIC_REFUSED,
    (BROKER, "1"): CLUSTER_REFUSED,
    (GROUP, MINE): 0,
    (GROUP, HERS): GROUP_REFUSED,
}


def test_describe_configs(world: SecuredTopics) -> None:
    request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, None) for kind, name in RESOURCES])
    alices, admins = both(world, request, 4)
    assert {(one.resource_type, one.resource_name): one.error_code for one in alices.results} == REFUSALS
    assert not [one for one in alices.results if one.error_code and one.configs]
    assert {one.error_code for one in admins.results} == {0}


@pytest.mark.parametrize("incremental", [True, False])
def test_alter_configs(world: SecuredTopics, incremental: bool) -> None:
    configs = {TOPIC: ("retention.ms", "1000000"), GROUP: ("target.group.size", "3")}
    resources = [resource for resource in RESOURCES if resource[0] in configs]
    request: Any
    if incremental:
        request = IncrementalAlterConfigsRequest(
            [
                IncrementalAlterConfigsResource(
                    kind, name, [IncrementalAlterableConfig(configs[kind][0], 0, configs[kind][1])]
                )
                for kind, name in resources
            ]
        )
    else:
        request = AlterConfigsRequest(
            [AlterConfigsResource(kind, name, [AlterableConfig(*configs[kind])]) for kind, name in resources]
        )
    alices, admins = both(world, request, 1)
    assert {(one.resource_type, one.resource_name): one.error_code for one in alices.responses} == {
        resource: REFUSALS[resource] for resource in resources
    }
    assert {one.error_code for one in admins.responses} == {0}


ANY, MATCH, LITERAL = 1, 2, 3


def test_describing_and_changing_acls_needs_cluster_permissions(world: SecuredTopics) -> None:
    everything = DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY)
    alices, admins = both(world, everything, 3)
    assert (alices.error_code, alices.resources) == (CLUSTER_REFUSED, [])
    assert sum(len(resource.acls) for resource in admins.resources) == 4
    for version in (1, 3):
        covering = world.admin.ask(DescribeAclsRequest(TOPIC, MINE, MATCH, None, None, ANY, ANY), version)
        assert [(one.resource_name, one.acls[0].principal) for one in covering.resources] == [("mine", "User:alice")]
    literal = world.admin.ask(DescribeAclsRequest(ANY, HERS, LITERAL, "User:bob", "*", 3, 3), 3)
    assert {(one.resource_type, one.resource_name) for one in literal.resources} == {(TOPIC, HERS), (3, HERS)}

    creation = CreateAclsRequest([AclCreation(TOPIC, HERS, LITERAL, "User:alice", "*", 2, 3)])
    deletion = DeleteAclsRequest([DeleteAclsFilter(ANY, None, ANY, None, None, ANY, ANY)])
    for request, results in ((creation, "results"), (deletion, "filter_results")):
        (hers,) = getattr(world.alice.ask(request, 3), results)
        assert hers.error_code == CLUSTER_REFUSED
    assert world.admin.ask(everything, 3).resources == admins.resources, "nothing has changed"


def test_describing_and_changing_scram_credentials_needs_cluster_permissions(
    world: SecuredTopics,
) -> None:
    alices, admins = both(world, DescribeUserScramCredentialsRequest(None), 0)
    assert (alices.error_code, alices.results) == (CLUSTER_REFUSED, [])
    assert {one.user for one in admins.results} == set(PASSWORDS)

    deletion = ScramCredentialDeletion("bob", 1)
    (refused,) = world.alice.ask(AlterUserScramCredentialsRequest([deletion]), 0).results
    assert (refused.user, refused.error_code) == ("bob", CLUSTER_REFUSED)
    assert world.admin.ask(DescribeUserScramCredentialsRequest(None), 0) == admins, "nothing has changed"


# -- the cluster -------------------------------------------------------------------------------------------------------

QUORUM = DescribeQuorumRequest([DescribeQuorumTopic("__cluster_metadata", [DescribeQuorumPartition(0)])])
MOVE = AlterPartitionReassignmentsRequest(1000, True, [ReassignableTopic(HERS, [ReassignablePartition(0, [1])])])


@pytest.mark.parametrize(
    ("request_", "version", "code"),
    [
        (DescribeLogDirsRequest(None), 5, 0),
        (QUORUM, 2, 0),
        (ListConfigResourcesRequest(), 1, 0),
        (ListPartitionReassignmentsRequest(1000, [ListPartitionReassignmentsTopics(HERS, [0])]), 0, 0),
        (MOVE, 1, 0),
        (ElectLeadersRequest(0, [TopicPartitions(HERS, [0])], 1000), 2, 0),
        (UpdateFeaturesRequest(1000, [FeatureUpdateKey("nope", 1)]), 2, INVALID_UPDATE_VERSION),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, int) else "",
)
def test_what_belongs_to_the_cluster(world: SecuredTopics, request_: Any, version: int, code: int) -> None:
    alices, admins = both(world, request_, version)

    assert (alices.error_code, admins.error_code) == (CLUSTER_REFUSED, code)


def test_a_refusal_repeats_what_was_asked_for(world: SecuredTopics) -> None:
    (moved,) = world.alice.ask(MOVE, 1).responses
    (elected,) = world.alice.ask(ElectLeadersRequest(0, [TopicPartitions(HERS, [0])], 1000), 0).replica_election_results
    assert [(one.partition_index, one.error_code) for one in moved.partitions] == [(0, CLUSTER_REFUSED)]
    assert [(one.partition_id, one.error_code) for one in elected.partition_result] == [(0, CLUSTER_REFUSED)]
    assert world.alice.ask(DescribeLogDirsRequest(None), 2).results == []


def test_the_producers_of_a_topic_need_read_on_it(world: SecuredTopics) -> None:
    request = DescribeProducersRequest(
        [ProducersOf(name, [0]) for name in (MINE, HERS, "absent", "mine-absent", "a b")]
    )

    alices, admins = both(world, request, 0)

    assert {topic.name: topic.partitions[0].error_code for topic in alices.topics} == {
        MINE: 0,
        HERS: TOPIC_REFUSED,
        "absent": TOPIC_REFUSED,
        "mine-absent": UNKNOWN_TOPIC_OR_PARTITION,
        "a b": INVALID_TOPIC,
    }
    assert [topic.partitions[0].error_code for topic in admins.topics] == [
        *(0, 0),
        *(UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_OR_PARTITION),
        INVALID_TOPIC,
    ]


# -- groups ------------------------------------------------------------------------------------------------------------


def join_request(group: str, member_id: str = "", instance_id: str | None = None) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol("range", b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff")]
    return JoinGroupRequest(group, 10_000, 10_000, member_id, instance_id, "consumer", protocols)


def test_every_request_of_a_member_needs_read_on_the_group(world: SecuredTopics) -> None:
    """KIP-345: also the one that removes others."""
    requests: list[tuple[Any, int]] = [
        (join_request(HERS), 5),
        (join_request(HERS), 9),
        (SyncGroupRequest(HERS, 1, "m", None, "consumer", "range"), 5),
        (HeartbeatRequest(HERS, 1, "m"), 4),
        (LeaveGroupRequest(HERS, "m"), 2),
        (LeaveGroupRequest(HERS, members=[MemberIdentity("", "node-1")]), 5),
        (AddMembersToGroupRequest(HERS, ["node-9"], 1000), 0),
        (CancelRegistrationRequest(HERS, ["node-9"]), 0),
    ]
    for request, version in requests:
        alices, admins = both(world, request, version)
        assert alices.error_code == GROUP_REFUSED, request
        assert admins.error_code != GROUP_REFUSED, request
    batch_of = JoinGroupsRequest(HERS, 10_000, 10_000, "consumer", [JoinGroupsMember("", "node-1", [])])
    assert [one.error_code for one in world.alice.ask(batch_of, 0).results] == [GROUP_REFUSED]


def test_a_client_without_rights_cannot_remove_another_member(world: SecuredTopics) -> None:
    group = f"{HERS}-with-a-member"
    joined = world.admin.ask(join_request(group, instance_id="node-1"), 9)
    assert joined.error_code == 0
    leave = LeaveGroupRequest(group, members=[MemberIdentity("", "node-1")])
    assert world.alice.ask(leave, 5).error_code == GROUP_REFUSED
    (described,) = world.admin.ask(DescribeGroupsRequest([group]), 5).groups
    assert [member.group_instance_id for member in described.members] == ["node-1"], "it is still there"
    assert world.admin.ask(leave, 5).error_code == 0
    (described,) = world.admin.ask(DescribeGroupsRequest([group]), 5).groups
    assert described.members == []


def test_find_coordinator(world: SecuredTopics) -> None:
    alices, admins = both(world, FindCoordinatorRequest(HERS, 0), 2)
    assert (alices.error_code, alices.node_id, admins.error_code) == (GROUP_REFUSED, -1, 0)
    alices, admins = both(world, FindCoordinatorRequest(key_type=0, coordinator_keys=[HERS, MINE]), 4)
    assert {one.key: one.error_code for one in alices.coordinators} == {HERS: GROUP_REFUSED, MINE: 0}
    assert {one.key: one.error_code for one in admins.coordinators} == {HERS: 0, MINE: 0}


def test_groups_are_described_and_listed_only_with_permission(world: SecuredTopics) -> None:
    for group in (HERS, MINE):
        commit(world.admin, group, HERS)
    alices, admins = both(world, DescribeGroupsRequest([HERS, MINE], include_authorized_operations=True), 5)
    assert {one.group_id: one.error_code for one in alices.groups} == {HERS: GROUP_REFUSED, MINE: 0}
    assert {one.group_id: one.error_code for one in admins.groups} == {HERS: 0, MINE: 0}
    alices, admins = both(world, ListGroupsRequest(), 4)
    assert {one.group_id for one in alices.groups} == {MINE}
    assert {one.group_id for one in admins.groups} >= {MINE, HERS}


def commit_request(group: str, *topics: str, ids: dict[str, bytes] | None = None) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group,
        topics=[
            OffsetCommitRequestTopic(
                name, (ids or {}).get(name, bytes(16)), [OffsetCommitRequestPartition(0, 1, committed_metadata="")]
            )
            for name in topics
        ],
    )


def commit(client: WireClient, group: str, *topics: str) -> dict[str, int]:
    answer = client.ask(commit_request(group, *topics), 8)
    return {topic.name: topic.partitions[0].error_code for topic in answer.topics}


def test_a_commit_needs_the_group_and_the_topic(world: SecuredTopics) -> None:
    assert commit(world.alice, HERS, MINE) == {MINE: GROUP_REFUSED}
    assert commit(world.alice, MINE, MINE, HERS) == {MINE: 0, HERS: TOPIC_REFUSED}
    assert commit(world.admin, HERS, MINE) == {MINE: 0}
    answer = world.alice.ask(commit_request(MINE, MINE, HERS, ids=world.ids), 10)
    assert {one.topic_id: one.partitions[0].error_code for one in answer.topics} == {
        world.ids[MINE]: 0,
        world.ids[HERS]: TOPIC_REFUSED,
    }


def test_committed_offsets_are_returned_to_clients_that_may_see_group_and_topic(world: SecuredTopics) -> None:
    for group in (MINE, HERS):
        assert set(commit(world.admin, group, MINE, HERS).values()) == {0}
    # One group, before and after there was an error for the group.
    for version in (1, 7):
        old = OffsetFetchRequest(HERS, [OffsetFetchRequestTopic(MINE, [0])])
        alices, admins = both(world, old, version)
        code = alices.topics[0].partitions[0].error_code if version < 2 else alices.error_code
        assert code == GROUP_REFUSED
        assert admins.topics[0].partitions[0].committed_offset == 1
        mine = world.alice.ask(
            OffsetFetchRequest(MINE, [OffsetFetchRequestTopic(MINE, [0]), OffsetFetchRequestTopic(HERS, [0])]), version
        )
        found = {one.name: (one.partitions[0].error_code, one.partitions[0].committed_offset) for one in mine.topics}
        assert found == {MINE: (0, 1), HERS: (TOPIC_REFUSED, -1)}
    everything = world.alice.ask(OffsetFetchRequest(MINE, None), 7)
    assert [one.name for one in everything.topics] == [MINE]
    # Many groups.
    wanted = [
        OffsetFetchRequestGroup(
            group, topics=[OffsetFetchRequestGroupTopic(name, world.ids[name], [0]) for name in (MINE, HERS)]
        )
        for group in (MINE, HERS)
    ]
    for version in (8, 10):
        alices, admins = both(world, OffsetFetchRequest(groups=wanted), version)
        by_group = {one.group_id: one for one in alices.groups}
        assert (by_group[HERS].error_code, by_group[HERS].topics) == (GROUP_REFUSED, [])
        codes = [topic.partitions[0].error_code for topic in by_group[MINE].topics]
        assert sorted(codes) == [0, TOPIC_REFUSED]
        assert {one.error_code for one in admins.groups} == {0}
        all_of_mine = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(MINE, topics=None)])
        alices, admins = both(world, all_of_mine, version)
        assert (len(alices.groups[0].topics), len(admins.groups[0].topics)) == (1, 2)


def test_offsets_and_groups_are_deleted_only_with_permission(world: SecuredTopics) -> None:
    group, her_group = "mine-old", "hers-old"
    for one in (group, her_group):
        commit(world.admin, one, MINE, HERS)

    def forgotten(client: WireClient, of: str) -> Any:
        topics = [OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(0)]) for name in (MINE, HERS)]
        return client.ask(OffsetDeleteRequest(of, topics), 0)

    assert forgotten(world.alice, her_group).error_code == GROUP_REFUSED
    found = {one.name: one.partitions[0].error_code for one in forgotten(world.alice, group).topics}
    assert found == {MINE: 0, HERS: TOPIC_REFUSED}
    assert {one.partitions[0].error_code for one in forgotten(world.admin, her_group).topics} == {0}
    for one in (group, her_group):
        commit(world.admin, one, MINE)
    deleted = world.alice.ask(DeleteGroupsRequest([group, her_group]), 2)
    assert {one.group_id: one.error_code for one in deleted.results} == {group: 0, her_group: GROUP_REFUSED}
    assert [one.error_code for one in world.admin.ask(DeleteGroupsRequest([her_group]), 2).results] == [0]
