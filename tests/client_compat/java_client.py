"""Kafka's own Java clients, all in one JVM: tests/java/Clients.java."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache

from tests.client_compat.client import BEGINNING, DEADLINE_S, DEFAULT_SENDING, Record, Sending, Stored
from tests.client_compat.line_records import as_sent, as_stored
from tests.support.java_assignors import java_command
from tests.support.kafka_distribution import REPOSITORY
from tests.support.line_rpc import LineRpc

SOURCE = REPOSITORY / "tests" / "java" / "Clients.java"
JVM_OPTIONS = ("-Xmx512M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""A small JVM that is soon ready."""


_start = threading.Lock()


def jvm() -> LineRpc:
    with _start:  # clients in several threads may be the first to ask, and all must get the same one
        return _jvm()


@cache
def _jvm() -> LineRpc:
    return LineRpc(java_command(SOURCE, *JVM_OPTIONS))


class JavaReader:
    def __init__(self, number: int) -> None:
        self._number = number

    def poll(self, timeout_s: float) -> list[Stored]:
        polled = jvm().call("poll", reader=self._number, timeout_ms=int(timeout_s * 1000))
        return [as_stored(record) for record in polled]

    def position(self) -> int:
        """The offset of what it reads next."""
        offset: int = jvm().call("position", reader=self._number)
        return offset

    def seek(self, offset: int, leader_epoch: int | None = None) -> None:
        epoch = {} if leader_epoch is None else {"leader_epoch": leader_epoch}
        jvm().call("seek", reader=self._number, offset=offset, **epoch)


class JavaClient:
    name = "java"

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        partition: int = 0,
        sending: Sending = DEFAULT_SENDING,
    ) -> None:
        settings = _settings(bootstrap, _producer_settings(sending))
        sent = [as_sent(record) for record in records]
        offsets = jvm().call("produce", settings=settings, topic=topic, partition=partition, records=sent)
        assert len(offsets) == len(records)

    @contextmanager
    def reader(
        self, bootstrap: str, topic: str, partition: int = 0, start: int = BEGINNING, fetch_wait_ms: int | None = None
    ) -> Iterator[JavaReader]:
        settings = _settings(bootstrap, {} if fetch_wait_ms is None else {"fetch.max.wait.ms": fetch_wait_ms})
        number = jvm().call("open", settings=settings, topic=topic, partition=partition, start=start)
        try:
            yield JavaReader(number)
        finally:
            jvm().call("close", reader=number)

    def offset_for_time(self, bootstrap: str, topic: str, partition: int, timestamp_ms: int) -> int | None:
        found: int | None = jvm().call(
            "offset_for_time",
            settings=_settings(bootstrap),
            topic=topic,
            partition=partition,
            timestamp_ms=timestamp_ms,
        )
        return found

    def watermarks(self, bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
        low, high = jvm().call("watermarks", settings=_settings(bootstrap), topic=topic, partition=partition)
        return low, high

    def partitions_for(self, bootstrap: str, topic: str) -> list[tuple[int, int, int]]:
        """Number, leader and size of the in-sync set of each partition, as the consumer knows it."""
        found = jvm().call("partitions_for", settings=_settings(bootstrap), topic=topic)
        return [(number, leader, in_sync) for number, leader, in_sync in found]

    def seek_and_read(self, bootstrap: str, topic: str, steps: Sequence[int]) -> list[Stored]:
        read = []
        with self.reader(bootstrap, topic) as reader:
            for offset in steps:
                reader.seek(offset)
                read.append(reader.poll(DEADLINE_S)[0])
        return read

    def begin_transaction(self, bootstrap: str, transactional_id: str) -> None:
        jvm().call("begin_transaction", settings=_settings(bootstrap, {"transactional.id": transactional_id}))

    def topics(self, bootstrap: str) -> dict[str, int]:
        found: dict[str, int] = jvm().call("topics", settings=_settings(bootstrap))
        return found

    def describe_topics(self, bootstrap: str, topics: Sequence[str], page: int) -> dict[str, int]:
        """How many partitions they have, asked for in pages of ``page`` partitions."""
        found: dict[str, int] = jvm().call(
            "describe_topics", settings=_settings(bootstrap), topics=list(topics), page=page
        )
        return found

    def create_topic(
        self, bootstrap: str, topic: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        wanted = dict(configs or {})
        jvm().call("create_topic", settings=_settings(bootstrap), topic=topic, partitions=partitions, configs=wanted)

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        jvm().call("delete_topic", settings=_settings(bootstrap), topic=topic)

    def grow_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        jvm().call("grow_topic", settings=_settings(bootstrap), topic=topic, partitions=partitions)

    def topic_configs(self, bootstrap: str, topic: str) -> dict[str, str | None]:
        found: dict[str, str | None] = jvm().call("topic_configs", settings=_settings(bootstrap), topic=topic)
        return found

    def set_topic_config(self, bootstrap: str, topic: str, name: str, value: str) -> None:
        jvm().call("set_topic_config", settings=_settings(bootstrap), topic=topic, name=name, value=value)


def _settings(bootstrap: str, more: Mapping[str, object] | None = None) -> dict[str, str]:
    return {"bootstrap.servers": bootstrap} | {name: str(value) for name, value in (more or {}).items()}


def _producer_settings(sending: Sending) -> dict[str, object]:
    settings: dict[str, object] = {
        "compression.type": sending.compression,
        "acks": sending.acks,
        "enable.idempotence": None if sending.idempotent is None else str(sending.idempotent).lower(),
        "max.request.size": sending.max_request_bytes,
    }
    return {name: value for name, value in settings.items() if value is not None}
