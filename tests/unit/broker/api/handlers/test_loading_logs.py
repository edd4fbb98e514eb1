"""A log that nobody has used since the broker started may have a segment to scan: not on the event loop."""

import asyncio
import threading
from typing import Any

import pytest

from holdfast.broker.storage.disk_health import DiskHealth
from holdfast.log import PartitionLog
from holdfast.wire.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from holdfast.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast.wire.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast.wire.records import Record, encode_batch
from tests.support.handler_broker import NOW_MS, HandlerBroker


class Flusher:
    def appended(self, partition: object) -> None: ...


@pytest.fixture
def woken_by(broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads that looked into directories, of a broker that was stopped and started with three records."""
    broker.append(broker.topic("orders"), [NOW_MS] * 3)
    broker.restart()
    monkeypatch.setattr(broker, "flusher", Flusher(), raising=False)
    monkeypatch.setattr(broker, "disk_health", DiskHealth(), raising=False)
    threads: list[threading.Thread] = []
    original = PartitionLog._load

    def noticed(log: PartitionLog) -> None:
        threads.append(threading.current_thread())
        original(log)

    monkeypatch.setattr(PartitionLog, "_load", noticed)
    return threads


def fetch(offset: int) -> FetchRequest:
    wanted = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1000)
    return FetchRequest(max_bytes=1000, topics=[FetchTopic("orders", partitions=[wanted])])


def produce() -> ProduceRequest:
    data = PartitionProduceData(0, encode_batch([Record(0, NOW_MS, b"k", b"v")]))
    return ProduceRequest(None, 1, 1000, [TopicProduceData("orders", partition_data=[data])])


def delete_records() -> DeleteRecordsRequest:
    return DeleteRecordsRequest([DeleteRecordsTopic("orders", [DeleteRecordsPartition(0, 1)])])


@pytest.mark.parametrize(
    ("request_", "version"), [(fetch(0), 12), (produce(), 9), (delete_records(), 2)], ids=["fetch", "produce", "delete"]
)
def test_a_log_at_rest_is_opened_in_a_worker_thread(
    broker: HandlerBroker, woken_by: list[threading.Thread], request_: Any, version: int
) -> None:
    answer = asyncio.run(broker.handle(request_, version))

    (topic,) = getattr(answer, "responses", None) or answer.topics
    (partition,) = getattr(topic, "partitions", None) or topic.partition_responses
    assert partition.error_code == 0
    assert len(woken_by) == 1 and woken_by[0] is not threading.main_thread()


def test_a_fetch_at_the_end_leaves_the_log_at_rest(broker: HandlerBroker, woken_by: list[threading.Thread]) -> None:
    asyncio.run(broker.handle(fetch(3), 12))
    assert woken_by == []


def test_the_control(broker: HandlerBroker, woken_by: list[threading.Thread]) -> None:
    topic = broker.topics.get("orders")
    assert topic is not None and not topic.partitions[0].log.is_loaded
    broker.append(topic, [NOW_MS])
    assert woken_by == [threading.main_thread()]
