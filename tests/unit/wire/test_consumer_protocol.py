"""The embedded consumer protocol: bytes by hand, by other implementations, by property, and hostile ones."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from importlib import import_module
from typing import Any

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kio.serial import entity_reader, entity_writer

from holdfast.wire.consumer_protocol import (
    EMPTY_ASSIGNMENT,
    LATEST_VERSION,
    NO_GENERATION,
    Assignment,
    AssignmentWriter,
    Subscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    subscribed_topics,
    topic_count,
)
from holdfast.wire.errors import WireError
from tests.support.wire_messages import messages, restricted

VERSIONS = range(LATEST_VERSION + 1)

SUBSCRIPTION = Subscription(["a", "b"], None, [TopicPartitions("t", [0, 1])], 7, "r")
TOPICS = "000000020001 610001 62"
OWNED = "000000010001 7400000002 00000000 00000001"
SUBSCRIPTION_BYTES = {
    0: "0000" + TOPICS + "ffffffff",
    1: "0001" + TOPICS + "ffffffff" + OWNED,
    2: "0002" + TOPICS + "ffffffff" + OWNED + "00000007",
    3: "0003" + TOPICS + "ffffffff" + OWNED + "00000007" + "0001 72",
}

ASSIGNMENT = Assignment([TopicPartitions("t", [0, 1])], b"\x09")
ASSIGNMENT_BODY = OWNED + "00000001 09"


# -- bytes ------------------------------------------------------------------------------------------------------------


def test_topics_and_partitions_are_sorted_when_written() -> None:
    owned = [TopicPartitions("t", [1]), TopicPartitions("s", [3]), TopicPartitions("t", [0])]
    subscription = Subscription(["b", "a"], None, owned, 7, "r")

    encoded = encode_subscription(subscription)

    both_topics = "000000020001 7300000001 000000030001 7400000002 00000000 00000001"
    assert encoded == bytes.fromhex("0003" + TOPICS + "ffffffff" + both_topics + "00000007" + "0001 72")
    assert subscription == Subscription(["b", "a"], None, owned, 7, "r"), "what the caller holds stays as it was"


def test_assignments_are_sorted_too() -> None:
    assignment = Assignment([TopicPartitions("t", [1]), TopicPartitions("t", [0])], b"\x09")

    assert encode_assignment(assignment) == bytes.fromhex("0003" + ASSIGNMENT_BODY)


def test_the_order_is_javas() -> None:
    # U+1F600 is D83D DE00 in UTF-16, before U+FF5E; by code point it comes after.
    assert subscribed_topics(encode_subscription(Subscription(["～", "😀"]))) == ["😀", "～"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_subscription_of_any_version_is_written_and_read(version: int) -> None:
    encoded = bytes.fromhex(SUBSCRIPTION_BYTES[version])

    assert encode_subscription(SUBSCRIPTION, version) == encoded
    assert decode_subscription(encoded) == restricted(SUBSCRIPTION, version)


def test_what_old_versions_lack_is_read_as_none() -> None:
    read = decode_subscription(bytes.fromhex(SUBSCRIPTION_BYTES[1]))

    assert (read.generation_id, read.rack_id) == (NO_GENERATION, None)


@pytest.mark.parametrize("version", [4, 5, 0x7FFF])
def test_a_later_version_is_read_as_v3_and_what_it_adds_is_left_alone(version: int) -> None:
    prefix = version.to_bytes(2, "big")
    subscription = prefix + bytes.fromhex(SUBSCRIPTION_BYTES[3])[2:] + b"more"
    assignment = prefix + bytes.fromhex(ASSIGNMENT_BODY) + b"more"

    assert decode_subscription(subscription) == SUBSCRIPTION
    assert decode_assignment(assignment) == ASSIGNMENT


@pytest.mark.parametrize(("user_data", "written"), [(None, "ffffffff"), (b"", "00000000"), (b"\x01", "00000001 01")])
def test_no_user_data_is_not_the_same_as_empty_user_data(user_data: bytes | None, written: str) -> None:
    encoded = bytes.fromhex("000000000000" + written)

    assert encode_subscription(Subscription([], user_data), 0) == encoded
    assert encode_assignment(Assignment([], user_data), 0) == encoded
    assert decode_subscription(encoded).user_data == user_data
    assert decode_assignment(encoded).user_data == user_data


def test_an_empty_rack_is_none() -> None:
    empty, none = ("000300000000ffffffff00000000ffffffff" + rack for rack in ("0000", "ffff"))

    assert decode_subscription(bytes.fromhex(empty)).rack_id is None
    assert decode_subscription(bytes.fromhex(none)).rack_id is None
    assert encode_subscription(Subscription(rack_id="")) == bytes.fromhex(none)


def test_a_negative_generation_is_none() -> None:
    encoded = bytes.fromhex("000200000000ffffffff00000000fffffff0")

    assert decode_subscription(encoded).generation_id == NO_GENERATION


@pytest.mark.parametrize("version", VERSIONS)
def test_assignments_of_all_versions_look_the_same(version: int) -> None:
    encoded = version.to_bytes(2, "big") + bytes.fromhex(ASSIGNMENT_BODY)

    assert encode_assignment(ASSIGNMENT, version) == encoded
    assert decode_assignment(encoded) == ASSIGNMENT


@given(
    st.dictionaries(st.text(max_size=5), st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4), max_size=5),
    st.none() | st.binary(max_size=9),
)
def test_the_writer_of_many_assignments_writes_the_same(
    partitions: dict[str, list[int]], user_data: bytes | None
) -> None:
    entries = [TopicPartitions(topic, numbers) for topic, numbers in partitions.items() if numbers]
    writer = AssignmentWriter()

    for _ in range(2):  # from what it has kept, too
        assert writer.write(partitions, user_data) == encode_assignment(Assignment(entries, user_data))


@pytest.mark.parametrize("partitions", [{"t": [2**31]}, {"x" * 40_000: [0]}])
def test_invalid_contents_of_an_assignment_are_refused(partitions: dict[str, list[int]]) -> None:
    with pytest.raises(WireError):
        AssignmentWriter().write(partitions)


def test_the_empty_assignment_is_a_whole_one() -> None:
    assert encode_assignment(Assignment(), version=0) == EMPTY_ASSIGNMENT
    assert decode_assignment(EMPTY_ASSIGNMENT) == Assignment([], None)
    assert ConsumerProtocolMemberAssignment.decode(EMPTY_ASSIGNMENT).partitions() == []
    assert ConsumerProtocolAssignment.decode(EMPTY_ASSIGNMENT).partitions() == []


# -- what the coordinator reads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_the_coordinator_reads_the_topics_of_any_version(version: int) -> None:
    assert subscribed_topics(encode_subscription(SUBSCRIPTION, version)) == ["a", "b"]


@pytest.mark.parametrize("prefix", ["0009", "ffff"])
@pytest.mark.parametrize("rest", ["", "7fffffff", "ffffffff7fffffff"])
def test_the_coordinator_reads_the_topics_before_anything_it_cannot_read(prefix: str, rest: str) -> None:
    assert subscribed_topics(bytes.fromhex(prefix + TOPICS + rest)) == ["a", "b"]


@pytest.mark.parametrize(
    "metadata",
    [b"", b"\x00", b"\x00\x00", b"\x00\x03\x00\x00", b"not the consumer protocol", bytes.fromhex("0000 ffffffff")],
)
def test_unreadable_topics_are_distinguished_from_no_topics(metadata: bytes) -> None:
    with pytest.raises(WireError):
        subscribed_topics(metadata)

    assert subscribed_topics(bytes.fromhex("0000 00000000 ffffffff")) == []


@pytest.mark.parametrize("topics", [[], ["a"], ["a", "b", "c"]])
def test_topics_are_counted_without_a_look_at_them(topics: list[str]) -> None:
    assert topic_count(encode_subscription(Subscription(topics))) == len(topics)
    with pytest.raises(WireError, match="has no topics"):
        topic_count(b"\x00\x03\x00\x00\x00")


# -- other implementations --------------------------------------------------------------------------------------------


def in_kio(name: str, version: int) -> Any:
    return import_module(f"kio.schema.{name}.v{version}.data")


def through_kio(schema: Any, body: bytes) -> bytes:
    understood, size = entity_reader(schema)(body, 0)
    assert size == len(body)
    written = io.BytesIO()
    entity_writer(schema)(written, understood)
    return written.getvalue()


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=20, deadline=None)
@given(subscription=messages(Subscription), assignment=messages(Assignment))
def test_kio_reads_what_we_write_and_writes_the_same(
    version: int, subscription: Subscription, assignment: Assignment
) -> None:
    body = encode_subscription(subscription, version)[2:]
    schema = in_kio("consumer_protocol_subscription", version).ConsumerProtocolSubscription
    assert through_kio(schema, body) == body

    body = encode_assignment(assignment, version)[2:]
    schema = in_kio("consumer_protocol_assignment", version).ConsumerProtocolAssignment
    assert through_kio(schema, body) == body


@pytest.mark.parametrize("version", VERSIONS)
def test_kafka_python_writes_the_same(version: int) -> None:
    owned = [ConsumerProtocolSubscription.TopicPartition("t", [0, 1])]
    assigned = [ConsumerProtocolAssignment.TopicPartition("t", [0, 1])]

    subscription = ConsumerProtocolSubscription(
        topics=["a", "b"], user_data=None, owned_partitions=owned, generation_id=7, rack_id="r", version=version
    ).encode()
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=assigned, user_data=b"\x09", version=version
    ).encode()  # fmt: skip

    assert encode_subscription(SUBSCRIPTION, version) == subscription
    assert encode_assignment(ASSIGNMENT, version) == assignment


def test_kafka_python_reads_the_same_values() -> None:
    subscription = ConsumerProtocolSubscription.decode(encode_subscription(SUBSCRIPTION))
    assignment = ConsumerProtocolAssignment.decode(encode_assignment(ASSIGNMENT))

    assert (subscription.topics, subscription.user_data) == (["a", "b"], None)
    assert [(owned.topic, owned.partitions) for owned in subscription.owned_partitions] == [("t", [0, 1])]
    assert (subscription.generation_id, subscription.rack_id) == (7, "r")
    assert [(topic.topic, topic.partitions) for topic in assignment.assigned_partitions] == [("t", [0, 1])]
    assert assignment.user_data == b"\x09"


def test_aiokafka_writes_the_same() -> None:
    """It has v0 only, and reads assignments of later versions as that."""
    subscription = ConsumerProtocolMemberMetadata(0, ["a", "b"], b"\x09").encode()
    assignment = ConsumerProtocolMemberAssignment(0, [("t", [0, 1])], b"\x09").encode()

    assert encode_subscription(Subscription(["a", "b"], b"\x09"), 0) == subscription
    assert encode_assignment(ASSIGNMENT, 0) == assignment
    assert [*map(tuple, ConsumerProtocolMemberAssignment.decode(encode_assignment(ASSIGNMENT)).partitions())] == [
        ("t", 0),
        ("t", 1),
    ]


# -- round trips ------------------------------------------------------------------------------------------------------


def partitions_of(entries: list[TopicPartitions]) -> list[tuple[str, int]]:
    return sorted((entry.topic, partition) for entry in entries for partition in entry.partitions)


@settings(max_examples=100, deadline=None)
@given(drawn=messages(Subscription), version=st.sampled_from(VERSIONS))
def test_a_subscription_that_is_written_is_read_again(drawn: Subscription, version: int) -> None:
    given_one = restricted(drawn, version)

    read = decode_subscription(encode_subscription(given_one, version))

    assert sorted(read.topics) == sorted(given_one.topics)
    assert partitions_of(read.owned_partitions) == partitions_of(given_one.owned_partitions)
    assert read.generation_id == max(given_one.generation_id, NO_GENERATION)
    assert (read.user_data, read.rack_id) == (given_one.user_data, given_one.rack_id or None)
    assert decode_subscription(encode_subscription(read, version)) == read


@settings(max_examples=100, deadline=None)
@given(drawn=messages(Assignment), version=st.sampled_from(VERSIONS))
def test_an_assignment_that_is_written_is_read_again(drawn: Assignment, version: int) -> None:
    read = decode_assignment(encode_assignment(drawn, version))

    assert partitions_of(read.assigned_partitions) == partitions_of(drawn.assigned_partitions)
    assert read.user_data == drawn.user_data
    assert decode_assignment(encode_assignment(read, version)) == read


@given(topics=st.permutations(["a", "b", "c"]), partitions=st.permutations([0, 1, 2]))
def test_equal_subscriptions_give_equal_bytes(topics: list[str], partitions: list[int]) -> None:
    subscription = Subscription(topics, None, [TopicPartitions(topic, partitions) for topic in topics])
    ordered = Subscription(["a", "b", "c"], None, [TopicPartitions(topic, [0, 1, 2]) for topic in "abc"])

    assert encode_subscription(subscription) == encode_subscription(ordered)


# -- hostile input ----------------------------------------------------------------------------------------------------


def test_a_subscription_v1_without_owned_partitions_owns_nothing() -> None:
    """kafka-go (segmentio) writes it so."""
    as_v1 = b"\x00\x01" + encode_subscription(Subscription(["t"], b"user data"), 0)[2:]

    assert decode_subscription(as_v1) == Subscription(["t"], b"user data")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_buffer_cut_short_anywhere_is_refused(version: int) -> None:
    subscription, assignment = encode_subscription(SUBSCRIPTION, version), encode_assignment(ASSIGNMENT, version)

    without_owned = len(encode_subscription(SUBSCRIPTION, 0))
    for size in range(len(subscription)):
        if version == 1 and size == without_owned:
            continue  # kafka-go's, see below
        with pytest.raises(WireError):
            decode_subscription(subscription[:size])
    for size in range(len(assignment)):
        with pytest.raises(WireError):
            decode_assignment(assignment[:size])


@pytest.mark.parametrize("version", [-1, -0x8000])
def test_a_negative_version_is_refused(version: int) -> None:
    prefix = version.to_bytes(2, "big", signed=True)

    with pytest.raises(WireError, match=f"no version {version}"):
        decode_subscription(prefix + bytes.fromhex(SUBSCRIPTION_BYTES[3])[2:])
    with pytest.raises(WireError, match=f"no version {version}"):
        decode_assignment(prefix + bytes.fromhex(ASSIGNMENT_BODY))


@pytest.mark.parametrize("version", [-1, 4])
def test_a_version_that_does_not_exist_is_not_written(version: int) -> None:
    with pytest.raises(WireError, match=f"no version {version}"):
        encode_subscription(SUBSCRIPTION, version)
    with pytest.raises(WireError, match=f"no version {version}"):
        encode_assignment(ASSIGNMENT, version)


@pytest.mark.parametrize("read", [decode_subscription, decode_assignment, subscribed_topics])
def test_counts_that_the_buffer_cannot_hold_are_refused(read: Any) -> None:
    with pytest.raises(WireError, match="2147483647 elements"):
        read(bytes.fromhex("00037fffffff") + bytes(1000))


@pytest.mark.parametrize("read", [decode_subscription, decode_assignment, subscribed_topics, topic_count])
@given(data=st.binary(max_size=60))
def test_any_bytes_are_refused_or_read(read: Any, data: bytes) -> None:
    for prefix in (b"", b"\x00\x00", b"\x00\x03"):
        with contextlib.suppress(WireError):
            read(prefix + data)


def test_damaged_bytes_are_refused_or_read() -> None:
    for encoded, read in (
        (encode_subscription(dataclasses.replace(SUBSCRIPTION, user_data=b"data")), decode_subscription),
        (encode_assignment(ASSIGNMENT), decode_assignment),
    ):
        for position in range(len(encoded)):
            for damage in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x00\x00\x00\x00"):
                with contextlib.suppress(WireError):
                    read(encoded[:position] + damage + encoded[position + 4 :])
