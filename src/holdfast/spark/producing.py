"""Writing on the executors: produces the rows of Arrow batches as records, and succeeds only when all of them are
acknowledged.

A worker process keeps its producers between tasks, so that a small batch does not need new connections. If not all
records of a task were acknowledged, its producer is discarded: none of them may be sent later.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import confluent_kafka
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException

from holdfast.client.errors import (
    AuthenticationFailed,
    ConfigError,
    ConnectionFailed,
    HoldfastError,
    RequestTimedOut,
    TopicError,
)
from holdfast.spark.first_contact import mark_reached, was_reached

if TYPE_CHECKING:
    from holdfast.spark.write_options import ProducerSettings

_SLICE: Final = 1_000
"""The number of rows that are converted to Python objects at a time, and after which delivery reports are checked."""
_MAX_PRODUCERS: Final = 4
_FLUSH_POLL_S: Final = 0.5
_METADATA_TIMEOUT_S: Final = 2.0
_GRACE_S: Final = 10.0
"""librdkafka fails records after the delivery timeout, which it checks once a second."""
_ANY_PARTITION: Final = -1

_TOO_LARGE: Final = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
_NO_TOPIC: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
_NOT_ALLOWED: Final = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
_NOT_ACCEPTED: Final = (KafkaError._AUTHENTICATION, KafkaError._SSL)
_TIMED_OUT: Final = (KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT)


_Headers = list[tuple[str, str | bytes | None]]


class Sent(NamedTuple):
    records: int
    bytes: int
    """The size of keys and values."""


def write(batches: Iterable[pa.RecordBatch], settings: ProducerSettings, topic: str | None) -> Sent:
    """Writes all rows of the batches, and returns when all of them are acknowledged.

    Raises HoldfastError if any was not. Acknowledged records stay written.
    """
    task: _Task | None = None
    size = 0
    try:
        for batch in batches:
            for rows in _slices(batch):
                records = _Columns.of(rows, topic)
                if task is None:
                    task = _Task(_producer(settings), settings)
                    task.connect(next(iter(records.topics)))
                task.send(records)
            size += _bytes(batch)
        if task is None:
            return Sent(0, 0)
        task.finish()
    except BaseException:
        if task is not None:
            _discard(settings)
            task.abort()
        raise
    return Sent(task.sent, size)


# -- rows --------------------------------------------------------------------------------------------------------------


class _Columns(NamedTuple):
    """The columns of some rows; each as long as the rows, or infinite."""

    topics: Iterable[str]
    values: Iterable[bytes | None]
    keys: Iterable[bytes | None]
    partitions: Iterable[int]
    headers: Iterable[_Headers | None]

    @classmethod
    def of(cls, rows: pa.RecordBatch, topic: str | None) -> _Columns:
        names = rows.schema.names
        return cls(
            topics=repeat(topic) if topic is not None else _topics(rows.column("topic").to_pylist()),
            values=_raw(rows.column("value")),
            keys=_raw(rows.column("key")) if "key" in names else repeat(None),
            partitions=_partitions(rows.column("partition").to_pylist()) if "partition" in names else repeat(-1),
            headers=_headers(rows.column("headers").to_pylist()) if "headers" in names else repeat(None),
        )


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, _SLICE):
        yield batch.slice(start, _SLICE)


def _raw(column: pa.Array) -> list[bytes | None]:
    """Text as UTF-8, which is Arrow's representation, so it is neither decoded nor encoded."""
    if pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    elif pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    found: list[bytes | None] = column.to_pylist()
    return found


def _topics(names: list[str | None]) -> list[str]:
    if None in names:
        raise TopicError(
            "the column topic is null in a row: filter such rows out, or give the option topic for all records"
        )
    return names  # type: ignore[return-value]  # no None is left


def _partitions(numbers: list[int | None]) -> list[int]:
    for number in numbers:
        if number is not None and number < 0:
            raise TopicError(
                f"the column partition is {number} in a row: the first partition is 0; with null the key decides"
            )
    return [_ANY_PARTITION if number is None else number for number in numbers]


def _headers(rows: list[list[dict[str, Any] | None] | None]) -> list[_Headers | None]:
    found: list[_Headers | None] = []
    for row in rows:
        for header in row or ():
            if header is None or header["key"] is None:
                raise HoldfastError("the column headers has a header without a key in a row: Kafka's headers need one")
        found.append([(header["key"], header["value"]) for header in row if header] if row else None)
    return found


def _bytes(batch: pa.RecordBatch) -> int:
    written = [batch.column(name) for name in ("key", "value") if name in batch.schema.names]
    return sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in written)


# -- producers ---------------------------------------------------------------------------------------------------------


class _Reports:
    """librdkafka's reports for a producer: records that were not delivered, and errors of its connections.

    Only failures are reported: a callback for each delivered record would cost a third of the time. Records that have
    left the queue without a report are acknowledged.
    """

    def __init__(self) -> None:
        self.failed = 0
        self.first: tuple[KafkaError, str, int] | None = None
        self.connection: KafkaError | None = None
        """The last error of a connection."""
        self.fatal: KafkaError | None = None
        """A fatal error."""

    def delivery(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            return
        self.failed += 1
        if self.first is None:
            self.first = error, message.topic(), message.partition()

    def error(self, error: KafkaError) -> None:
        if error.code() in _NOT_ACCEPTED or error.fatal():
            self.fatal = self.fatal or error
        elif error.code() != KafkaError._ALL_BROKERS_DOWN:  # which does not say why
            self.connection = error


class _Producer:
    """One producer and its reports. It has no reference to itself, so that dropping it closes it."""

    def __init__(self, settings: ProducerSettings) -> None:
        self.reports: Final = _Reports()
        own = {
            "delivery.report.only.error": True,
            "on_delivery": self.reports.delivery,
            "error_cb": self.reports.error,
        }
        try:
            self.client: Final = confluent_kafka.Producer({**settings.librdkafka, **own})
        except KafkaException as error:
            # The driver tried all settings but the certificates, which may exist on the executors only.
            message = error.args[0].str().strip().removeprefix("Failed to create producer: ")
            raise ConfigError(
                f"the settings of the producer (options kafka.*) fail on this executor: {message}"
            ) from error
        self.connected = False


_Key = tuple[int, frozenset[tuple[str, str]]]
_producers: dict[_Key, _Producer] = {}


def _key(settings: ProducerSettings) -> _Key:
    # A forked process has its parent's memory, but not the threads that a producer needs.
    return os.getpid(), frozenset(settings.librdkafka.items())


def _producer(settings: ProducerSettings) -> _Producer:
    key = _key(settings)
    producer = _producers.pop(key, None)
    if producer is None or producer.reports.fatal is not None:
        producer = _Producer(settings)
    _producers[key] = producer  # the most recently used is last
    mine = [key for key in _producers if key[0] == os.getpid()]
    for oldest in mine[:-_MAX_PRODUCERS]:  # these have no records to send
        del _producers[oldest]
    return producer


def _discard(settings: ProducerSettings) -> None:
    _producers.pop(_key(settings), None)


# -- a task ------------------------------------------------------------------------------------------------------------


class _Task:
    """The records of one task. A producer is used by one task at a time, because Spark's workers run one at a time."""

    def __init__(self, producer: _Producer, settings: ProducerSettings) -> None:
        self._producer = producer
        self._client = producer.client
        self._reports = producer.reports
        self._reports.failed, self._reports.first, self._reports.connection = 0, None, None
        self._settings = settings
        self.sent = 0

    def connect(self, topic: str) -> None:
        """Waits for the brokers, once per producer: otherwise every record would wait for its delivery timeout."""
        if self._producer.connected:
            return
        settings, servers = self._settings, self._servers()
        timeout_s = settings.max_block_s if was_reached(servers) else settings.first_contact_s
        deadline = time.monotonic() + timeout_s
        while not self._producer.connected:
            try:
                left_s = deadline - time.monotonic()
                self._client.list_topics(topic, timeout=min(_METADATA_TIMEOUT_S, max(0.0, left_s)))
                self._producer.connected = True
            except KafkaException as error:
                self._client.poll(0)
                self._check()
                if time.monotonic() >= deadline:
                    raise self._unreachable(error.args[0], timeout_s) from error
        mark_reached(servers)

    def send(self, records: _Columns) -> None:
        produce = self._client.produce
        for topic, value, key, partition, headers in zip(*records, strict=False):
            try:
                # Positional arguments, because this is the one call that is made for every record.
                produce(topic, value, key, partition, None, None, 0, headers)
            except BufferError:
                self._wait_and_produce(topic, value, key, partition, headers)
            except KafkaException as error:
                raise self._rejected(error.args[0], topic, partition, len(value or b"") + len(key or b"")) from error
            self.sent += 1
        self._client.poll(0)
        self._check()

    def _wait_and_produce(self, topic: str, value: Any, key: Any, partition: int, headers: Any) -> None:
        """The queue is full. Records leave it, delivered or failed, within the delivery timeout."""
        deadline = time.monotonic() + self._settings.delivery_timeout_s + _GRACE_S
        while True:
            self._client.poll(0.01)
            self._check()
            try:
                return self._client.produce(topic, value, key, partition, None, None, 0, headers)
            except BufferError:
                if time.monotonic() >= deadline:
                    raise self._not_acknowledged() from None
            except KafkaException as error:
                raise self._rejected(error.args[0], topic, partition, len(value or b"") + len(key or b"")) from error

    def finish(self) -> None:
        """Waits until no record is in flight."""
        deadline = time.monotonic() + self._settings.delivery_timeout_s + _GRACE_S
        while self._client.flush(_FLUSH_POLL_S):
            if self._reports.fatal is not None:  # nothing more will be delivered; other failures are counted to the end
                break
            if time.monotonic() >= deadline:
                raise self._not_acknowledged()
        self._check()

    def abort(self) -> None:
        """Drops records that were not sent. Records in flight may still arrive."""
        self._client.purge()
        self._client.poll(0)

    # -- errors --------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        reports = self._reports
        if reports.fatal is not None:
            raise self._fatal(reports.fatal)
        if reports.first is not None:
            error, topic, partition = reports.first
            raise self._not_delivered(error, topic, partition)

    def _not_delivered(self, error: KafkaError, topic: str, partition: int) -> HoldfastError:
        kind, why = self._reason(error, partition)
        return kind(f"topic {topic}: {why}; {self._reports.failed} of the task's {self.sent} records so far failed")

    def _rejected(self, error: KafkaError, topic: str, partition: int, size: int) -> HoldfastError:
        kind, why = self._reason(error, partition, f" of {size} bytes")
        return kind(f"topic {topic}: {why}; the task had sent {self.sent} records before it")

    def _reason(self, error: KafkaError, partition: int, size: str = "") -> tuple[type[HoldfastError], str]:
        code = error.code()
        if code in _TOO_LARGE:
            ours = self._settings.librdkafka.get("message.max.bytes", "1000000")
            return TopicError, (
                f"a record{size} is larger than may be sent or stored, raise max.message.bytes of the topic "
                f"(message.max.bytes of the broker) and option kafka.message.max.bytes, which is {ours}"
            )
        if code in _NO_TOPIC:
            return TopicError, "it does not exist, create it or give the option topic"
        if code == KafkaError._UNKNOWN_PARTITION:
            return TopicError, f"it has no partition {partition}, which the column partition asks for"
        if code in _NOT_ALLOWED:
            return AuthenticationFailed, f"the user of option kafka.sasl.username may not write to it ({error.str()})"
        if code in _TIMED_OUT:
            return RequestTimedOut, (
                f"not acknowledged within kafka.delivery.timeout.ms, {self._settings.delivery_timeout_s:g} s"
                f"{self._last_error()}"
            )
        return HoldfastError, f"the broker or the producer refused a record: {error.str()}"

    def _fatal(self, error: KafkaError) -> HoldfastError:
        if error.code() in _NOT_ACCEPTED:
            return AuthenticationFailed(
                f"{self._servers()} and this producer do not accept each other, see options kafka.security.protocol, "
                f"kafka.sasl.* and kafka.ssl.*: {error.str()}"
            )
        return HoldfastError(f"the producer for {self._servers()} cannot continue: {error.str()}")

    def _unreachable(self, error: KafkaError, timeout_s: float) -> ConnectionFailed:
        return ConnectionFailed(
            f"no broker of option kafka.bootstrap.servers, {self._servers()}, answered within {timeout_s:g} s (option "
            f"kafka.max.block.ms){self._last_error() or f': {error.str()}'}"
        )

    def _not_acknowledged(self) -> RequestTimedOut:
        return RequestTimedOut(
            f"{len(self._client)} of the task's {self.sent} records are neither acknowledged nor failed "
            f"{self._settings.delivery_timeout_s + _GRACE_S:g} s after the last was sent{self._last_error()}"
        )

    def _last_error(self) -> str:
        return f": {self._reports.connection.str()}" if self._reports.connection is not None else ""

    def _servers(self) -> str:
        return self._settings.librdkafka.get("bootstrap.servers", "the brokers")
