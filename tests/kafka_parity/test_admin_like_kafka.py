"""The same questions to Apache Kafka and to Holdfast: the same answers, but for the differences listed here."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

import pytest

from holdfast.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from holdfast.wire.apis.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from holdfast.wire.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from holdfast.wire.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from holdfast.wire.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from holdfast.wire.apis.describe_cluster import DescribeClusterRequest
from holdfast.wire.apis.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from holdfast.wire.apis.describe_producers import DescribeProducersRequest
from holdfast.wire.apis.describe_producers import TopicRequest as ProducersOf
from holdfast.wire.apis.describe_quorum import DescribeQuorumPartition, DescribeQuorumRequest, DescribeQuorumTopic
from holdfast.wire.apis.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from holdfast.wire.apis.elect_leaders import ElectLeadersRequest, TopicPartitions
from holdfast.wire.apis.init_producer_id import InitProducerIdRequest
from holdfast.wire.apis.list_config_resources import ListConfigResourcesRequest
from holdfast.wire.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from holdfast.wire.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from holdfast.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from holdfast.wire.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from holdfast.wire.apis.sasl_authenticate import SaslAuthenticateRequest
from holdfast.wire.apis.sasl_handshake import SaslHandshakeRequest
from holdfast.wire.apis.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from holdfast.wire.fields import ZERO_UUID
from holdfast.wire.records import Record, encode_batch
from tests.broker.wire_client import WireClient
from tests.support.apache_kafka import ApacheKafka
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

NO_SUCH_ID: Final = bytes(range(16))
COORDINATOR_LOAD_IN_PROGRESS: Final = 14
TIMEOUT_MS: Final = 30_000
"""For requests that Kafka forwards to its controller: no answer depends on it, and a busy one may need seconds."""

DIFFERENCES: Final = {
    "CreateTopics: 10000 partitions": "Kafka counts the records of its metadata log, of which a topic is one more",
    "CreateTopics: two names that collide in one request": "Kafka compares a new name only with topics that exist",
    "CreatePartitions: 20000 partitions": "Kafka answers -1 without a word; Holdfast says what the limit is",
    "DescribeTopicPartitions: a name of nothing": "Kafka answers -1 for all; Holdfast refuses that one",
    "InitProducerId: transactional": "Holdfast has no transactions",
    "DescribeProducers: a partition twice": "Holdfast describes each once",
    **{f"DescribeQuorum: v{version}": "Holdfast has no metadata log" for version in range(3)},
    "ListConfigResources: every type": "Holdfast has no configs of brokers' loggers",
    "ListConfigResources: [8]": "Holdfast has no configs of brokers' loggers",
    **{f"UpdateFeatures: one that Kafka has v{version}": "Holdfast has no features" for version in range(3)},
}
"""Label of a question → why the answers differ."""


class Server(Protocol):
    @property
    def address(self) -> tuple[str, int]: ...


Question = tuple[str, Any, int]


class Conversation:
    """One broker with topics of the conversation's own, prepared in the same way on either."""

    def __init__(self, server: Server, run: str) -> None:
        self.client = WireClient(server.address)
        self.filled, self.other, self.compacted, self.dotted = (
            f"{run}-{kind}" for kind in ("filled", "other", "compacted", "do.tted")
        )
        # For ever: its records are of 1970, and Kafka looks for old ones half a minute after its start.
        self.client.create_topic(self.filled, 2, retention_ms="-1")
        self.client.create_topic(self.other, retention_ms="-1")
        self.client.create_topic(self.compacted, cleanup_policy="compact")
        self.client.create_topic(self.dotted)
        names = [self.filled, self.other, self.compacted, self.dotted]
        self.ids = eventually(lambda: self._ids_when_led(names), "the topics have leaders")
        for timestamps in ([1000, 3000, 2000], [5000]):
            self._produce(self.filled, timestamps)
        for producer_id, epoch, sequence in ((77, 3, 0), (78, 0, 5), (77, 3, 2), (79, 1, 0)):
            self._produce(
                self.other, [7000, 6000], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
            )

    def _produce(self, topic: str, timestamps: Sequence[int], **fields: Any) -> None:
        records = [Record(number, timestamp, b"key", b"value") for number, timestamp in enumerate(timestamps)]
        answer = self.client.produce(topic, encode_batch(records, **fields))
        assert answer.error_code == 0, answer

    def _ids_when_led(self, names: Sequence[str]) -> dict[str, bytes]:
        request = MetadataRequest([MetadataRequestTopic(name=name) for name in names], False)
        topics = self.client.ask(request, 12).topics
        led = all(topic.partitions and not any(one.error_code for one in topic.partitions) for topic in topics)
        return {topic.name: topic.topic_id for topic in topics} if led and self._have_ends(topics) else {}

    def _have_ends(self, topics: Sequence[Any]) -> bool:
        """Kafka names a leader before that knows of its partitions."""
        wanted = [
            ListOffsetsTopic(
                topic.name, [ListOffsetsPartition(one.partition_index, -1, -1) for one in topic.partitions]
            )
            for topic in topics
        ]
        found = self.client.ask(ListOffsetsRequest(-1, 0, wanted, 2000), 11).topics
        return not any(one.error_code for topic in found for one in topic.partitions)

    def ask(self, message: Any, version: int) -> Any:
        """A Kafka that has just started first fetches a block of producer ids; everybody waits for that."""

        def answer() -> Any:
            response = self.client.ask(message, version)
            loading = getattr(response, "error_code", 0) == COORDINATOR_LOAD_IN_PROGRESS
            return None if loading else response

        return eventually(answer, "the broker is ready to answer")


def create_topics(talk: Conversation) -> Iterator[Question]:
    def ask(label: str, *topics: CreatableTopic, version: int = 7, validate_only: bool = True) -> Question:
        return f"CreateTopics: {label}", CreateTopicsRequest(list(topics), 10_000, validate_only), version

    def topic(name: str, partitions: int = 1, replicas: int = 1, **configs: str | None) -> CreatableTopic:
        wanted = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
        return CreatableTopic(name, partitions, replicas, configs=wanted)

    def assigned(*assignments: tuple[int, list[int]], partitions: int = -1, replicas: int = -1) -> CreatableTopic:
        wanted = [CreatableReplicaAssignment(index, brokers) for index, brokers in assignments]
        return CreatableTopic("new", partitions, replicas, wanted)

    for version in range(2, 8):
        yield ask(f"a good one v{version}", topic("new", 3), version=version)
        yield ask(f"exists v{version}", topic(talk.other), version=version)
    yield ask("defaults", topic("new", -1, -1))
    yield ask("a config", topic("new", retention_ms="100000", cleanup_policy="compact,delete"))
    yield ask("partitions 0", topic("new", 0))
    yield ask("replicas 0 and partitions 0", topic("new", 0, 0))
    yield ask("replicas 2", topic("new", 1, 2))
    yield ask("replicas -2", topic("new", 1, -2))
    yield ask("10000 partitions", topic("new", 10_000))
    yield ask("10001 partitions", topic("new", 10_001), topic("small"))
    yield ask("unknown config and replicas 0", topic("new", 1, 0, no_such="1"))
    yield ask("config that is no number", topic("new", retention_ms="abc"))
    yield ask("config out of range", topic("new", segment_bytes="1"))
    yield ask("config that is no choice", topic("new", cleanup_policy="nonsense"))
    yield ask("config null", topic("new", retention_ms=None))
    yield ask("exists and all is wrong", topic(talk.other, 0, 0, no_such="1"))
    yield ask("assigned", assigned((0, [1]), (1, [1])))
    yield ask("assigned and counted", assigned((0, [1]), partitions=1))
    yield ask("assigned and replicated", assigned((0, [1]), replicas=1))
    yield ask("assigned to a unknown", assigned((0, [9, 1])))
    yield ask("assigned twice to the broker", assigned((0, [1, 1, 9])))
    yield ask("assigned to nobody", assigned((0, [])))
    yield ask("assigned with a gap", assigned((1, [1])))
    yield ask("assigned twice", assigned((0, [1]), (0, [1])))
    yield ask("a name twice", topic("twice"), topic("once"), topic("twice"), topic("__cluster_metadata"))
    yield ask("no topic")
    for name in ("", "a b", ".", "..", "x" * 249, "x" * 250, "a/b", "ü"):
        yield ask(f"name {name[:5]!r} of {len(name)}", topic(name))
    yield ask("a name that collides", topic(talk.dotted.replace(".", "_")))
    names = talk.other + ".a", talk.other + "_a"
    yield ask("two names that collide in one request", *map(topic, names), version=4, validate_only=False)


def create_partitions(talk: Conversation) -> Iterator[Question]:
    def ask(label: str, *wanted: tuple[str, int, list[list[int]] | None]) -> Question:
        topics = [
            CreatePartitionsTopic(
                name, count, None if ids is None else [CreatePartitionsAssignment(one) for one in ids]
            )
            for name, count, ids in wanted
        ]
        return f"CreatePartitions: {label}", CreatePartitionsRequest(topics, 10_000, True), 3

    for count in (3, 2, 1, 0, -1):
        yield ask(f"{count} of 2", (talk.filled, count, None))
    yield ask("20000 partitions", (talk.filled, 20_000, None))
    yield ask("assigned", (talk.filled, 3, [[1]]))
    yield ask("too few assignments", (talk.filled, 5, [[1]]))
    yield ask("too many assignments", (talk.filled, 3, [[1], [1]]))
    for ids in ([7], [1, 1], [1, 2]):
        yield ask(f"assigned to {ids}", (talk.filled, 3, [ids]))
    yield ask("a name twice", (talk.filled, 3, None), ("nope", 3, None), (talk.other, 3, None), (talk.filled, 4, None))


def metadata(talk: Conversation) -> Iterator[Question]:
    def named(label: str, *names: str, version: int = 12, operations: bool = False) -> Question:
        topics = [MetadataRequestTopic(name=name) for name in names]
        allow = version < 4
        return f"Metadata: {label}", MetadataRequest(topics, allow, False, operations), version

    def by_id(label: str, *topics: tuple[bytes, str | None], version: int = 12, operations: bool = False) -> Question:
        wanted = [MetadataRequestTopic(topic_id, name) for topic_id, name in topics]
        return f"Metadata: {label}", MetadataRequest(wanted, False, False, operations), version

    for version in range(14):
        yield named(f"v{version}", talk.filled, talk.other, version=version)
    yield named("unknown", "nope", talk.filled, "a b", "", "..", "nope")
    yield named("operations", "nope", talk.filled, operations=True)
    yield "Metadata: operations of the cluster", MetadataRequest([], False, True), 8
    one, two = talk.ids[talk.filled], talk.ids[talk.other]
    yield by_id("by id", (one, None), (NO_SUCH_ID, None), (two, None), operations=True)
    yield by_id("an id and a name", (one, None), (ZERO_UUID, talk.other), (ZERO_UUID, None))
    yield by_id("neither v12", (ZERO_UUID, None))
    yield by_id("neither v13", (ZERO_UUID, None), version=13)
    yield by_id("null v11", (ZERO_UUID, None), (ZERO_UUID, "nope"), version=11)
    yield by_id("id v10", (NO_SUCH_ID, "nope"), version=10)


def topic_partitions(talk: Conversation) -> Iterator[Question]:
    def ask(label: str, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Question:
        begin = None if cursor is None else Cursor(*cursor)
        request = DescribeTopicPartitionsRequest([TopicRequest(name) for name in names], limit, begin)
        return f"DescribeTopicPartitions: {label}", request, 0

    every = (talk.filled, talk.other, talk.compacted)
    yield ask("three", *every, talk.filled)
    yield ask("unknown", "nope", talk.filled, "a b", "..", "__transaction_state")
    yield ask("a name of nothing", "", talk.filled)
    for limit in (-1, 0, 1, 2, 3, 4, 5000):
        yield ask(f"at most {limit}", *every, limit=limit)
        yield ask(f"at most {limit}, two of them unknown", *every, "a", "zzz", limit=limit)
        yield ask(f"at most {limit}, from the second partition on", *every, limit=limit, cursor=(talk.filled, 1))
    for index in (0, 1, 2, 9):
        yield ask(f"from partition {index} on", *every, cursor=(talk.filled, index))
    yield ask("from a topic on that is gone", *every, "m-gone", cursor=("m-gone", 0))
    yield ask("from a topic on that is not asked for", *every, cursor=(talk.dotted, 0))
    yield ask("from a partition on that cannot be", *every, cursor=(talk.filled, -1))
    yield ask("from no topic on", *every, cursor=("", 0))
    yield ask("all, from one behind them on", cursor=("zzzz", 0))
    yield ask("all, from a partition on that cannot be", cursor=(talk.filled, -1))


def offsets(talk: Conversation) -> Iterator[Question]:
    def ask(label: str, *wanted: tuple[str, int, int], version: int = 11, epoch: int = -1, level: int = 0) -> Question:
        topics = [ListOffsetsTopic(name, [ListOffsetsPartition(part, epoch, time)]) for name, part, time in wanted]
        return f"ListOffsets: {label}", ListOffsetsRequest(-1, level, topics, 2000), version

    for time in (-1, -2, -3, -4, -5, -6, -7, 0, 1000, 1001, 2000, 3000, 3001, 5000, 5001):
        yield ask(f"at {time}", (talk.filled, 0, time))
        yield ask(f"at {time} of an empty one", (talk.filled, 1, time))
    for version in range(1, 12):
        yield ask(f"end v{version}", (talk.filled, 0, -1), version=version)
        yield ask(f"largest timestamp v{version}", (talk.filled, 0, -3), version=version)
    for epoch in (-2, 0, 5):
        yield ask(f"leader epoch {epoch}", (talk.filled, 0, -1), epoch=epoch)
    yield ask("unknown", ("nope", 0, -1), (talk.filled, 9, -1), (talk.other, -1, -1))
    yield ask("unknown at -99", ("nope", 0, -99))
    yield ask("twice", (talk.filled, 0, -1), (talk.filled, 1, -1), (talk.filled, 0, -99))
    yield ask("isolation level 9", (talk.filled, 0, -1), level=9)


def epochs(talk: Conversation) -> Iterator[Question]:
    def ask(name: str, index: int, epoch: int, current: int = -1, version: int = 4) -> Question:
        label = f"OffsetForLeaderEpoch: {epoch} of {name[-6:]}-{index}, knows {current}, v{version}"
        topic = OffsetForLeaderTopic(name, [OffsetForLeaderPartition(index, current, epoch)])
        return label, OffsetForLeaderEpochRequest(topics=[topic]), version

    for epoch in (0, 1, -1, 5, -2):
        for index in (0, 1, 9):
            yield ask(talk.filled, index, epoch)
    for current in (0, 3, -2):
        yield ask(talk.filled, 0, 0, current)
    yield ask("nope", 0, 0)
    yield ask(talk.filled, 0, 0, version=2)


def delete_records(talk: Conversation) -> Iterator[Question]:
    def ask(label: str, name: str, *cuts: tuple[int, int], version: int = 2) -> Question:
        topic = DeleteRecordsTopic(name, [DeleteRecordsPartition(index, offset) for index, offset in cuts])
        return f"DeleteRecords: {label}", DeleteRecordsRequest([topic], 5000), version

    for offset in (99, -2, 1, 0):
        yield ask(f"to {offset}", talk.filled, (0, offset), (1, 0))
    yield ask("twice", talk.filled, (0, 2), (0, 99))
    yield ask("unknown partition", talk.filled, (9, 0))
    yield ask("unknown", "nope", (0, 0))
    yield ask("compacted", talk.compacted, (0, 0))
    yield from ((f"{label} after the cut", message, version) for label, message, version in offsets(talk))
    yield ask("to the end", talk.filled, (0, -1), version=0)


def cluster(talk: Conversation) -> Iterator[Question]:
    for version in range(3):
        yield f"DescribeCluster: v{version}", DescribeClusterRequest(version > 0), version
    for endpoint_type in (0, 2, 9):
        yield f"DescribeCluster: endpoint {endpoint_type}", DescribeClusterRequest(True, endpoint_type), 1
    for version in range(2):
        yield f"SaslHandshake: v{version}", SaslHandshakeRequest("PLAIN"), version
    for version in range(3):
        yield f"SaslAuthenticate: v{version}", SaslAuthenticateRequest(b"\0a\0b"), version
    for version in range(6):
        yield f"InitProducerId: v{version}", InitProducerIdRequest(None, 1000), version
    yield "InitProducerId: keeps its id", InitProducerIdRequest(None, 1000, 7, 3), 4
    yield "InitProducerId: id without epoch", InitProducerIdRequest(None, 1000, 7, -1), 4
    yield "InitProducerId: epoch without id", InitProducerIdRequest(None, 1000, -1, 3), 4
    yield "InitProducerId: empty transactional id", InitProducerIdRequest("", 1000), 4
    yield "InitProducerId: transactional", InitProducerIdRequest(talk.other, 1000), 4


def log_dirs(talk: Conversation) -> Iterator[Question]:
    def ask(label: str, *wanted: tuple[str, list[int]], version: int = 5) -> Question:
        topics = [DescribableLogDirTopic(name, indexes) for name, indexes in wanted]
        return f"DescribeLogDirs: {label}", DescribeLogDirsRequest(topics), version

    for version in range(1, 6):
        yield ask(f"v{version}", (talk.filled, [0, 1]), (talk.other, [0]), version=version)
    yield ask("no topic")
    yield ask("unknown", ("nope", [0]), (talk.filled, [9, -1, 0]), (talk.other, []), ("a b", [0]))
    yield ask("twice", (talk.filled, [1, 1]), (talk.filled, [0]), (talk.filled, [0]))


def producers(talk: Conversation) -> Iterator[Question]:
    def ask(label: str, *wanted: tuple[str, list[int]]) -> Question:
        topics = [ProducersOf(name, indexes) for name, indexes in wanted]
        return f"DescribeProducers: {label}", DescribeProducersRequest(topics), 0

    yield ask("three, and none", (talk.other, [0]), (talk.filled, [1, 0]))
    yield ask("no topic")
    yield ask(
        "unknown", ("nope", [0, 1]), (talk.other, [9, -1]), ("", [0]), ("a b", [0]), ("..", [0]), ("x" * 250, [0])
    )
    yield ask("no partition", (talk.other, []), ("nope", []))
    yield ask("a partition twice", (talk.other, [0, 0]))


def replicas_and_leaders(talk: Conversation) -> Iterator[Question]:
    def alter(label: str, *wanted: ReassignableTopic, version: int = 1, allow: bool = True) -> Question:
        return (
            f"AlterPartitionReassignments: {label}",
            AlterPartitionReassignmentsRequest(TIMEOUT_MS, allow, list(wanted)),
            version,
        )

    def elect(label: str, *wanted: tuple[str, list[int]], version: int = 2, kind: int = 0) -> Question:
        topics = [TopicPartitions(name, indexes) for name, indexes in wanted]
        return f"ElectLeaders: {label}", ElectLeadersRequest(kind, topics, TIMEOUT_MS), version

    def at(index: int, replicas: list[int] | None) -> ReassignablePartition:
        return ReassignablePartition(index, replicas)

    every: list[list[int] | None] = [[1], [2], [1, 2], [1, 1], [1, 1, -1], [], None, [-1], [2, 1, 1], [3, 2]]
    for replicas in every:
        yield alter(f"to {replicas} v0", ReassignableTopic(talk.filled, [at(0, replicas)]), version=0)
        for allow in (True, False):
            yield alter(f"to {replicas}, allow {allow}", ReassignableTopic(talk.filled, [at(0, replicas)]), allow=allow)
    yield alter("no topic")
    yield alter("no topic, number fixed", allow=False)
    yield alter(
        "unknown and twice",
        ReassignableTopic("nope", [at(0, [1])]),
        ReassignableTopic(talk.filled, [at(9, [1]), at(-1, None), at(0, [1]), at(0, [1])]),
        ReassignableTopic(talk.filled, []),
        ReassignableTopic("", [at(0, [9])]),
    )
    asked = [ListPartitionReassignmentsTopics(talk.filled, [0, 9]), ListPartitionReassignmentsTopics("nope", [0])]
    for label, topics in (("all", None), ("no topic", []), ("some", asked)):
        yield f"ListPartitionReassignments: {label}", ListPartitionReassignmentsRequest(TIMEOUT_MS, topics), 0
    for version in range(3):
        yield elect(f"v{version}", (talk.filled, [0, 1]), (talk.other, [0]), version=version)
        yield elect(f"no topic v{version}", version=version)
    for kind in (1, 2, -1):
        yield elect(f"type {kind}", (talk.filled, [0]), kind=kind)
    yield elect("no topic, type 7", kind=7)
    yield "ElectLeaders: all, type 7", ElectLeadersRequest(7, None, TIMEOUT_MS), 2
    yield elect("unknown and twice", ("nope", [0]), (talk.filled, [9, -1, 0, 0]), (talk.filled, []), ("a b", [0]))


def quorum(talk: Conversation) -> Iterator[Question]:
    def ask(label: str, *wanted: tuple[str, list[int]], version: int = 2) -> Question:
        topics = [
            DescribeQuorumTopic(name, [DescribeQuorumPartition(index) for index in indexes]) for name, indexes in wanted
        ]
        return f"DescribeQuorum: {label}", DescribeQuorumRequest(topics), version

    metadata = "__cluster_metadata"
    for version in range(3):
        yield ask(f"v{version}", (metadata, [0]), version=version)
        yield ask(f"another topic v{version}", (talk.filled, [0]), version=version)
    yield ask("another partition", (metadata, [1]))
    yield ask("two partitions", (metadata, [0, 1]))
    yield ask("twice", (metadata, [0]), (metadata, [0]))
    yield ask("no topic")
    yield ask("no partition", (metadata, []))


def features(talk: Conversation) -> Iterator[Question]:
    def ask(label: str, *updates: FeatureUpdateKey, version: int = 2) -> Question:
        return f"UpdateFeatures: {label}", UpdateFeaturesRequest(TIMEOUT_MS, list(updates), version > 0), version

    for version in range(3):
        yield ask(f"none v{version}", version=version)
        for level in (1, 0, -1):
            yield ask(f"an unknown one to {level} v{version}", FeatureUpdateKey("nope", level), version=version)
        yield ask(f"one that Kafka has v{version}", FeatureUpdateKey("metadata.version", 99), version=version)
    for kind in (0, 2, 3, 4, -1):
        yield ask(f"an unknown one, type {kind}", FeatureUpdateKey("nope", 1, upgrade_type=kind))
    yield ask("an unknown one twice", FeatureUpdateKey("nope", 1), FeatureUpdateKey("nope", 0))


def config_resources(talk: Conversation) -> Iterator[Question]:
    # Of topics the two brokers have others; `tests/broker/test_config_resources.py` looks at those.
    yield "ListConfigResources: v0", ListConfigResourcesRequest(), 0
    for types in ([4], [8], [16], [32], [4, 4, 16], [1], [0], [99], [-1], [2, 99], [4, 127]):
        yield f"ListConfigResources: {types}", ListConfigResourcesRequest(types), 1
    yield "ListConfigResources: every type", ListConfigResourcesRequest([4, 8, 16, 32]), 1


def delete_topics(talk: Conversation) -> Iterator[Question]:
    def ask(label: str, *wanted: tuple[str | None, bytes]) -> Question:
        topics = [DeleteTopicState(name, topic_id) for name, topic_id in wanted]
        return f"DeleteTopics: {label}", DeleteTopicsRequest(topics, [], 10_000), 6

    other = talk.ids[talk.other]
    yield ask("unknown", ("nope", ZERO_UUID), (None, NO_SUCH_ID))
    yield ask("neither and both", (None, ZERO_UUID), (talk.other, NO_SUCH_ID), (None, ZERO_UUID))
    yield ask("twice", *[(talk.other, ZERO_UUID)] * 2, *[(None, NO_SUCH_ID)] * 2)
    yield ask("by name and id", (talk.other, ZERO_UUID), (None, other))
    yield "DeleteTopics: v1", DeleteTopicsRequest([], [talk.compacted, "nope"], 10_000), 1
    yield "DeleteTopics: v5", DeleteTopicsRequest([], [talk.dotted, "nope"], 10_000), 5
    yield ask("good ones", (talk.filled, ZERO_UUID), (None, other))


SUBJECTS: Final[Sequence[Callable[[Conversation], Iterator[Question]]]] = (
    create_topics,
    create_partitions,
    metadata,
    topic_partitions,
    offsets,
    epochs,
    cluster,
    log_dirs,
    producers,
    replicas_and_leaders,
    quorum,
    features,
    config_resources,
    delete_records,
    delete_topics,
)


def normalised(value: Any) -> Any:
    """Without what no two brokers have in common: ids, ports, and the order in which Kafka happens to answer."""
    if isinstance(value, list):
        return sorted((normalised(one) for one in value), key=repr)
    if not dataclasses.is_dataclass(value):
        return value
    found = {entry.name: normalised(getattr(value, entry.name)) for entry in dataclasses.fields(value)}
    if found.get("topic_id") not in (None, ZERO_UUID, NO_SUCH_ID):
        found["topic_id"] = "an id"
    if found.get("cluster_id"):
        found["cluster_id"] = "an id"
    if found.get("producer_id", -1) >= 0:
        found["producer_id"] = "an id"
    if found.get("log_dir"):
        found["log_dir"] = "a directory"
        found["usable_bytes"] = "some bytes" if found["usable_bytes"] > 0 else found["usable_bytes"]
    if found.get("port", -1) >= 0:
        found["port"] = "a port"
    return found


def test_holdfast_answers_like_kafka(apache_kafka: ApacheKafka, holdfast: HoldfastBroker) -> None:
    run = f"like-{uuid.uuid4().hex[:8]}"
    kafka, ours = Conversation(apache_kafka, run), Conversation(holdfast, run)
    different: dict[str, tuple[Any, Any]] = {}
    asked: set[str] = set()

    for subject in SUBJECTS:
        for (label, to_kafka, version), (_, to_ours, _) in zip(subject(kafka), subject(ours), strict=True):
            assert label not in asked, f"two questions are called {label}"
            asked.add(label)
            expected, found = normalised(kafka.ask(to_kafka, version)), normalised(ours.ask(to_ours, version))
            if expected != found:
                different[label] = expected, found

    unexpected = {label: answers for label, answers in different.items() if label not in DIFFERENCES}
    assert not unexpected
    assert set(different) == set(DIFFERENCES), "a difference that is listed is none any more"
