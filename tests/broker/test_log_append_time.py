"""Which record has the largest timestamp where the broker gives them; the test marked `real` asks Apache Kafka."""

from __future__ import annotations

import uuid

import pytest

from holdfast.wire.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from holdfast.wire.apis.produce import PartitionProduceResponse
from holdfast.wire.compression import Codec
from tests.broker.wire_client import WireClient, batch
from tests.support.apache_kafka import ApacheKafka
from tests.support.eventually import eventually
from tests.support.fixtures import apache_kafka, apache_kafka_distribution
from tests.support.holdfast_broker import HoldfastBroker

__all__ = ["apache_kafka", "apache_kafka_distribution"]

MAX_TIMESTAMP = -3


def stored(client: WireClient, topic: str) -> PartitionProduceResponse | None:
    answer = client.produce(topic, batch(b"a", b"b"))
    return answer if answer.error_code == 0 else None


def first_of_the_latest(address: tuple[str, int], codec: Codec) -> bool:
    """Whether the answer is the first record of the first batch that has the largest timestamp."""
    topic = f"append-time-{uuid.uuid4().hex}"
    with WireClient(address) as client:
        client.create_topic(topic, message_timestamp_type="LogAppendTime")
        # Kafka answers CreateTopics before the new topic takes records.
        first = eventually(lambda: stored(client, topic), "a batch is stored")
        assert first is not None
        answers = [first]
        answers += [client.produce(topic, batch(b"c", b"d", b"e", compression=codec)) for _ in range(5)]
        first_offsets = {answer.log_append_time_ms: answer.base_offset for answer in reversed(answers)}
        wanted = ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, MAX_TIMESTAMP)])
        (found,) = client.ask(ListOffsetsRequest(-1, 0, [wanted]), 7).topics[0].partitions
        latest = max(first_offsets)
        return (found.error_code, found.timestamp, found.offset) == (0, latest, first_offsets[latest])


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_the_first_record_of_the_latest_batch_is_the_latest(codec: Codec, broker: HoldfastBroker) -> None:
    assert first_of_the_latest(broker.address, codec)


@pytest.mark.real
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_apache_kafka_says_the_same(codec: Codec, apache_kafka: ApacheKafka) -> None:
    assert first_of_the_latest(apache_kafka.address, codec)
