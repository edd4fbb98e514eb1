"""What one who may do some things is answered: the same by Holdfast and by Apache Kafka's authorizer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.broker.authorization.acls import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from holdfast.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from holdfast.wire.apis.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialDeletion
from holdfast.wire.apis.create_acls import AclCreation, CreateAclsRequest
from holdfast.wire.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from holdfast.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest
from holdfast.wire.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from holdfast.wire.apis.delete_groups import DeleteGroupsRequest
from holdfast.wire.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from holdfast.wire.apis.delete_topics import DeleteTopicsRequest
from holdfast.wire.apis.describe_acls import DescribeAclsRequest
from holdfast.wire.apis.describe_client_quotas import DescribeClientQuotasRequest, QuotaComponent
from holdfast.wire.apis.describe_cluster import DescribeClusterRequest
from holdfast.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from holdfast.wire.apis.describe_groups import DescribeGroupsRequest
from holdfast.wire.apis.describe_log_dirs import DescribeLogDirsRequest
from holdfast.wire.apis.describe_producers import DescribeProducersRequest
from holdfast.wire.apis.describe_producers import TopicRequest as ProducersOf
from holdfast.wire.apis.describe_quorum import DescribeQuorumPartition, DescribeQuorumRequest, DescribeQuorumTopic
from holdfast.wire.apis.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
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
from holdfast.wire.error_codes import ErrorCode
from tests.broker.secured_broker import PASSWORDS, SecuredBroker, authenticate
from tests.broker.wire_client import WireClient, batch
from tests.support.apache_kafka import HOST, NODE_ID, ApacheKafka
from tests.support.eventually import eventually
from tests.support.quick_brokers import QUICK

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required "

RIGHTS = [
    ("t-read", ResourceType.TOPIC, Operation.READ, PatternType.LITERAL, Permission.ALLOW),
    ("t-write", ResourceType.TOPIC, Operation.WRITE, PatternType.LITERAL, Permission.ALLOW),
    ("t-describe", ResourceType.TOPIC, Operation.DESCRIBE, PatternType.LITERAL, Permission.ALLOW),
    ("t-all", ResourceType.TOPIC, Operation.ALL, PatternType.PREFIXED, Permission.ALLOW),
    ("t-all-but-one", ResourceType.TOPIC, Operation.READ, PatternType.LITERAL, Permission.DENY),
    ("t-configs", ResourceType.TOPIC, Operation.ALTER_CONFIGS, PatternType.LITERAL, Permission.ALLOW),
    ("g-read", ResourceType.GROUP, Operation.READ, PatternType.LITERAL, Permission.ALLOW),
    ("g-describe", ResourceType.GROUP, Operation.DESCRIBE, PatternType.LITERAL, Permission.ALLOW),
    ("g-delete", ResourceType.GROUP, Operation.DELETE, PatternType.LITERAL, Permission.ALLOW),
]
TOPICS = ["t-read", "t-write", "t-describe", "t-all", "t-all-but-one", "t-configs", "t-hidden"]
GROUPS = ["g-read", "g-describe", "g-delete", "g-hidden"]
ABSENT = ["t-hidden-absent", "t-all-absent"]
TIMEOUT_MS = 30_000
"""For requests that Kafka forwards to its controller: no answer depends on it, and a busy one may need seconds."""


class AuthorizingKafka(ApacheKafka):
    """Any client that comes without a password may do everything."""

    secured = 0

    def _write_properties(self) -> None:
        port, controller_port = self._ports or (0, 0)
        (self.secured,) = self._further_ports(1)
        users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
        guarded = f"GUARDED://{HOST}:{self.secured}"
        self._overrides |= {
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port},{guarded}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port},{guarded}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_PLAINTEXT",
            "listener.name.guarded.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.guarded.plain.sasl.jaas.config": f"{_LOGIN}{users};",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:admin",
            "auto.create.topics.enable": "false",
        }
        super()._write_properties()


def logged_in(port: int, user: str) -> WireClient:
    client = WireClient((HOST, port))
    assert authenticate(client, user, PASSWORDS[user], "PLAIN").error_code == 0
    return client


@pytest.fixture(scope="module")
def alices(
    apache_kafka_distribution: object, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, WireClient]]:
    """Alice's connection to either, with the same topics, groups and rights. Bob may only describe the cluster."""
    holdfast = SecuredBroker(tmp_path_factory.mktemp("rights"))
    holdfast.grant(*(Acl("User:alice", kind, name, *what) for name, kind, *what in RIGHTS))  # type: ignore[arg-type]
    holdfast.grant(Acl("User:bob", ResourceType.CLUSTER, CLUSTER_NAME, Operation.DESCRIBE))
    with holdfast, AuthorizingKafka(QUICK) as kafka:
        ports = {"holdfast": holdfast.port("SASL"), "kafka": kafka.secured}
        for server, port in ports.items():
            with logged_in(port, "admin") as admin:
                prepare(admin)
                if server == "kafka":
                    grant_on_kafka(admin)
        clients = {server: logged_in(port, "alice") for server, port in ports.items()}
        clients |= {f"{server} as bob": logged_in(port, "bob") for server, port in ports.items()}
        seen = MetadataRequest([MetadataRequestTopic(name="t-read")])
        eventually(lambda: clients["kafka"].ask(seen, 9).topics[0].error_code != 29, "Kafka knows the rights")
        # Its controller has an authorizer of its own, which may hear of them later.
        made = CreateTopicsRequest([CreatableTopic("t-all-absent", 1, 1)], TIMEOUT_MS, True)
        eventually(lambda: clients["kafka"].ask(made, 7).topics[0].error_code != 29, "its controller knows them")
        see = DescribeLogDirsRequest(None)
        eventually(lambda: clients["kafka as bob"].ask(see, 5).error_code == 0, "Kafka knows what bob may do")
        yield clients
        for client in clients.values():
            client.socket.close()


def prepare(admin: WireClient) -> None:
    for topic in TOPICS:
        admin.create_topic(topic)
    for group in GROUPS:
        # Being asked for a coordinator is what makes Kafka create the topic that groups are kept in.
        coordinator = FindCoordinatorRequest(group, 0)
        eventually(lambda one=coordinator: admin.ask(one, 2).error_code == 0, f"a coordinator of {group}")  # type: ignore[misc]
        request = commit(group)
        eventually(
            lambda request=request: all(  # type: ignore[misc]
                one.error_code == 0 for topic in admin.ask(request, 8).topics for one in topic.partitions
            ),
            f"{group} is there",
        )


def grant_on_kafka(admin: WireClient) -> None:
    creations = [
        AclCreation(kind, name, pattern, "User:alice", "*", operation, permission)
        for name, kind, operation, pattern, permission in RIGHTS
    ]
    bobs = AclCreation(ResourceType.CLUSTER, CLUSTER_NAME, 3, "User:bob", "*", Operation.DESCRIBE, Permission.ALLOW)
    assert {result.error_code for result in admin.ask(CreateAclsRequest([*creations, bobs]), 3).results} == {0}


def commit(group: str) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(0, 1, committed_metadata="")]
    return OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(name, partitions=partitions) for name in TOPICS])


def of_each(make: Callable[[str], Any], names: list[str] = TOPICS) -> list[Any]:
    return [make(name) for name in names]


def join(group: str) -> JoinGroupRequest:
    return JoinGroupRequest(group, 10_000, 10_000, "nobody", None, "consumer", [JoinGroupRequestProtocol("range", b"")])


REQUESTS: list[tuple[str, Any, int]] = [
    ("all topics", MetadataRequest(None), 9),
    *(
        (
            f"named topics, creating {creating}",
            MetadataRequest(of_each(lambda n: MetadataRequestTopic(name=n), TOPICS + ABSENT), creating),
            9,
        )
        for creating in (False, True)
    ),
    (
        "produce",
        ProduceRequest(
            acks=-1,
            timeout_ms=5000,
            topic_data=of_each(
                lambda n: TopicProduceData(n, partition_data=[PartitionProduceData(0, batch(b"x"))]), TOPICS + ABSENT
            ),
        ),
        9,
    ),
    (
        "fetch",
        FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            topics=of_each(
                lambda n: FetchTopic(n, partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1000)]),
                TOPICS + ABSENT,
            ),
        ),
        12,
    ),
    (
        "list offsets",
        ListOffsetsRequest(
            -1, topics=of_each(lambda n: ListOffsetsTopic(n, [ListOffsetsPartition(0, -1, -1)]), TOPICS + ABSENT)
        ),
        7,
    ),
    (
        "leader epochs",
        OffsetForLeaderEpochRequest(
            topics=of_each(lambda n: OffsetForLeaderTopic(n, [OffsetForLeaderPartition(0, -1, 0)]), TOPICS + ABSENT)
        ),
        4,
    ),
    (
        "delete records",
        DeleteRecordsRequest(
            of_each(lambda n: DeleteRecordsTopic(n, [DeleteRecordsPartition(0, 0)]), TOPICS + ABSENT), 5000
        ),
        2,
    ),
    ("producer id", InitProducerIdRequest(None, 1000), 4),
    (
        "create topics",
        CreateTopicsRequest(of_each(lambda n: CreatableTopic(n, 1, 1), TOPICS + ABSENT), TIMEOUT_MS, True),
        7,
    ),
    (
        "create partitions",
        CreatePartitionsRequest(
            of_each(lambda n: CreatePartitionsTopic(n, 3, None), TOPICS + ABSENT), TIMEOUT_MS, True
        ),
        3,
    ),
    ("delete topics", DeleteTopicsRequest(topic_names=ABSENT, timeout_ms=TIMEOUT_MS), 5),
    (
        "describe configs",
        DescribeConfigsRequest(of_each(lambda n: DescribeConfigsResource(2, n, ["retention.ms"]), TOPICS + ABSENT)),
        4,
    ),
    (
        "describe configs of the broker",
        DescribeConfigsRequest([DescribeConfigsResource(4, str(NODE_ID), ["node.id"])]),
        4,
    ),
    (
        "alter configs",
        IncrementalAlterConfigsRequest(
            of_each(
                lambda n: IncrementalAlterConfigsResource(
                    2, n, [IncrementalAlterableConfig("retention.ms", 0, "1000000")]
                ),
                TOPICS + ABSENT,
            ),
            True,
        ),
        1,
    ),
    ("topic partitions", DescribeTopicPartitionsRequest(of_each(TopicRequest, TOPICS + ABSENT)), 0),
    ("all topics' partitions", DescribeTopicPartitionsRequest(), 0),
    ("describe the cluster", DescribeClusterRequest(include_cluster_authorized_operations=True), 0),
    *((f"coordinator of {group}", FindCoordinatorRequest(group, 0), 2) for group in GROUPS),
    ("coordinators", FindCoordinatorRequest(key_type=0, coordinator_keys=GROUPS), 4),
    *((f"join {group}", join(group), version) for group in GROUPS for version in (5, 9)),
    *((f"sync {group}", SyncGroupRequest(group, 1, "nobody"), 5) for group in GROUPS),
    *((f"heartbeat {group}", HeartbeatRequest(group, 1, "nobody"), 4) for group in GROUPS),
    *((f"leave {group}", LeaveGroupRequest(group, members=[MemberIdentity("", "node")]), 5) for group in GROUPS),
    *((f"commit to {group}", commit(group), 8) for group in GROUPS),
    *(
        (
            f"offsets of {group}, v{version}",
            OffsetFetchRequest(group, of_each(lambda n: OffsetFetchRequestTopic(n, [0]))),
            version,
        )
        for group in GROUPS
        for version in (1, 7)
    ),
    *((f"all offsets of {group}", OffsetFetchRequest(group, None), 7) for group in GROUPS),
    (
        "offsets of groups",
        OffsetFetchRequest(
            groups=of_each(
                lambda g: OffsetFetchRequestGroup(
                    g, topics=of_each(lambda n: OffsetFetchRequestGroupTopic(n, bytes(16), [0]))
                ),
                GROUPS,
            )
        ),
        8,
    ),
    (
        "all offsets of groups",
        OffsetFetchRequest(groups=of_each(lambda g: OffsetFetchRequestGroup(g, topics=None), GROUPS)),
        8,
    ),
    *(
        (
            f"delete offsets of {group}",
            OffsetDeleteRequest(
                group, of_each(lambda n: OffsetDeleteRequestTopic(n, [OffsetDeleteRequestPartition(0)]))
            ),
            0,
        )
        for group in GROUPS
    ),
    ("describe groups", DescribeGroupsRequest(GROUPS, include_authorized_operations=True), 5),
    ("list groups", ListGroupsRequest(), 4),
    ("delete groups", DeleteGroupsRequest(["g-read", "g-hidden"]), 2),
    *((f"log directories, v{version}", DescribeLogDirsRequest(None), version) for version in (2, 5)),
    (
        "list reassignments",
        ListPartitionReassignmentsRequest(TIMEOUT_MS, of_each(lambda n: ListPartitionReassignmentsTopics(n, [0, 5]))),
        0,
    ),
    ("list all reassignments", ListPartitionReassignmentsRequest(TIMEOUT_MS, None), 0),
    (
        "alter reassignments",
        AlterPartitionReassignmentsRequest(
            TIMEOUT_MS, True, of_each(lambda n: ReassignableTopic(n, [ReassignablePartition(0, [1])]))
        ),
        1,
    ),
    *(
        (
            f"elect leaders, v{version}",
            ElectLeadersRequest(0, of_each(lambda n: TopicPartitions(n, [0])), TIMEOUT_MS),
            version,
        )
        for version in (0, 2)
    ),
    ("elect all leaders", ElectLeadersRequest(0, None, TIMEOUT_MS), 2),
    (
        "producers",
        DescribeProducersRequest(of_each(lambda n: ProducersOf(n, [0, 5]), [*TOPICS, *ABSENT, "a b"])),
        0,
    ),
    (
        "quorum",
        DescribeQuorumRequest([DescribeQuorumTopic("__cluster_metadata", [DescribeQuorumPartition(0)])]),
        2,
    ),
    *((f"config resources, v{version}", ListConfigResourcesRequest(), version) for version in (0, 1)),
    *(
        (f"update features, v{version}", UpdateFeaturesRequest(TIMEOUT_MS, [FeatureUpdateKey("nope", 1)]), version)
        for version in (0, 2)
    ),
    ("describe ACLs", DescribeAclsRequest(1, None, 1, None, None, 1, 1), 3),
    ("create ACLs", CreateAclsRequest([AclCreation(2, "t-hidden", 3, "User:alice", "*", 2, 3)]), 3),
    ("delete ACLs", DeleteAclsRequest([DeleteAclsFilter(1, None, 1, None, None, 1, 1)]), 3),
    ("describe quotas", DescribeClientQuotasRequest([QuotaComponent("user", 2, None)]), 1),
    ("alter users", AlterUserScramCredentialsRequest([ScramCredentialDeletion("alice", 1)]), 0),
]

NAMING = (
    "name",
    "topic",
    "group_id",
    "key",
    "resource_name",
    "member_id",
    "resource_type",
    "partition_index",
    "partition_id",
)
EXPECTED = ("error_code", "topic_authorized_operations", "cluster_authorized_operations", "authorized_operations")


def answers_of(answer: Any, within: tuple[Any, ...] = ()) -> set[tuple[Any, ...]]:
    """Every code in an answer, and what it belongs to; whatever the order."""
    found: set[tuple[Any, ...]] = set()
    names = {field.name: getattr(answer, field.name) for field in dataclasses.fields(answer)}
    place = (*within, *(names[name] for name in NAMING if name in names))
    found.add(place)
    found |= {(*place, name, int(names[name])) for name in EXPECTED if name in names}
    if "committed_offset" in names:
        found.add((*place, "committed_offset", names["committed_offset"]))
    for name, value in names.items():
        if isinstance(value, list) and name != "members":
            for one in value:
                if dataclasses.is_dataclass(one):
                    found |= answers_of(one, (*place, name))
    return found


@pytest.mark.parametrize(
    ("request_", "version"), [(one, version) for _, one, version in REQUESTS], ids=[one for one, *_ in REQUESTS]
)
def test_the_answer_is_kafkas(alices: dict[str, WireClient], request_: Any, version: int) -> None:
    if isinstance(request_, InitProducerIdRequest):
        # Kafka fetches a block of ids when the first one is asked for, and lets its client wait.
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        eventually(lambda: alices["kafka"].ask(request_, version).error_code != loading, "Kafka has producer ids")

    ours, kafkas = (answers_of(alices[server].ask(request_, version)) for server in ("holdfast", "kafka"))

    assert ours == kafkas


OF_THE_CLUSTER = {
    DescribeLogDirsRequest: True,
    ListPartitionReassignmentsRequest: True,
    DescribeQuorumRequest: True,
    AlterPartitionReassignmentsRequest: False,
    ElectLeadersRequest: False,
    UpdateFeaturesRequest: False,
    ListConfigResourcesRequest: False,
}
"""Whether the right to describe the cluster is enough."""


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (one, one.API.versions[1])
        for one in {type(one): one for _, one, _ in REQUESTS}.values()
        if type(one) in OF_THE_CLUSTER
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_right_to_describe_the_cluster_is_enough_where_it_is_for_kafka(
    alices: dict[str, WireClient], request_: Any, version: int
) -> None:
    ours, kafkas = (alices[f"{server} as bob"].ask(request_, version).error_code for server in ("holdfast", "kafka"))

    assert ours == kafkas
    assert (ours != ErrorCode.CLUSTER_AUTHORIZATION_FAILED) is OF_THE_CLUSTER[type(request_)]
