"""Reading what Metadata answers."""

import pytest

from holdfast.client.errors import ConfigError, TopicError
from holdfast.client.metadata import metadata_request, read_metadata, topic_pattern
from holdfast.wire.apis.metadata import (
    METADATA,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.message import decode, encode

ALL_VERSIONS = range(METADATA.versions[0], METADATA.versions[1] + 1)


def partition(index: int, *replicas: int) -> MetadataResponsePartition:
    return MetadataResponsePartition(partition_index=index, leader_id=replicas[0], replica_nodes=list(replicas))


def response(*topics: MetadataResponseTopic, racks: tuple[str | None, ...] = ("a", "b")) -> MetadataResponse:
    brokers = [MetadataResponseBroker(number, f"host{number}", 9092, rack) for number, rack in enumerate(racks)]
    return MetadataResponse(brokers=brokers, cluster_id="c", controller_id=1, topics=list(topics))


def topic(name: str, *partitions: MetadataResponsePartition, internal: bool = False) -> MetadataResponseTopic:
    return MetadataResponseTopic(name=name, partitions=list(partitions), is_internal=internal)


def refused(name: str, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(code, name)


def test_topics_have_their_partitions_and_the_racks_of_their_replicas() -> None:
    # Given a topic whose partitions come in any order, one of them with a replica on a broker that is down
    found = read_metadata(response(topic("t", partition(1, 1, 7), partition(0, 0, 1))))
    # Then the assignor sees racks by partition number
    cluster = found.cluster()
    assert cluster.partitions == {"t": 2}
    assert cluster.racks == {"t": (frozenset("ab"), frozenset("b"))}
    assert found.topic("t").leaders == (0, 1)
    assert (found.nodes[1].address, found.nodes[1].rack) == (("host1", 9092), "b")
    assert (found.cluster_id, found.controller_id) == ("c", 1)


def test_without_racks_none_are_claimed() -> None:
    assert read_metadata(response(topic("t", partition(0, 0)), racks=(None, None))).cluster().racks == {}


def test_a_pattern_means_no_internal_topic_and_no_topic_that_cannot_be_had() -> None:
    found = read_metadata(
        response(
            topic("orders", partition(0, 0)),
            topic("orders-eu", partition(0, 0)),
            topic("reorders", partition(0, 0)),
            topic("__orders", partition(0, 0), internal=True),
            refused("orders-gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        )
    )
    assert found.matching(topic_pattern("^orders")) == {"orders", "orders-eu"}
    assert found.matching(topic_pattern("^orders$")) == {"orders"}
    assert found.matching(topic_pattern("^.*orders$")) == {"orders", "reorders"}
    assert found.cluster({"__orders"}).partitions == {"__orders": 1}, "by its name an internal topic can be had"


def test_version_0_does_not_mark_internal_topics_but_kafkas_are_known() -> None:
    said = response(topic("__consumer_offsets", partition(0, 0), internal=True), topic("t", partition(0, 0)))
    found = read_metadata(decode(MetadataResponse, 0, encode(said, 0)))
    assert found.matching(topic_pattern("^.*")) == {"t"}


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"subscription '\^\[' is not a regular expression"):
        topic_pattern("^[")


@pytest.mark.parametrize(
    ("code", "said", "retriable"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not exist", True),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "may not see it", False),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, "no topic can have this name", False),
        (ErrorCode.KAFKA_STORAGE_ERROR, "log of the broker", True),
    ],
)
def test_a_topic_that_cannot_be_had_says_why(code: ErrorCode, said: str, retriable: bool) -> None:
    found = read_metadata(response(topic("here", partition(0, 0)), refused("gone", code)))
    assert found.topic("here").partitions == 1
    with pytest.raises(TopicError, match=f"topic 'gone' .*{said}") as raised:
        found.topic("gone")
    assert (raised.value.code, raised.value.retriable) == (code, retriable)
    assert found.cluster({"here", "gone"}).partitions == {"here": 1}


def test_an_error_code_of_a_newer_kafka_is_an_unknown_one() -> None:
    said = response(MetadataResponseTopic(error_code=31_000, name="t"))
    assert read_metadata(said).errors == {"t": ErrorCode.UNKNOWN_SERVER_ERROR}


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_every_version_can_ask_for_some_and_for_all(version: int) -> None:
    some, everything = metadata_request(["a", "b", "a"], version), metadata_request(None, version)
    assert [one.name for one in some.topics or ()] == ["a", "b"]
    assert everything.topics == ([] if version == 0 else None)
    assert some.allow_auto_topic_creation == (version < 4), "asking must not create topics where that can be said"
    for request in (some, everything):
        assert encode(request, version)
