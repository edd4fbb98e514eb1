"""What aiokafka does differently from the others: producers and consumers on one event loop."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.errors import MessageSizeTooLargeError, OffsetOutOfRangeError

from tests.client_compat.aiokafka_client import AiokafkaClient
from tests.client_compat.client import DEADLINE_S, Record
from tests.client_compat.servers import Server

AIOKAFKA = AiokafkaClient()
T = TypeVar("T")


def run(work: Coroutine[None, None, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, DEADLINE_S))


def numbered(count: int) -> list[Record]:
    return [Record(value=b"%d" % number) for number in range(count)]


def test_a_consumer_follows_a_producer_on_the_same_loop(server: Server, topic: str) -> None:
    partition = TopicPartition(topic, 0)

    async def ping_pong() -> list[bytes]:
        async with AIOKafkaProducer(bootstrap_servers=server.bootstrap) as producer:
            await producer.send_and_wait(topic, b"0", partition=0)
            async with AIOKafkaConsumer(bootstrap_servers=server.bootstrap) as consumer:
                consumer.assign([partition])
                await consumer.seek_to_beginning(partition)
                seen = []
                async for record in consumer:
                    seen.append(record.value)
                    if len(seen) == 20:
                        return seen
                    await producer.send_and_wait(topic, b"%d" % len(seen), partition=0)
        raise AssertionError("the consumer ended by itself")

    assert run(ping_pong()) == [b"%d" % number for number in range(20)]


def test_a_batch_built_by_hand(server: Server, topic: str) -> None:
    AIOKAFKA.create_topic(server.bootstrap, topic, 1)

    async def send_batch() -> int:
        async with AIOKafkaProducer(bootstrap_servers=server.bootstrap, enable_idempotence=True) as producer:
            batch = producer.create_batch()
            for number in range(5):
                batch.append(key=b"k", value=b"%d" % number, timestamp=1_700_000_000_000 + number)
            placed = await (await producer.send_batch(batch, topic, partition=0))
            return int(placed.offset)

    assert run(send_batch()) == 0
    assert AIOKAFKA.watermarks(server.bootstrap, topic) == (0, 5)


def test_positions_and_the_high_watermark(server: Server, topic: str) -> None:
    AIOKAFKA.produce(server.bootstrap, topic, numbered(10))
    partition = TopicPartition(topic, 0)

    async def look() -> tuple[int, int, int]:
        async with AIOKafkaConsumer(bootstrap_servers=server.bootstrap) as consumer:
            consumer.assign([partition])
            consumer.seek(partition, 3)
            first = await consumer.getone()
            return first.offset, await consumer.position(partition), consumer.highwater(partition)

    assert run(look()) == (3, 4, 10)


def test_an_offset_out_of_range_is_an_error_without_a_reset_policy(server: Server, topic: str) -> None:
    AIOKAFKA.produce(server.bootstrap, topic, numbered(2))
    partition = TopicPartition(topic, 0)

    async def read_past_the_end() -> None:
        async with AIOKafkaConsumer(bootstrap_servers=server.bootstrap, auto_offset_reset="none") as consumer:
            consumer.assign([partition])
            consumer.seek(partition, 100)
            await consumer.getone()

    with pytest.raises(OffsetOutOfRangeError):
        run(read_past_the_end())


def test_a_record_above_the_limit_of_its_topic_is_refused(server: Server, topic: str) -> None:
    AIOKAFKA.create_topic(server.bootstrap, topic, 1, {"max.message.bytes": "1000"})
    AIOKAFKA.produce(server.bootstrap, topic, [Record(value=b"fits")])

    with pytest.raises(MessageSizeTooLargeError):
        AIOKAFKA.produce(server.bootstrap, topic, [Record(value=bytes(1001))])

    assert AIOKAFKA.watermarks(server.bootstrap, topic) == (0, 1)


def test_admin_deletes_records(server: Server, topic: str) -> None:
    AIOKAFKA.produce(server.bootstrap, topic, numbered(10))
    partition = TopicPartition(topic, 0)

    async def delete() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=server.bootstrap)
        await admin.start()
        try:
            await admin.delete_records({partition: RecordsToDelete(before_offset=7)})
        finally:
            await admin.close()

    run(delete())

    assert AIOKAFKA.watermarks(server.bootstrap, topic) == (7, 10)
