"""Reads ranges through librdkafka, with one object for each record.

Used for topics and options that `fetch_reader` does not support.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import confluent_kafka

from holdfast.client.errors import RETRIABLE_CODES
from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.message_columns import may_have_errors, message_columns, timestamps
from holdfast.spark.range_consumer import RangeConsumer, codes, error_text
from holdfast.spark.range_reader import POLL_TIMEOUT_S, RETRY_PAUSE_S, RangeReader, unreadable
from holdfast.types import TopicPartition

CHUNK: Final = 2_000
"""The number of records that are read at once: few enough to stay in the CPU cache until they are converted to
Arrow."""

_EOF: Final = confluent_kafka.KafkaError._PARTITION_EOF
_OUT_OF_RANGE: Final = codes("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE")
_UNKNOWN: Final = codes("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
# librdkafka looks up the group's coordinator although it is not used.
_GROUP_ERRORS: Final = codes("GROUP_AUTHORIZATION_FAILED", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")
_NOT_ALLOWED: Final = confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
_TRANSIENT: Final = {
    *codes("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE", "_WAIT_COORD", "_FAIL"),
    *map(int, RETRIABLE_CODES),
}


class ConsumerReader(RangeReader):
    """Ranges of different partitions, read together."""

    def __init__(
        self, consumer: RangeConsumer, ranges: Sequence[OffsetRange], include_headers: bool, fail_on_data_loss: bool
    ) -> None:
        super().__init__(consumer, ranges, include_headers, fail_on_data_loss)
        self._consumer = consumer
        self._only = ranges[0].where if len(ranges) == 1 else None

    def _start(self) -> None:
        self._consumer.assign(self._position)

    def _on_complete(self, where: TopicPartition) -> None:
        self._consumer.drop(where)  # records beyond the end would delay the other partitions

    def _read(self) -> Iterator[None]:
        if self._read_some(min(CHUNK, self._batches.capacity)):
            yield

    def _read_some(self, max_records: int) -> bool:
        """Takes up to that many records. False if there were none."""
        # The garbage collector is not needed for thousands of short-lived messages without reference cycles.
        collects = gc.isenabled()
        gc.disable()
        try:
            messages = self._consumer.consume(min(max_records, self._remaining()), 0)
            if not messages:
                message = self._consumer.poll(POLL_TIMEOUT_S)
                messages = [] if message is None else [message]
            return bool(messages) and self._take(messages)
        finally:
            if collects:
                gc.enable()

    def _remaining(self) -> int:
        return sum(self._ranges[where].end - at for where, at in self._position.items())

    def _take(self, messages: Sequence[Any]) -> bool:
        stamped = timestamps(messages)
        events = []
        if may_have_errors(stamped):
            events = [message for message in messages if message.error() is not None]
            messages = [message for message in messages if message.error() is None]
            stamped = timestamps(messages)
        if messages and self._only is not None:
            self._add(self._only, messages, stamped)
        elif messages:
            self._add_each(messages)
        for event in events:
            self._handle(event)
        return len(messages) > 0

    def _add_each(self, messages: Sequence[Any]) -> None:
        by_partition: dict[TopicPartition, list[Any]] = {}
        for message in messages:
            by_partition.setdefault((message.topic(), message.partition()), []).append(message)
        for where, those in by_partition.items():
            if where in self._position:
                self._add(where, those, timestamps(those))

    def _add(self, where: TopicPartition, messages: Sequence[Any], stamped: Any) -> None:
        position, end = self._position[where], self._ranges[where].end
        reached = messages[-1].offset() + 1
        if messages[0].offset() < position or reached > end:
            wanted = [number for number, message in enumerate(messages) if position <= message.offset() < end]
            messages, stamped = [messages[number] for number in wanted], stamped[wanted]
        if messages:
            self._batches.add(message_columns(*where, messages, stamped, include_headers=self._include_headers))
        self._advance(where, reached)

    # -- errors and other events ---------------------------------------------------------------------------------------

    def _handle(self, event: Any) -> None:
        code, where = event.error().code(), (event.topic(), event.partition())
        if code in _GROUP_ERRORS:
            return
        if code == _EOF:
            if where in self._position:
                self._high_watermark[where] = self._consumer.high_watermark(where)
                self._advance(where, event.offset())
                self._probe(where)
        elif code in _OUT_OF_RANGE or code in _UNKNOWN:
            if where in self._position:
                self._probe(where, is_elsewhere=code in _OUT_OF_RANGE)
            if self._position:
                time.sleep(RETRY_PAUSE_S)
                self._consumer.assign(self._position)  # librdkafka has stopped fetching the partition
        elif code in _TRANSIENT:
            self._consumer.last_error = error_text(event.error())
        else:
            raise unreadable(where, event.offset(), error_text(event.error()), is_forbidden=code == _NOT_ALLOWED)
