"""kafka-python: the wire in pure Python, threads underneath."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from tests.client_compat.client import BEGINNING, DEADLINE_S, DEFAULT_SENDING, END, Record, Sending, Stored
from tests.client_compat.confluent_client import wait_until_led


class KafkaPythonReader:
    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer

    def poll(self, timeout_s: float) -> list[Stored]:
        polled = self._consumer.poll(timeout_ms=round(timeout_s * 1000))
        return [_stored(record) for records in polled.values() for record in records]


class KafkaPythonClient:
    name = "kafka-python"

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        partition: int = 0,
        sending: Sending = DEFAULT_SENDING,
    ) -> None:
        producer = KafkaProducer(bootstrap_servers=bootstrap, **_producer_settings(sending))
        try:
            futures = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            producer.flush(timeout=DEADLINE_S)
            for future in futures:
                future.get(timeout=DEADLINE_S)
        finally:
            producer.close(timeout=DEADLINE_S)

    @contextmanager
    def reader(
        self, bootstrap: str, topic: str, partition: int = 0, start: int = BEGINNING, fetch_wait_ms: int | None = None
    ) -> Iterator[KafkaPythonReader]:
        with _consumer(bootstrap, fetch_wait_ms) as consumer:
            tp = TopicPartition(topic, partition)
            consumer.assign([tp])
            _seek(consumer, tp, start)
            yield KafkaPythonReader(consumer)

    def offset_for_time(self, bootstrap: str, topic: str, partition: int, timestamp_ms: int) -> int | None:
        tp = TopicPartition(topic, partition)
        with _consumer(bootstrap) as consumer:
            found = consumer.offsets_for_times({tp: timestamp_ms})[tp]
        return None if found is None else int(found.offset)

    def watermarks(self, bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
        tp = TopicPartition(topic, partition)
        with _consumer(bootstrap) as consumer:
            return consumer.beginning_offsets([tp])[tp], consumer.end_offsets([tp])[tp]

    def seek_and_read(self, bootstrap: str, topic: str, steps: Sequence[int]) -> list[Stored]:
        tp = TopicPartition(topic, 0)
        read = []
        with _consumer(bootstrap) as consumer:
            consumer.assign([tp])
            for offset in steps:
                _seek(consumer, tp, offset)
                polled = consumer.poll(timeout_ms=round(DEADLINE_S * 1000), max_records=1)
                read.append(_stored(polled[tp][0]))
        return read

    def begin_transaction(self, bootstrap: str, transactional_id: str) -> None:
        producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        try:
            producer.init_transactions()
        finally:
            producer.close(timeout=0)

    def topics(self, bootstrap: str) -> dict[str, int]:
        with _admin(bootstrap) as admin:
            return {topic["name"]: len(topic["partitions"]) for topic in admin.describe_topics()}

    def create_topic(
        self, bootstrap: str, topic: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": dict(configs or {})}
        with _admin(bootstrap) as admin:
            admin.create_topics({topic: wanted})
        wait_until_led(bootstrap, topic, partitions)

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        with _admin(bootstrap) as admin:
            admin.delete_topics([topic])

    def grow_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        with _admin(bootstrap) as admin:
            admin.create_partitions({topic: partitions})

    def topic_configs(self, bootstrap: str, topic: str) -> dict[str, str | None]:
        with _admin(bootstrap) as admin:
            described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
        return {name: config["value"] for name, config in described["topic"][topic].items()}

    def set_topic_config(self, bootstrap: str, topic: str, name: str, value: str) -> None:
        with _admin(bootstrap) as admin:
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs={name: value})])


@contextmanager
def _consumer(bootstrap: str, fetch_wait_ms: int | None = None) -> Iterator[KafkaConsumer]:
    settings: dict[str, Any] = {} if fetch_wait_ms is None else {"fetch_max_wait_ms": fetch_wait_ms}
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, **settings)
    try:
        yield consumer
    finally:
        consumer.close()


def _seek(consumer: KafkaConsumer, tp: TopicPartition, offset: int) -> None:
    if offset == BEGINNING:
        consumer.seek_to_beginning(tp)
    elif offset == END:
        consumer.seek_to_end(tp)
        consumer.position(tp)  # the end is looked up lazily; it must be the end of now
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


def _admin(bootstrap: str) -> KafkaAdminClient:
    return KafkaAdminClient(bootstrap_servers=bootstrap)


def _stored(record: Any) -> Stored:
    return Stored(record.offset, record.timestamp, record.value, record.key, tuple(record.headers))
