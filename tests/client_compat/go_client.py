"""Go's clients: franz-go, sarama and kafka-go, each in a process of its own: tests/client_compat/go."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache

from tests.client_compat.client import BEGINNING, DEADLINE_S, DEFAULT_SENDING, Record, Sending, Stored
from tests.client_compat.confluent_client import wait_until_led
from tests.client_compat.line_records import as_sent, as_stored
from tests.support.kafka_distribution import run_script
from tests.support.line_rpc import LineRpc

_start = threading.Lock()


def process(name: str) -> LineRpc:
    with _start:  # clients in several threads may be the first to ask, and all must get the same one
        return _process(name)


@cache
def _process(name: str) -> LineRpc:
    return LineRpc([go_clients_path(), name])


@cache
def go_clients_path() -> str:
    """Of the program; KafkaUnavailable where it cannot be built."""
    return run_script("go-program-ensure", "tests/client_compat/go")


class GoReader:
    def __init__(self, calls: LineRpc, number: int) -> None:
        self._calls = calls
        self._number = number

    def poll(self, timeout_s: float) -> list[Stored]:
        polled = self._calls.call("poll", reader=self._number, timeout_ms=int(timeout_s * 1000))
        return [as_stored(record) for record in polled]

    def seek(self, offset: int) -> None:
        self._calls.call("seek", reader=self._number, offset=offset)


class GoClient:
    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def _calls(self) -> LineRpc:
        return process(self.name)

    def produce(
        self,
        bootstrap: str,
        topic: str,
        records: Sequence[Record],
        partition: int = 0,
        sending: Sending = DEFAULT_SENDING,
    ) -> None:
        self._calls.call(
            "produce",
            bootstrap=bootstrap,
            topic=topic,
            partition=partition,
            records=[as_sent(record) for record in records],
            compression=sending.compression or "",
            acks=sending.acks or "",
            idempotent=sending.idempotent,
            max_request_bytes=sending.max_request_bytes or 0,
        )

    @contextmanager
    def reader(
        self, bootstrap: str, topic: str, partition: int = 0, start: int = BEGINNING, fetch_wait_ms: int | None = None
    ) -> Iterator[GoReader]:
        number = self._calls.call(
            "open", bootstrap=bootstrap, topic=topic, partition=partition, start=start, fetch_wait_ms=fetch_wait_ms or 0
        )
        try:
            yield GoReader(self._calls, number)
        finally:
            self._calls.call("close", reader=number)

    def offset_for_time(self, bootstrap: str, topic: str, partition: int, timestamp_ms: int) -> int | None:
        found: int = self._calls.call(
            "offset_for_time", bootstrap=bootstrap, topic=topic, partition=partition, timestamp_ms=timestamp_ms
        )
        return found if found >= 0 else None

    def watermarks(self, bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
        low, high = self._calls.call("watermarks", bootstrap=bootstrap, topic=topic, partition=partition)
        return low, high

    def seek_and_read(self, bootstrap: str, topic: str, steps: Sequence[int]) -> list[Stored]:
        read = []
        with self.reader(bootstrap, topic) as reader:
            for offset in steps:
                reader.seek(offset)
                read.append(reader.poll(DEADLINE_S)[0])
        return read

    def begin_transaction(self, bootstrap: str, transactional_id: str) -> None:
        self._calls.call("begin_transaction", bootstrap=bootstrap, transactional_id=transactional_id)

    def topics(self, bootstrap: str) -> dict[str, int]:
        found: dict[str, int] = self._calls.call("topics", bootstrap=bootstrap)
        return found

    def create_topic(
        self, bootstrap: str, topic: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        self._calls.call(
            "create_topic", bootstrap=bootstrap, topic=topic, partitions=partitions, configs=dict(configs or {})
        )
        wait_until_led(bootstrap, topic, partitions)

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        self._calls.call("delete_topic", bootstrap=bootstrap, topic=topic)

    def grow_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._calls.call("grow_topic", bootstrap=bootstrap, topic=topic, partitions=partitions)

    def topic_configs(self, bootstrap: str, topic: str) -> dict[str, str | None]:
        found: dict[str, str | None] = self._calls.call("topic_configs", bootstrap=bootstrap, topic=topic)
        return found

    def set_topic_config(self, bootstrap: str, topic: str, name: str, value: str) -> None:
        self._calls.call("set_topic_config", bootstrap=bootstrap, topic=topic, name=name, value=value)


FRANZ_GO = GoClient("franz-go")
SARAMA = GoClient("sarama")
KAFKA_GO = GoClient("kafka-go")
"""It has no idempotent producer, and reads null where a key, a value or a header is empty."""

GO_CLIENTS = [FRANZ_GO, SARAMA, KAFKA_GO]
