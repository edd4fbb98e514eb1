"""The consumers of an executor: kept from one batch to the next, so that no task waits for a connection.

A worker of Spark runs one task at a time and many after another. Each task borrows a consumer and gives it back; one
that is lent out is nobody else's.
"""

from __future__ import annotations

import atexit
import os
import time
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import confluent_kafka

from holdfast.client.consumer_config import ConsumerConfig
from holdfast.client.errors import AuthenticationFailed, ConfigError
from holdfast.spark.offsets import Where

MOST_KEPT: Final = 4
"""Idle consumers per process; each has threads and connections. More than one only if queries share the worker."""
INTRODUCTION_S: Final = 5.0
_KNOWN_FOR_S: Final = 60.0

_DEFAULTS: Final = {
    "client.id": "holdfast-spark",
    "group.id": "holdfast-spark",  # librdkafka wants one; nobody joins it
    # When the queue is full librdkafka rests for that long, by default for a second: five times slower.
    "fetch.queue.backoff.ms": 10,
    # What is read is there already. A broker that waits for more would hold up the next batch.
    "fetch.wait.max.ms": 2,
    "fetch.error.backoff.ms": 100,
    "check.crcs": False,
    # A consumer that rests would fill the executor's log while a broker is away; what stops a task is told anyway.
    "log_level": 2,
}
_FIXED: Final = {"enable.partition.eof": True, "auto.offset.reset": "error"}


def consumer_config(kafka: Mapping[str, Any]) -> ConsumerConfig:
    """The settings of a consumer that is no member of a group. Raises ConfigError that names the option."""
    try:
        return ConsumerConfig.read({**_DEFAULTS, **kafka}, {})
    except ConfigError as error:
        raise ConfigError(f"options that begin with 'kafka.': {error}") from error


class RangeConsumer:
    """A consumer of librdkafka that reads what it is told, from one thread at a time."""

    def __init__(self, kafka: Mapping[str, Any]) -> None:
        config = consumer_config(kafka)
        self.api_timeout_s: Final = config.api_timeout_ms / 1000
        self.trouble = ""
        """What librdkafka said last of brokers that it cannot reach."""
        self._refused: str | None = None
        self._known: dict[str, float] = {}
        try:
            self._consumer = confluent_kafka.Consumer({**config.data_plane, **_FIXED, "error_cb": self._note})
        except (confluent_kafka.KafkaException, ValueError, TypeError) as error:
            raise ConfigError(f"the data plane refuses the options that begin with 'kafka.': {said(error)}") from error
        self.poll = self._consumer.poll
        self.consume = self._consumer.consume

    def _note(self, error: Any) -> None:
        """Called by librdkafka while this thread polls, with each broker's own error and with one for all, in any
        order."""
        if error.code() == confluent_kafka.KafkaError._ALL_BROKERS_DOWN:
            self._suspect(error)
        else:
            self.trouble = said(error)
        if error.code() == confluent_kafka.KafkaError._AUTHENTICATION:
            self._refused = self.trouble

    def _suspect(self, error: BaseException | Any) -> None:
        """That something timed out or that all brokers are down says less than what one of them said."""
        self.trouble = self.trouble or said(error)

    def check(self) -> None:
        """Raises if the broker does not accept us: librdkafka would try for ever."""
        if self._refused is not None:
            raise AuthenticationFailed(
                f"the broker does not accept the executor: {self._refused}; see the options kafka.security.protocol, "
                "kafka.sasl.* and kafka.ssl.*, and whether the files they name are on the executors"
            )

    def assign(self, positions: Mapping[Where, int]) -> None:
        self._introduce({topic for topic, _ in positions})
        self._consumer.assign([confluent_kafka.TopicPartition(*where, at) for where, at in positions.items()])

    def drop(self, where: Where) -> None:
        """Read this one no more."""
        self._consumer.incremental_unassign([confluent_kafka.TopicPartition(*where)])

    def _introduce(self, topics: Collection[str]) -> None:
        """Told to read a topic that it does not know, librdkafka finds it at its next turn of a second."""
        now = time.monotonic()
        for topic in topics:
            if self._known.get(topic, 0.0) < now and self.partitions_of(topic, INTRODUCTION_S):
                self._known[topic] = now + _KNOWN_FOR_S

    def partitions_of(self, topic: str, timeout_s: float) -> Collection[int] | None:
        """The partitions that the topic has, none if there is no such topic; None if it cannot be asked."""
        try:
            found = self._consumer.list_topics(topic, timeout=timeout_s).topics.get(topic)
        except confluent_kafka.KafkaException as error:
            self._suspect(error)
            return None
        if found is None:
            return None
        if found.error is None:
            return list(found.partitions)
        if found.error.code() == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
            return ()
        self.trouble = said(found.error)
        return None

    def high_watermark(self, where: Where) -> int:
        """Where the partition ended when it was last fetched, with what is not committed yet."""
        found = self._consumer.get_watermark_offsets(confluent_kafka.TopicPartition(*where), cached=True)
        return -1 if found is None else int(found[1])

    def bounds(self, where: Where, timeout_s: float) -> tuple[int, int] | None:
        """Where the partition begins and ends for one who reads what is committed, if that is asked for; None if it
        cannot be had."""
        try:
            found = self._consumer.get_watermark_offsets(confluent_kafka.TopicPartition(*where), timeout=timeout_s)
        except confluent_kafka.KafkaException as error:
            self._suspect(error)
            return None
        return found if found is None else (found[0], found[1])

    def rest(self) -> None:
        """Read nothing, and forget what went wrong."""
        self._consumer.unassign()
        self.trouble = ""

    def close(self) -> None:
        self._consumer.close()


_Settings = tuple[int, tuple[tuple[str, str], ...]]
_idle: Final[OrderedDict[_Settings, RangeConsumer]] = OrderedDict()
"""By process too: of what a child inherits by fork only the memory is there, and not the threads."""


@contextmanager
def borrowed(kafka: Mapping[str, Any]) -> Iterator[RangeConsumer]:
    settings = _settings(kafka)
    consumer = _idle.pop(settings, None) or RangeConsumer(kafka)
    try:
        yield consumer
    except Exception:
        consumer.close()  # who knows in which state it is
        raise
    except BaseException:  # the reader had enough, as with a limit
        _keep(settings, consumer)
        raise
    _keep(settings, consumer)


def _settings(kafka: Mapping[str, Any]) -> _Settings:
    return os.getpid(), tuple(sorted((name, str(value)) for name, value in kafka.items()))


def _keep(settings: _Settings, consumer: RangeConsumer) -> None:
    consumer.rest()
    if settings in _idle:
        consumer.close()
        return
    _idle[settings] = consumer
    mine = [one for one in _idle if one[0] == os.getpid()]
    for eldest in mine[:-MOST_KEPT]:
        _idle.pop(eldest).close()


@atexit.register
def close_all() -> None:
    """The idle consumers of this process; whatever it inherited is left alone."""
    for settings in [one for one in _idle if one[0] == os.getpid()]:
        with suppress(RuntimeError):
            _idle.pop(settings).close()


def said(error: BaseException | Any) -> str:
    detail = error.args[0] if isinstance(error, BaseException) and error.args else error
    return str(detail.str()) if isinstance(detail, confluent_kafka.KafkaError) else str(detail)


def codes(*names: str) -> Sequence[int]:
    return [getattr(confluent_kafka.KafkaError, name) for name in names]
