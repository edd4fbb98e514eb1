"""Topics with thousands of partitions, and requests to them."""

from __future__ import annotations

import time
from typing import Final

from benchmarks.pace import PRODUCE_VERSION
from benchmarks.servers import Broker
from benchmarks.wire import Wire, expect_none, request_frame
from holdfast.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest
from holdfast.wire.apis.metadata import MetadataRequest
from holdfast.wire.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast.wire.records import Record, encode_batch

PER_TOPIC: Final = 100
METADATA_VERSION: Final = 12
_CREATE_VERSION: Final = 7
_TOPICS_PER_REQUEST: Final = 10
_TIMEOUT_MS: Final = 60_000
_PATIENCE_S: Final = 120.0
_LOOK_S: Final = 0.02


def create(broker: Broker, partitions: int) -> None:
    """Creates topics of a hundred partitions each, and waits until all partitions have a leader."""
    names = [_topic(number) for number in range(partitions // PER_TOPIC)]
    with Wire(broker) as wire:
        for first in range(0, len(names), _TOPICS_PER_REQUEST):
            wanted = [CreatableTopic(name, PER_TOPIC, 1) for name in names[first : first + _TOPICS_PER_REQUEST]]
            answer = wire.ask(CreateTopicsRequest(wanted, _TIMEOUT_MS), _CREATE_VERSION)
            for topic in answer.topics:
                expect_none(topic.error_code, "CreateTopics")
    await_led(broker, partitions)


def await_led(broker: Broker, partitions: int) -> None:
    """Waits until Metadata has a leader for all of them."""
    deadline = time.monotonic() + _PATIENCE_S
    with Wire(broker) as wire:
        while (led := _led(wire)) < partitions:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{led} of {partitions} partitions have a leader after {_PATIENCE_S:g} s")
            time.sleep(_LOOK_S)


def _led(wire: Wire) -> int:
    answer = wire.ask(MetadataRequest(topics=None), METADATA_VERSION)
    found = [partition for topic in answer.topics if not topic.is_internal for partition in topic.partitions]
    return sum(partition.error_code == 0 and partition.leader_id >= 0 for partition in found)


def metadata_frame() -> bytes:
    """Of all topics."""
    return request_frame(MetadataRequest(topics=None), METADATA_VERSION)


def produce_frames(partitions: int, count: int, record_bytes: int) -> list[bytes]:
    """One record each, to partitions that are spread evenly over all topics."""
    batch = encode_batch([Record(0, time.time_ns() // 1_000_000, None, bytes(record_bytes))])
    frames = []
    for number in range(0, partitions, partitions // count):
        data = PartitionProduceData(index=number % PER_TOPIC, records=batch)
        topic = TopicProduceData(name=_topic(number // PER_TOPIC), partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=[topic])
        frames.append(request_frame(request, PRODUCE_VERSION))
    return frames


def _topic(number: int) -> str:
    return f"many-{number:04}"
