"""The records of `__consumer_offsets` are Kafka's: we read what it wrote, its tools read what we write."""

import base64
import json
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from holdfast.log.config import LogConfig
from holdfast.wire.batch import batches
from holdfast.wire.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    subscribed_topics,
)
from holdfast.wire.fields import ZERO_UUID
from holdfast.wire.group_records import (
    GenerationKey,
    GenerationMember,
    GenerationValue,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecordKey,
    GroupRecordValue,
    HighestGenerationKey,
    HighestGenerationValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_record,
    encode_key,
    encode_value,
    partition_for,
)
from holdfast.wire.records import Record, encode_batch
from tests.client_compat.confluent_client import ConfluentClient
from tests.support.apache_kafka import ApacheKafka
from tests.support.eventually import eventually
from tests.support.kafka_distribution import kafka_tool
from tests.unit.log.samples import NOW_MS, append, open_log

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("apache_kafka_distribution"),
]

DUMP = "org.apache.kafka.tools.DumpLogSegments"
OFFSETS_TOPIC = "__consumer_offsets"
PARTITION_COUNT = 50
"""Kafka's default of `offsets.topic.num.partitions`."""

SESSION_MS, REBALANCE_MS = 200_000, 240_000
"""The static member is gone when its group is looked at, and must not have been missed."""

RawRecord = tuple[bytes, bytes | None]
GroupRecord = tuple[GroupRecordKey, GroupRecordValue | None]


# -- what Kafka wrote -------------------------------------------------------------------------------------------------


def test_what_kafka_wrote_is_read_and_written_again_to_the_same_bytes(apache_kafka: ApacheKafka) -> None:
    # given a group of a static member, one whose member has left, one that only commits, and one that was deleted
    topic = create_topic(apache_kafka)
    static, left, commits, deleted = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("static", "left", "é漢😀", "gone"))
    member_id = consume_and_commit(apache_kafka, static, topic, {"group.instance.id": "one"})
    consume_and_commit(apache_kafka, left, topic, {})
    commit_only(apache_kafka, commits, topic)
    commit_only(apache_kafka, deleted, topic)
    delete_group(apache_kafka, deleted)

    # when all of the offsets topic is read, those of other tests' groups included
    stored = {partition: decoded(raw) for partition, raw in read_offsets_topic(apache_kafka).items()}

    # then (in `decoded`) it came out the same, and every group is in the partition that we expect
    homes = defaultdict(set)
    for partition, records in stored.items():
        for key, _ in records:
            if not isinstance(key, HighestGenerationKey):
                homes[key.group].add(partition)
    assert {static, left, commits, deleted} <= set(homes)
    assert homes == {group: {partition_for(group, PARTITION_COUNT)} for group in homes}

    # and the records say what happened
    assert_static_member(last_group(stored, static), member_id, topic)
    empty = last_group(stored, left)
    assert empty is not None
    assert (empty.protocol_type, empty.protocol, empty.leader, empty.members) == ("consumer", None, None, [])
    assert empty.generation >= 2
    offset = last_of(stored, OffsetCommitKey(commits, topic, 0))
    assert isinstance(offset, OffsetCommitValue)
    # confluent-kafka sends the terminating zero of its string along.
    assert (offset.offset, offset.metadata.rstrip("\0"), offset.expire_timestamp) == (5, "märk 😀", -1)
    assert offset.topic_id != ZERO_UUID, "Kafka 4.3.1 adds the topic's id"
    assert last_group(stored, deleted) is None
    assert last_of(stored, OffsetCommitKey(deleted, topic, 0)) is None


def assert_static_member(value: GroupMetadataValue | None, member_id: str, topic: str) -> None:
    assert value is not None
    assert (value.protocol_type, value.protocol, value.leader) == ("consumer", "range", member_id)
    assert value.current_state_timestamp > NOW_MS
    (member,) = value.members
    assert (member.member_id, member.group_instance_id) == (member_id, "one")
    assert (member.client_id, member.client_host) == ("records", "/127.0.0.1")
    assert (member.session_timeout, member.rebalance_timeout) == (SESSION_MS, REBALANCE_MS)
    assert decode_subscription(member.subscription).topics == subscribed_topics(member.subscription) == [topic]
    assert decode_assignment(member.assignment).assigned_partitions == [TopicPartitions(topic, [0])]


def decoded(raw: list[RawRecord]) -> list[GroupRecord]:
    """The records of one partition, each of which encodes to the bytes that it was read from."""
    records = []
    for key_bytes, value_bytes in raw:
        record = decode_record(key_bytes, value_bytes)
        if record is None:
            continue  # a newer kind of group, of another test: ours would be missed below
        key, value = record
        assert encode_key(key) == key_bytes
        if value is not None and value_bytes is not None:
            version = int.from_bytes(value_bytes[:2], "big")
            assert encode_value(value, version) == value_bytes
        records.append(record)
    return records


def last_of(stored: dict[int, list[GroupRecord]], key: GroupRecordKey) -> GroupRecordValue | None:
    """What Kafka stored last under this key; it must have stored something."""
    return [value for records in stored.values() for found, value in records if found == key][-1]


def last_group(stored: dict[int, list[GroupRecord]], group: str) -> GroupMetadataValue | None:
    value = last_of(stored, GroupMetadataKey(group))
    assert value is None or isinstance(value, GroupMetadataValue)
    return value


def consume_and_commit(kafka: ApacheKafka, group: str, topic: str, settings: dict[str, str]) -> str:
    """The id that the member of the group had. A static one leaves silently, others say so."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": group,
            "client.id": "records",
            "session.timeout.ms": SESSION_MS,
            "max.poll.interval.ms": REBALANCE_MS,
            "partition.assignment.strategy": "range",
            "enable.auto.commit": False,
        }
        | settings
    )
    try:
        consumer.subscribe([topic])

        def is_assigned() -> bool:
            consumer.poll(0.1)
            return bool(consumer.assignment())

        eventually(is_assigned, f"{group} has its partition")
        commit(consumer, topic)
        return str(consumer.memberid())
    finally:
        consumer.close()


def commit_only(kafka: ApacheKafka, group: str, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    try:
        commit(consumer, topic)
    finally:
        consumer.close()


def delete_group(kafka: ApacheKafka, group: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_consumer_groups([group])[group].result(30)


def commit(consumer: Consumer, topic: str) -> None:
    offset = TopicPartition(topic, 0, 5, metadata="märk 😀")
    (done,) = consumer.commit(offsets=[offset], asynchronous=False)
    assert done.error is None


def read_offsets_topic(kafka: ApacheKafka) -> dict[int, list[RawRecord]]:
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": "unused", "enable.partition.eof": True, "check.crcs": True}
    )
    records: dict[int, list[RawRecord]] = {partition: [] for partition in range(PARTITION_COUNT)}
    unread = set(records)
    consumer.assign([TopicPartition(OFFSETS_TOPIC, partition, 0) for partition in records])

    def read_some() -> bool:
        for message in consumer.consume(500, timeout=0.2):
            partition = message.partition()
            assert partition is not None
            failure = message.error()
            if failure is not None:
                assert failure.code() == KafkaError._PARTITION_EOF, failure
                unread.discard(partition)
                continue
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            assert value is None or isinstance(value, bytes)
            records[partition].append((key, value))
        return not unread

    try:
        eventually(read_some, "the end of every partition of the offsets topic")
    finally:
        consumer.close()
    return records


def create_topic(kafka: ApacheKafka) -> str:
    """librdkafka that subscribes to a topic of which the broker has not heard yet asks again after five minutes."""
    topic = f"records-{uuid.uuid4().hex[:8]}"
    ConfluentClient().create_topic(kafka.bootstrap, topic, 1)
    return topic


# -- what we write ----------------------------------------------------------------------------------------------------


def test_kafkas_dump_tool_reads_what_we_write_and_skips_what_is_ours(tmp_path: Path) -> None:
    # given a log with a record of every kind and version that we write
    topic_id = bytes(range(16))
    offset_key, group_key = OffsetCommitKey("g", "t", 7), GroupMetadataKey("g")
    subscription = encode_subscription(Subscription(["t"]))
    assignment = encode_assignment(Assignment([TopicPartitions("t", [7])]))
    member = MemberMetadata("a-1", "a", "id", "/host", 3000, 2000, subscription, assignment)
    awaiting = GenerationMember("a-1", "a", "id", "/host", 3000, 2000, subscription)
    records: list[GroupRecord] = [
        (offset_key, OffsetCommitValue(5, 2, "märk", 1000)),
        (offset_key, OffsetCommitValue(5, 2, "märk", 1000, topic_id=topic_id)),
        (offset_key, OffsetCommitValue(5, -1, "märk", 1000, expire_timestamp=2000)),
        (offset_key, None),
        (group_key, GroupMetadataValue("consumer", 27, "range", "a-1", 1000, [member])),
        (GenerationKey("g"), GenerationValue("consumer", 28, "range", "a-1", 1000, [awaiting])),
        (HighestGenerationKey(), HighestGenerationValue(27)),
        (group_key, None),
    ]
    segment = write_segment(tmp_path / f"{OFFSETS_TOPIC}-0", records)

    # when Kafka's tool decodes it
    text = kafka_tool(DUMP, "--offsets-decoder", "--files", str(segment))

    # then it finds in Kafka's records what we put in
    found = [line.partition(" key: ")[2] for line in text.splitlines() if line.startswith("| offset: ")]
    common = {"offset": 5, "metadata": "märk", "commitTimestamp": 1000}
    encoded_id = base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
    assert payload(found[0]) == {"version": "3", "data": common | {"leaderEpoch": 2}}
    assert payload(found[1]) == {"version": "4", "data": common | {"leaderEpoch": 2, "topicId": encoded_id}}
    assert payload(found[2]) == {"version": "1", "data": common | {"expireTimestamp": 2000}}
    assert found[3] == '{"type":"1","data":{"group":"g","topic":"t","partition":7}} payload: <DELETE>'
    group = payload(found[4])["data"]
    (described,) = group["members"]
    assert (group["generation"], group["protocol"], group["leader"]) == (27, "range", "a-1")
    assert (described["groupInstanceId"], described["subscription"]["topics"]) == ("a", ["t"])
    assert described["assignment"]["assignedPartitions"] == [{"topic": "t", "partitions": [7]}]
    assert found[7] == '{"type":"2","data":{"group":"g"}} payload: <DELETE>'

    # and passes over ours
    assert found[5].startswith("Unknown record type 10000")
    assert found[6].startswith("Unknown record type 10001")


def write_segment(directory: Path, records: list[GroupRecord]) -> Path:
    batch = encode_batch(
        [
            Record(offset, NOW_MS, encode_key(key), None if value is None else encode_value(value))
            for offset, (key, value) in enumerate(records)
        ]
    )
    log = open_log(directory, LogConfig())
    append(log, list(batches(bytearray(batch))))
    log.close()
    (segment,) = directory.glob("*.log")
    return segment


def payload(line: str) -> Any:
    return json.loads(line.partition(" payload: ")[2])
