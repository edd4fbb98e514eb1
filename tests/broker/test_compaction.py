"""A compacted topic on a running broker: compacted by itself, read by real clients, deleted in the middle."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonTopicPartition

from holdfast.broker.config.dynamic import altered
from holdfast.broker.server import Broker
from holdfast.broker.storage.topics import Topic
from holdfast.log import compaction
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.records import Record, encode_batch
from tests.broker.test_races import created, run, running
from tests.broker.wire_client import WireClient

QUICK = {"log.cleaner.backoff.ms": "1"}
COMPACTED = {"cleanup.policy": "compact", "internal.segment.bytes": "2000", "min.cleanable.dirty.ratio": "0.1"}
SAME = b"the same key"

Read = Callable[[Broker, Topic], list[bytes | None]]


def address(broker: Broker) -> str:
    return f"127.0.0.1:{broker.address[1]}"


def fill(broker: Broker, topic: Topic, count: int = 300) -> None:
    """Ever new values of one key, each in a batch of its own by an idempotent producer; a key of its own at the end."""
    settings = {"bootstrap.servers": address(broker), "enable.idempotence": True, "batch.num.messages": 1}
    producer = Producer(settings)
    for number in range(count):
        producer.produce(topic.name, b"value %d" % number, SAME, partition=0)
    producer.produce(topic.name, b"end", b"end", partition=0)
    assert producer.flush(30) == 0


async def until_compacted(topic: Topic) -> None:
    log = topic.partitions[0].log
    async with asyncio.timeout(30):
        # The worker thread has nobody to tell.
        while log.segment_count > 3 or log.first_dirty_offset == 0:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def read_with_confluent(broker: Broker, topic: Topic) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": address(broker), "group.id": "unused"})
    consumer.assign([TopicPartition(topic.name, 0, 0)])
    values: list[bytes | None] = []
    try:
        while b"end" not in values:
            message = consumer.poll(20)
            assert message is not None, f"stuck after {values}"
            assert message.error() is None
            value = message.value()
            assert isinstance(value, bytes)
            values.append(value)
        return values
    finally:
        consumer.close()


def read_with_kafka_python(broker: Broker, topic: Topic) -> list[bytes | None]:
    consumer = KafkaConsumer(bootstrap_servers=address(broker), enable_auto_commit=False, consumer_timeout_ms=20_000)
    partition = PythonTopicPartition(topic.name, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    values: list[bytes | None] = []
    try:
        for message in consumer:
            values.append(message.value)
            if message.value == b"end":
                break
        return values
    finally:
        consumer.close()


@pytest.mark.parametrize("read", [read_with_confluent, read_with_kafka_python])
def test_a_compacted_topic_is_compacted_by_itself_and_read_to_its_end(tmp_path: Path, read: Read) -> None:
    async def scenario() -> None:
        async with running(tmp_path, QUICK) as broker:
            topic = await created(broker, "compacted", overrides=COMPACTED)
            await asyncio.to_thread(fill, broker, topic)
            await until_compacted(topic)

            values = await asyncio.to_thread(read, broker, topic)

            # What the active segment holds comes whole.
            assert len(values) < 60
            assert values[-2:] == [b"value 299", b"end"]
        checkpoint = (tmp_path / "cleaner-offset-checkpoint").read_text()
        assert checkpoint.startswith("0\n2\ncompacted 0 ")

    run(scenario())


def test_the_cleaner_is_hurried_while_it_rests(tmp_path: Path) -> None:
    """log.cleaner.backoff.ms is altered while the broker runs: not after the rest that has begun, but at once."""

    async def scenario() -> None:
        async with running(tmp_path, {"log.cleaner.backoff.ms": "600000"}) as broker:
            topic = await created(broker, "compacted", overrides=COMPACTED)
            await asyncio.to_thread(fill, broker, topic)
            assert topic.partitions[0].log.first_dirty_offset == 0

            await broker.dynamic_config.alter(altered(broker.config, {"log.cleaner.backoff.ms": "1"}, {}))

            await until_compacted(topic)

    run(scenario())


def test_nothing_is_compacted_where_it_is_not_asked_for(tmp_path: Path) -> None:
    """The control: the same, with the cleaner off, and with another policy."""

    async def scenario() -> None:
        async with running(tmp_path, {**QUICK, "log.cleaner.enable": "false"}) as broker:
            topic = await created(broker, "compacted", overrides=COMPACTED)
            await asyncio.to_thread(fill, broker, topic, 100)
            assert len(broker.log_maintenance._tasks) == 2
        async with running(tmp_path, QUICK) as broker:
            kept = await created(broker, "kept", overrides={**COMPACTED, "cleanup.policy": "delete"})
            await asyncio.to_thread(fill, broker, kept, 100)
            compacted = broker.topics.get("compacted")
            assert compacted is not None

            await until_compacted(compacted)
            await asyncio.to_thread(broker.log_maintenance.compact)

            values = await asyncio.to_thread(read_with_confluent, broker, kept)
            assert values == [*(b"value %d" % number for number in range(100)), b"end"]

    run(scenario())


def test_a_record_without_key_is_refused_as_kafka_does(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            await created(broker, "compacted", overrides={"cleanup.policy": "compact,delete"})

            def produce(key: bytes | None) -> int:
                with WireClient(broker.address) as client:
                    return client.produce("compacted", encode_batch([Record(0, 0, key, b"value")])).error_code

            assert await asyncio.to_thread(produce, b"key") == 0
            assert await asyncio.to_thread(produce, None) == ErrorCode.INVALID_RECORD

    run(scenario())


def test_a_topic_can_be_deleted_while_it_is_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a compaction that takes long
    reached, deleting = threading.Event(), threading.Event()
    kept = compaction.Compaction._kept

    def slow(self: compaction.Compaction, *arguments: object) -> bytes | None:
        reached.set()
        assert deleting.wait(10)
        return kept(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(compaction.Compaction, "_kept", slow)

    async def scenario() -> None:
        async with running(tmp_path, QUICK) as broker:
            topic = await created(broker, "compacted", overrides=COMPACTED)
            await asyncio.to_thread(fill, broker, topic)
            assert await asyncio.to_thread(reached.wait, 10)

            # when the topic is deleted, and made again at once
            deletion = asyncio.create_task(broker.topics.delete(topic))
            while not topic.partitions[0].log._cleaner._is_closing:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            deleting.set()
            assert await deletion
            again = await created(broker, "compacted", overrides=COMPACTED)

            # then nothing of the old one is in the new one's directory
            assert again.partitions[0].log.end_offset == 0
            await broker.tasks.join()
            names = {path.name for path in (tmp_path / "compacted-0").iterdir()}
            assert names == {f"{0:020d}.log", "partition.metadata"}

    run(scenario())
