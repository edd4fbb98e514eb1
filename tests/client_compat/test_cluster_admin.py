"""What the admins of kafka-python and librdkafka hear of a cluster of one node: the same from both brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import ElectionType, KafkaError
from confluent_kafka import TopicPartition as RdTopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, TopicPartition
from kafka.errors import (
    InvalidReplicationAssignmentError,
    InvalidUpdateVersionError,
    NoReassignmentInProgressError,
    UnknownTopicOrPartitionError,
)

from holdfast.wire.records import Record, encode_batch
from tests.broker.wire_client import WireClient
from tests.client_compat.confluent_client import wait_until_led
from tests.client_compat.servers import Server

TIMESTAMP = 1_700_000_000_000


@pytest.fixture
def filled(server: Server, topic: str) -> str:
    """A topic of two partitions, the first with a record of an idempotent producer."""
    host, _, port = server.bootstrap.rpartition(":")
    records = encode_batch([Record(0, TIMESTAMP, b"k", b"v")], producer_id=77, producer_epoch=3, base_sequence=5)
    with WireClient((host, int(port))) as client:
        client.create_topic(topic, 2, retention_ms="-1")
        wait_until_led(server.bootstrap, topic, 2)
        assert client.produce(topic, records).error_code == 0
    return topic


@pytest.fixture
def admin(server: Server) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=server.bootstrap)
    yield client
    client.close()


def test_the_log_directory_and_the_producers_of_a_topic(admin: KafkaAdminClient, filled: str) -> None:
    (broker,) = admin.describe_log_dirs({filled: [0, 1]})
    first, second = TopicPartition(filled, 0), TopicPartition(filled, 1)
    producers = admin.describe_producers([first, second])

    (directory,) = broker["log_dirs"]
    (described,) = directory["topics"]
    assert {one["partition_index"]: one["partition_size"] for one in described["partitions"]} == {0: 70, 1: 0}
    assert 0 < directory["usable_bytes"] <= directory["total_bytes"]
    (known,) = producers[first].active_producers
    assert (known.producer_id, known.producer_epoch, known.last_sequence, known.last_timestamp) == (77, 3, 5, TIMESTAMP)
    assert producers[second].active_producers == []


def test_partitions_stay_where_they_are(admin: KafkaAdminClient, filled: str) -> None:
    here, cancelled, absent = (TopicPartition(filled, index) for index in (0, 1, 9))

    assert admin.list_partition_reassignments() == {}
    assert admin.alter_partition_reassignments({here: [1], cancelled: None, absent: [1]}) == {
        here: None,
        cancelled: NoReassignmentInProgressError,
        absent: UnknownTopicOrPartitionError,
    }
    assert admin.alter_partition_reassignments({here: [2]}) == {here: InvalidReplicationAssignmentError}
    assert admin.list_partition_reassignments({filled: [0, 1]}) == {}


def test_no_leader_has_to_be_elected(server: Server, admin: KafkaAdminClient, filled: str) -> None:
    (topic,) = admin.elect_leaders(0, {filled: [0, 1]}).replica_election_results
    assert [one.error_code for one in topic.partition_result] == [KafkaError.ELECTION_NOT_NEEDED] * 2
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.elect_leaders(0, {filled: [7]})

    librdkafka = AdminClient({"bootstrap.servers": server.bootstrap})
    partitions = [RdTopicPartition(filled, 0), RdTopicPartition(filled, 7)]
    results = librdkafka.elect_leaders(ElectionType.PREFERRED, partitions).result()
    assert {one.partition: error.code() for one, error in results.items() if error is not None} == {
        0: KafkaError.ELECTION_NOT_NEEDED,
        7: KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
    assert librdkafka.elect_leaders(ElectionType.UNCLEAN, None).result() == {}


def test_one_node_is_the_quorum(admin: KafkaAdminClient) -> None:
    described = admin.describe_metadata_quorum()

    ((partition,),) = (topic["partitions"] for topic in described["topics"])
    assert (partition["leader_id"], partition["error"], partition["observers"]) == (1, None, [])
    assert [voter["replica_id"] for voter in partition["current_voters"]] == [1]
    assert [(node["node_id"], len(node["listeners"])) for node in described["nodes"]] == [(1, 1)]


def test_config_resources_and_features(admin: KafkaAdminClient, filled: str) -> None:
    assert admin.list_config_resources(["BROKER"]) == {"broker": ["1"]}
    assert filled in admin.list_config_resources()["topic"]
    with pytest.raises(InvalidUpdateVersionError):
        admin.update_features({"nope": 1})
