"""A librdkafka consumer of an executor, for ranges that `range_fetcher` does not support."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import confluent_kafka

from holdfast.client.errors import ConfigError
from holdfast.spark.executor_consumers import consumer_config, not_accepted
from holdfast.types import TopicPartition

METADATA_TIMEOUT_S: Final = 5.0
_METADATA_VALID_S: Final = 60.0

_FIXED: Final = {"enable.partition.eof": True, "auto.offset.reset": "error"}


class RangeConsumer:
    """A librdkafka consumer with manual assignment, used by one thread at a time."""

    def __init__(self, kafka: Mapping[str, Any]) -> None:
        config = consumer_config(kafka)
        self.api_timeout_s: Final = config.api_timeout_ms / 1000
        self.last_error = ""
        """The last error that librdkafka reported for a broker that it cannot reach."""
        self._authentication_error: str | None = None
        self._metadata_until: dict[str, float] = {}
        try:
            self._consumer = confluent_kafka.Consumer({**config.librdkafka, **_FIXED, "error_cb": self._on_error})
        except (confluent_kafka.KafkaException, ValueError, TypeError) as error:
            raise ConfigError(
                f"the data plane refuses the options that begin with 'kafka.': {error_text(error)}"
            ) from error
        self.poll = self._consumer.poll
        self.consume = self._consumer.consume

    def _on_error(self, error: Any) -> None:
        """Called by librdkafka while this thread polls, with the error of each broker and one for all of them, in any
        order."""
        if error.code() == confluent_kafka.KafkaError._ALL_BROKERS_DOWN:
            self._set_error_if_none(error)
        else:
            self.last_error = error_text(error)
        if error.code() == confluent_kafka.KafkaError._AUTHENTICATION:
            self._authentication_error = self.last_error

    def _set_error_if_none(self, error: BaseException | Any) -> None:
        """The error of one broker says more than a timeout or that all brokers are down."""
        self.last_error = self.last_error or error_text(error)

    def check(self) -> None:
        """Raises if authentication failed: librdkafka would retry forever."""
        if self._authentication_error is not None:
            raise not_accepted(self._authentication_error)

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._prefetch_metadata({topic for topic, _ in positions})
        self._consumer.assign([confluent_kafka.TopicPartition(*where, at) for where, at in positions.items()])

    def drop(self, where: TopicPartition) -> None:
        """Stops reading this partition."""
        self._consumer.incremental_unassign([confluent_kafka.TopicPartition(*where)])

    def _prefetch_metadata(self, topics: Collection[str]) -> None:
        """librdkafka looks up an unknown assigned topic only once a second."""
        now = time.monotonic()
        for topic in topics:
            if self._metadata_until.get(topic, 0.0) < now and self.partitions_of(topic, METADATA_TIMEOUT_S):
                self._metadata_until[topic] = now + _METADATA_VALID_S

    def partitions_of(self, topic: str, timeout_s: float) -> Collection[int] | None:
        """The partitions of the topic, empty if it does not exist; None if no broker answers."""
        try:
            found = self._consumer.list_topics(topic, timeout=timeout_s).topics.get(topic)
        except confluent_kafka.KafkaException as error:
            self._set_error_if_none(error)
            return None
        if found is None:
            return None
        if found.error is None:
            return list(found.partitions)
        if found.error.code() == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
            return ()
        self.last_error = error_text(found.error)
        return None

    def high_watermark(self, where: TopicPartition) -> int:
        """The end of the partition at the last fetch, including uncommitted transactions."""
        found = self._consumer.get_watermark_offsets(confluent_kafka.TopicPartition(*where), cached=True)
        return -1 if found is None else int(found[1])

    def bounds(self, where: TopicPartition, timeout_s: float) -> tuple[int, int] | None:
        """The first and last offset of the partition, according to the isolation level; None if no broker answers."""
        try:
            found = self._consumer.get_watermark_offsets(confluent_kafka.TopicPartition(*where), timeout=timeout_s)
        except confluent_kafka.KafkaException as error:
            self._set_error_if_none(error)
            return None
        return found if found is None else (found[0], found[1])

    def reset(self) -> None:
        """Unassigns all partitions and clears the last error."""
        self._consumer.unassign()
        self.last_error = ""

    def close(self) -> None:
        self._consumer.close()


def error_text(error: BaseException | Any) -> str:
    detail = error.args[0] if isinstance(error, BaseException) and error.args else error
    return str(detail.str()) if isinstance(detail, confluent_kafka.KafkaError) else str(detail)


def codes(*names: str) -> Sequence[int]:
    return [getattr(confluent_kafka.KafkaError, name) for name in names]
