"""aiokafka: the wire on asyncio. Each call here runs an event loop of its own."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import for_code

from tests.client_compat.client import BEGINNING, DEADLINE_S, DEFAULT_SENDING, END, Record, Sending, Stored
from tests.client_compat.confluent_client import wait_until_led


class AiokafkaReader:
    def __init__(self, runner: asyncio.Runner, consumer: AIOKafkaConsumer) -> None:
        self._runner = runner
        self._consumer = consumer

    def poll(self, timeout_s: float) -> list[Stored]:
        polled = self._runner.run(self._consumer.getmany(timeout_ms=round(timeout_s * 1000)))
        return [_stored(record) for records in polled.values() for record in records]


class AiokafkaClient:
    name = "aiokafka"

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        partition: int = 0,
        sending: Sending = DEFAULT_SENDING,
    ) -> None:
        asyncio.run(asyncio.wait_for(_produce(bootstrap, topic, records, partition, sending), DEADLINE_S))

    @contextmanager
    def reader(
        self, bootstrap: str, topic: str, partition: int = 0, start: int = BEGINNING, fetch_wait_ms: int | None = None
    ) -> Iterator[AiokafkaReader]:
        settings: dict[str, Any] = {} if fetch_wait_ms is None else {"fetch_max_wait_ms": fetch_wait_ms}

        async def assigned() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, **settings)
            await consumer.start()
            tp = TopicPartition(topic, partition)
            consumer.assign([tp])
            await _seek(consumer, tp, start)
            return consumer

        with asyncio.Runner() as runner:
            consumer = runner.run(asyncio.wait_for(assigned(), DEADLINE_S))
            try:
                yield AiokafkaReader(runner, consumer)
            finally:
                runner.run(consumer.stop())

    def offset_for_time(self, bootstrap: str, topic: str, partition: int, timestamp_ms: int) -> int | None:
        tp = TopicPartition(topic, partition)

        async def look_up() -> int | None:
            async with _consumer(bootstrap) as consumer:
                found = (await consumer.offsets_for_times({tp: timestamp_ms}))[tp]
                return None if found is None else int(found.offset)

        return asyncio.run(look_up())

    def watermarks(self, bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
        tp = TopicPartition(topic, partition)

        async def look_up() -> tuple[int, int]:
            async with _consumer(bootstrap) as consumer:
                return (await consumer.beginning_offsets([tp]))[tp], (await consumer.end_offsets([tp]))[tp]

        return asyncio.run(look_up())

    def seek_and_read(self, bootstrap: str, topic: str, steps: Sequence[int]) -> list[Stored]:
        tp = TopicPartition(topic, 0)

        async def move_about() -> list[Stored]:
            read = []
            async with _consumer(bootstrap) as consumer:
                consumer.assign([tp])
                for offset in steps:
                    await _seek(consumer, tp, offset)
                    read.append(_stored(await asyncio.wait_for(consumer.getone(tp), DEADLINE_S)))
            return read

        return asyncio.run(move_about())

    def begin_transaction(self, bootstrap: str, transactional_id: str) -> None:
        async def begin() -> None:
            producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
            try:
                await asyncio.wait_for(producer.start(), DEADLINE_S)
            finally:
                await producer.stop()

        asyncio.run(begin())

    def topics(self, bootstrap: str) -> dict[str, int]:
        async def look_up() -> dict[str, int]:
            async with _admin(bootstrap) as admin:
                return {topic["topic"]: len(topic["partitions"]) for topic in await admin.describe_topics()}

        return asyncio.run(look_up())

    def create_topic(
        self, bootstrap: str, topic: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        async def create() -> None:
            new = NewTopic(topic, num_partitions=partitions, replication_factor=1, topic_configs=dict(configs or {}))
            async with _admin(bootstrap) as admin:
                reply = await admin.create_topics([new])
            _raise_errors((error[0], error[1]) for error in reply.topic_errors)

        asyncio.run(create())
        wait_until_led(bootstrap, topic, partitions)

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        async def delete() -> None:
            async with _admin(bootstrap) as admin:
                reply = await admin.delete_topics([topic])
            _raise_errors(reply.topic_error_codes)

        asyncio.run(delete())

    def grow_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        async def grow() -> None:
            async with _admin(bootstrap) as admin:
                await admin.create_partitions({topic: NewPartitions(partitions)})

        asyncio.run(grow())

    def topic_configs(self, bootstrap: str, topic: str) -> dict[str, str | None]:
        async def look_up() -> dict[str, str | None]:
            async with _admin(bootstrap) as admin:
                (reply,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            ((error_code, message, _, name, entries),) = reply.resources
            _raise_errors([(f"{name}: {message}", error_code)])
            return {entry[0]: entry[1] for entry in entries}

        return asyncio.run(look_up())

    def set_topic_config(self, bootstrap: str, topic: str, name: str, value: str) -> None:
        async def alter() -> None:
            resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={name: value})
            async with _admin(bootstrap) as admin:
                (reply,) = await admin.alter_configs([resource])
            _raise_errors((resource[3], resource[0]) for resource in reply.resources)

        asyncio.run(alter())


async def _produce(bootstrap: str, topic: str, records: Sequence[Record], partition: int, sending: Sending) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **_producer_settings(sending))
    await producer.start()
    try:
        acknowledged = [
            await producer.send(
                topic,
                value=record.value,
                key=record.key,
                partition=partition,
                timestamp_ms=record.timestamp_ms,
                headers=list(record.headers),
            )
            for record in records
        ]
        await asyncio.gather(*acknowledged)
    finally:
        await producer.stop()


@asynccontextmanager
async def _consumer(bootstrap: str) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await asyncio.wait_for(consumer.start(), DEADLINE_S)
    try:
        yield consumer
    finally:
        await consumer.stop()


@asynccontextmanager
async def _admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await asyncio.wait_for(admin.start(), DEADLINE_S)
    try:
        yield admin
    finally:
        await admin.close()


async def _seek(consumer: AIOKafkaConsumer, tp: TopicPartition, offset: int) -> None:
    if offset == BEGINNING:
        await consumer.seek_to_beginning(tp)
    elif offset == END:
        await consumer.seek_to_end(tp)
    else:
        consumer.seek(tp, offset)


def _producer_settings(sending: Sending) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if sending.compression is not None:
        settings["compression_type"] = None if sending.compression == "none" else sending.compression
    if sending.acks is not None:
        settings["acks"] = "all" if sending.acks == "all" else int(sending.acks)
    if sending.idempotent is not None:
        settings["enable_idempotence"] = sending.idempotent
    if sending.max_request_bytes is not None:
        settings["max_request_size"] = sending.max_request_bytes
    return settings


def _raise_errors(named_errors: Any) -> None:
    """aiokafka's admin hands most error codes on instead of raising them."""
    for name, error_code in named_errors:
        if error_code:
            raise for_code(error_code)(name)


def _stored(record: Any) -> Stored:
    return Stored(record.offset, record.timestamp, record.value, record.key, tuple(record.headers))
