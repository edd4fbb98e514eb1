"""confluent-kafka: librdkafka from Python."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public by its documentation, not by its stubs
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.client_compat.client import BEGINNING, DEADLINE_S, DEFAULT_SENDING, END, Record, Sending, Stored
from tests.support.eventually import eventually


class ConfluentReader:
    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def poll(self, timeout_s: float) -> list[Stored]:
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        messages = (first, *self._consumer.consume(10_000, timeout=0))
        return [_stored(message) for message in messages if not _is_end(message)]


class ConfluentClient:
    name = "confluent-kafka"

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        partition: int = 0,
        sending: Sending = DEFAULT_SENDING,
    ) -> None:
        producer = Producer({"bootstrap.servers": bootstrap} | _producer_settings(sending))
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                partition,
                headers=list(record.headers),
                timestamp=record.timestamp_ms or 0,
                on_delivery=delivered,
            )
        left = producer.flush(DEADLINE_S)
        assert not left, f"{left} records were not delivered within {DEADLINE_S} s"
        assert not failures, failures

    @contextmanager
    def reader(
        self, bootstrap: str, topic: str, partition: int = 0, start: int = BEGINNING, fetch_wait_ms: int | None = None
    ) -> Iterator[ConfluentReader]:
        with _consumer(bootstrap, fetch_wait_ms, tells_ends=start == END) as consumer:
            consumer.assign([TopicPartition(topic, partition, start)])
            if start == END:  # it is looked up lazily; it must be the end of now
                message = consumer.poll(DEADLINE_S)
                assert message is not None and _is_end(message), message
            yield ConfluentReader(consumer)

    def offset_for_time(self, bootstrap: str, topic: str, partition: int, timestamp_ms: int) -> int | None:
        with _consumer(bootstrap) as consumer:
            (found,) = consumer.offsets_for_times([TopicPartition(topic, partition, timestamp_ms)], DEADLINE_S)
        assert found.error is None, found.error
        return found.offset if found.offset >= 0 else None

    def watermarks(self, bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
        with _consumer(bootstrap) as consumer:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), DEADLINE_S)
        return low, high

    def seek_and_read(self, bootstrap: str, topic: str, steps: Sequence[int]) -> list[Stored]:
        read = []
        with _consumer(bootstrap) as consumer:
            consumer.assign([TopicPartition(topic, 0, BEGINNING)])
            read.append(_one(consumer))  # librdkafka refuses to seek before the partition is being fetched
            read.clear()
            for offset in steps:
                consumer.seek(TopicPartition(topic, 0, offset))
                read.append(_one(consumer))
        return read

    def begin_transaction(self, bootstrap: str, transactional_id: str) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
        producer.init_transactions(DEADLINE_S)

    def topics(self, bootstrap: str) -> dict[str, int]:
        listed = _admin(bootstrap).list_topics(timeout=DEADLINE_S).topics
        return {name: len(topic.partitions) for name, topic in listed.items()}

    def create_topic(
        self, bootstrap: str, topic: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(configs or {}))
        admin = _admin(bootstrap)
        admin.create_topics([new])[topic].result(DEADLINE_S)
        wait_until_led(bootstrap, topic, partitions)

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        admin = _admin(bootstrap)
        admin.delete_topics([topic])[topic].result(DEADLINE_S)

    def grow_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        admin = _admin(bootstrap)
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(DEADLINE_S)

    def topic_configs(self, bootstrap: str, topic: str) -> dict[str, str | None]:
        admin = _admin(bootstrap)
        (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        return {name: entry.value for name, entry in described.result(DEADLINE_S).items()}

    def set_topic_config(self, bootstrap: str, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin = _admin(bootstrap)
        (altered,) = admin.incremental_alter_configs([resource]).values()
        altered.result(DEADLINE_S)


def wait_until_led(bootstrap: str, topic: str, partitions: int) -> None:
    """Until a new topic takes records.

    Kafka says that it is there before that, and before all of its parts know of it: a first produce would be refused
    and sent again, and without idempotence what was in flight behind it would overtake it.
    """
    eventually(lambda: _is_led(bootstrap, topic, partitions), f"every partition of {topic} takes records")


@contextmanager
def _consumer(bootstrap: str, fetch_wait_ms: int | None = None, *, tells_ends: bool = False) -> Iterator[Consumer]:
    # The constructor demands a group id; without subscribe() and commits nobody ever joins that group.
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    settings["enable.partition.eof"] = tells_ends
    if fetch_wait_ms is not None:
        settings["fetch.wait.max.ms"] = fetch_wait_ms
    consumer = Consumer(settings)
    try:
        yield consumer
    finally:
        consumer.close()


def _producer_settings(sending: Sending) -> dict[str, Any]:
    settings = {
        "compression.type": sending.compression,
        "acks": sending.acks,
        "enable.idempotence": sending.idempotent,
        "message.max.bytes": sending.max_request_bytes,
    }
    return {name: value for name, value in settings.items() if value is not None}


def _admin(bootstrap: str) -> AdminClient:
    """Any client that asks must hold it until the answer is there: what it has under way dies with it."""
    return AdminClient({"bootstrap.servers": bootstrap})


def _one(consumer: Consumer) -> Stored:
    message = consumer.poll(DEADLINE_S)
    assert message is not None, f"no record within {DEADLINE_S} s"
    return _stored(message)


def _is_end(message: Message) -> bool:
    """The end of a partition instead of a record."""
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF


def _stored(message: Message) -> Stored:
    error = message.error()
    if error is not None:
        raise KafkaException(error)
    _, timestamp_ms = message.timestamp()
    offset = message.offset()
    assert offset is not None
    headers: Any = message.headers() or ()
    value: Any = message.value()
    key: Any = message.key()
    return Stored(offset, timestamp_ms, value, key, tuple(headers))


def _is_led(bootstrap: str, topic: str, partitions: int) -> bool:
    # A client of its own: one that knows the topic from before may not ask again.
    admin = _admin(bootstrap)
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = {TopicPartition(topic, partition): latest for partition in range(partitions)}
    reported = admin.list_offsets(asked, request_timeout=DEADLINE_S)
    try:
        return all(future.result(DEADLINE_S).offset >= 0 for future in reported.values())
    except KafkaException:
        return False
