import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.gateway.topic_listing import LISTING_VERSION, TopicListing, decode_listing, listing_request
from holdfast.wire.apis.metadata import (
    METADATA,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast.wire.errors import WireError
from holdfast.wire.headers import encode_request
from holdfast.wire.message import decode, encode

replicas = st.lists(st.integers(0, 9), max_size=4) | st.just(list(range(200)))
partitions = st.builds(
    MetadataResponsePartition,
    error_code=st.integers(0, 9),
    partition_index=st.integers(0, 99),
    leader_id=st.integers(-1, 9),
    replica_nodes=replicas,
    isr_nodes=replicas,
    offline_replicas=replicas,
)
topics = st.builds(
    MetadataResponseTopic,
    error_code=st.integers(0, 30),
    name=st.none() | st.text(max_size=9) | st.just("a" * 249),
    topic_id=st.binary(min_size=16, max_size=16),
    is_internal=st.booleans(),
    partitions=st.lists(partitions, max_size=3) | st.just([MetadataResponsePartition()] * 1_100),
)
responses = st.builds(
    MetadataResponse,
    brokers=st.lists(
        st.builds(
            MetadataResponseBroker, node_id=st.integers(0, 9), host=st.text(max_size=9), rack=st.none() | st.text()
        ),
        max_size=3,
    ),
    cluster_id=st.none() | st.text(max_size=9),
    topics=st.lists(topics, max_size=3),
)


@given(responses)
def test_a_listing_is_what_the_general_decoder_finds(response: MetadataResponse) -> None:
    encoded = encode(response, LISTING_VERSION)

    listing = decode(TopicListing, LISTING_VERSION, memoryview(b"head" + encoded), 4)

    assert listing.cluster_id == response.cluster_id
    assert listing.broker_ids == [one.node_id for one in response.brokers]
    assert listing.topics == [
        (one.name, one.topic_id, len(one.partitions), one.error_code) for one in response.topics if one.name is not None
    ]


def test_decoding_pauses_between_topics_and_within_a_large_one() -> None:
    large = MetadataResponseTopic(name="large", partitions=[MetadataResponsePartition()] * 2_000)
    response = MetadataResponse(topics=[large, MetadataResponseTopic(name="small")])

    pauses = sum(1 for _ in decode_listing(encode(response, LISTING_VERSION), 0))

    assert pauses == 2 + 3


def test_a_response_that_ends_too_early_is_an_error() -> None:
    partition = MetadataResponsePartition(replica_nodes=[1, 2, 3], isr_nodes=[1])
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(1, "a-host", 9092, "a-rack")],
        cluster_id="a-cluster",
        topics=[MetadataResponseTopic(name="a-topic", partitions=[partition] * 3)],
    )
    encoded = encode(response, LISTING_VERSION)

    for end in range(len(encoded)):
        with pytest.raises(WireError):
            decode(TopicListing, LISTING_VERSION, encoded[:end])


@pytest.mark.parametrize("hostile", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\xff"])
@pytest.mark.parametrize("position", range(4, 60))
def test_a_hostile_length_is_an_error_or_harmless(position: int, hostile: bytes) -> None:
    partition = MetadataResponsePartition(replica_nodes=[1, 2, 3], isr_nodes=[1])
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(1, "h", 9092)],
        topics=[MetadataResponseTopic(name="t", partitions=[partition])],
    )
    encoded = encode(response, LISTING_VERSION)
    damaged = encoded[:position] + hostile + encoded[position + 1 :]

    try:
        listing = decode(TopicListing, LISTING_VERSION, damaged)
    except WireError:
        return
    assert len(listing.topics) <= 1


def test_the_request_is_a_metadata_request_for_all_topics() -> None:
    plain = METADATA.request(topics=None, allow_auto_topic_creation=False)

    assert encode_request(listing_request(), LISTING_VERSION, 7, "x") == encode_request(plain, LISTING_VERSION, 7, "x")
    assert METADATA.response is MetadataResponse
