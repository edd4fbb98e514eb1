"""What an executor does: it reads ranges of offsets, as Arrow. It is no member of a group and commits nothing.

A range is over when the next record would lie behind its end. There need not be a record at `end - 1`: markers of
transactions, aborted records and those that compaction removed have offsets too, and nobody is given them. So the end
of the partition counts as well, and where nothing comes at all the broker is asked what it has.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import confluent_kafka
import pyarrow as pa

from holdfast.client.errors import RETRIABLE_CODES, ConnectionFailed, HoldfastError
from holdfast.spark.arrow import Batches, may_have_errors, stamps
from holdfast.spark.log_ends import DataLoss
from holdfast.spark.offsets import OffsetRange, Where
from holdfast.spark.range_consumers import RangeConsumer, borrowed, codes, said

logger = logging.getLogger("holdfast.spark")

CHUNK: Final = 2_000
"""Records that are taken at once: few enough that they are still in the processor's cache when they become Arrow."""
WAIT_S: Final = 0.25
LOOK_AFTER_S: Final = 1.0
"""Where nothing has come for that long, the broker is asked what it has."""
ASK_S: Final = 5.0
AGAIN_S: Final = 0.1
GONE_AFTER_S: Final = 3.0
"""For so long a topic that was there may seem not to be: brokers learn of topics one after another."""

_EOF: Final = confluent_kafka.KafkaError._PARTITION_EOF
_ELSEWHERE: Final = codes("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE")
_UNKNOWN: Final = codes("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
# librdkafka looks for the group's coordinator although nothing is asked of it.
_OF_THE_GROUP: Final = codes("GROUP_AUTHORIZATION_FAILED", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")
_NOT_ALLOWED: Final = confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
_PASSING: Final = {
    *codes("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE", "_WAIT_COORD", "_FAIL"),
    *map(int, RETRIABLE_CODES),
}


def read_ranges(
    ranges: Sequence[OffsetRange], kafka: Mapping[str, Any], *, include_headers: bool, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """The records of the ranges as `pyarrow.RecordBatch`; those of one partition come in their order."""
    try:
        for together in _rounds(ranges):
            with borrowed(kafka) as consumer:
                reading = _Reading(consumer, together, include_headers, fail_on_data_loss)
                yield from reading.batches()
    except HoldfastError as error:
        # Spark shows the frames to its user, who is helped by the sentence alone.
        raise error.with_traceback(None) from None


def _rounds(ranges: Sequence[OffsetRange]) -> list[list[OffsetRange]]:
    """The ranges that are read together. A consumer is at one place in a partition: its second range comes later."""
    rounds: list[list[OffsetRange]] = []
    for one in ranges:
        if one.start >= one.end:
            continue
        fitting = next((some for some in rounds if all(other.where != one.where for other in some)), None)
        if fitting is None:
            rounds.append([one])
        else:
            fitting.append(one)
    return rounds


class _Reading:
    """Ranges of different partitions, read together."""

    def __init__(
        self, consumer: RangeConsumer, ranges: Sequence[OffsetRange], include_headers: bool, fail_on_data_loss: bool
    ) -> None:
        self._consumer = consumer
        self._ranges = {one.where: one for one in ranges}
        self._position = {one.where: one.start for one in ranges}
        """Of the ranges that are not over: the offset of the next record."""
        self._only = ranges[0].where if len(ranges) == 1 else None
        self._batches = Batches(include_headers=include_headers)
        self._fail_on_data_loss = fail_on_data_loss
        self._moved_at = self._looked_at = time.monotonic()
        self._missing_since: dict[Where, float] = {}
        self._high_watermark: dict[Where, int] = {}

    def batches(self) -> Iterator[pa.RecordBatch]:
        self._consumer.assign(self._position)
        while self._position:
            if not self._read(min(CHUNK, self._batches.room)):
                self._nothing_came()
            if self._batches.full:
                yield self._batches.take()
                self._moved_at = time.monotonic()  # the time that Spark takes is not the broker's
        if (last := self._batches.take()) is not None:
            yield last

    def _read(self, most: int) -> bool:
        """Take up to so many records. False if there were none."""
        # Thousands of messages live for a moment, and no cycle among them: let the collector not look for any.
        collects = gc.isenabled()
        gc.disable()
        try:
            messages = self._consumer.consume(min(most, self._remaining()), 0)
            if not messages:
                message = self._consumer.poll(WAIT_S)
                messages = [] if message is None else [message]
            return bool(messages) and self._take(messages)
        finally:
            if collects:
                gc.enable()

    def _remaining(self) -> int:
        return sum(self._ranges[where].end - at for where, at in self._position.items())

    def _take(self, messages: Sequence[Any]) -> bool:
        stamped = stamps(messages)
        events = []
        if may_have_errors(stamped):
            events = [message for message in messages if message.error() is not None]
            messages = [message for message in messages if message.error() is None]
            stamped = stamps(messages)
        if messages and self._only is not None:
            self._add(self._only, messages, stamped)
        elif messages:
            self._add_each(messages)
        for event in events:
            self._handle(event)
        return len(messages) > 0

    def _add_each(self, messages: Sequence[Any]) -> None:
        by_partition: dict[Where, list[Any]] = {}
        for message in messages:
            by_partition.setdefault((message.topic(), message.partition()), []).append(message)
        for where, those in by_partition.items():
            if where in self._position:
                self._add(where, those, stamps(those))

    def _add(self, where: Where, messages: Sequence[Any], stamped: Any) -> None:
        position, end = self._position[where], self._ranges[where].end
        reached = messages[-1].offset() + 1
        if messages[0].offset() < position or reached > end:
            wanted = [number for number, message in enumerate(messages) if position <= message.offset() < end]
            messages, stamped = [messages[number] for number in wanted], stamped[wanted]
        if messages:
            self._batches.add(*where, messages, stamped)
        self._reached(where, reached)

    def _reached(self, where: Where, offset: int) -> None:
        """There is nothing more to come before this offset."""
        if offset <= self._position[where]:
            return
        self._moved_at = time.monotonic()
        self._consumer.trouble = ""  # it is over
        if offset >= self._ranges[where].end:
            del self._position[where]
            if self._position:
                self._consumer.drop(where)  # what lies behind the end would hold up the others
        else:
            self._position[where] = offset

    # -- what is not a record ------------------------------------------------------------------------------------------

    def _handle(self, event: Any) -> None:
        code, where = event.error().code(), (event.topic(), event.partition())
        if code in _OF_THE_GROUP:
            return
        if code == _EOF:
            if where in self._position:
                self._high_watermark[where] = self._consumer.high_watermark(where)
                self._reached(where, event.offset())
                self._look(where)
        elif code in _ELSEWHERE or code in _UNKNOWN:
            if where in self._position:
                self._look(where, is_elsewhere=code in _ELSEWHERE)
            if self._position:
                time.sleep(AGAIN_S)
                self._consumer.assign(self._position)  # librdkafka has given up the partition
        elif code in _PASSING:
            self._consumer.trouble = said(event.error())
        else:
            advice = (
                ": grant READ on the topic to the user of option kafka.sasl.username" if code == _NOT_ALLOWED else ""
            )
            raise HoldfastError(
                f"{where[0]}-{where[1]} cannot be read at {event.offset()}: {said(event.error())}{advice}"
            )

    def _nothing_came(self) -> None:
        self._consumer.check()
        now = time.monotonic()
        if now - self._moved_at > self._consumer.api_timeout_s:
            raise self._too_late()
        if now - max(self._moved_at, self._looked_at) > LOOK_AFTER_S:
            for where in list(self._position):
                self._look(where)
            self._looked_at = time.monotonic()

    def _too_late(self) -> HoldfastError:
        where, position = next(iter(self._position.items()))
        trouble = self._consumer.trouble or "the broker does not say why"
        return ConnectionFailed(
            f"nothing could be read of {where[0]}-{where[1]} from {position} on for {self._consumer.api_timeout_s:g} s "
            f"({trouble}): see whether the executors reach the brokers at the addresses that these advertise, or raise "
            "the option kafka.default.api.timeout.ms"
        )

    # -- what is not there ---------------------------------------------------------------------------------------------

    def _look(self, where: Where, *, is_elsewhere: bool = False) -> None:
        """Ask what the partition has: whether what is left of the range can come at all. `is_elsewhere`: a fetch was
        refused for its offset."""
        if where not in self._position:
            return
        topic, partition = where
        patience_s = min(ASK_S, max(WAIT_S, self._moved_at + self._consumer.api_timeout_s - time.monotonic()))
        there = self._consumer.partitions_of(topic, patience_s)
        if there is None:
            return
        if partition not in there:
            if time.monotonic() - self._missing_since.setdefault(where, time.monotonic()) >= GONE_AFTER_S:
                self._lost(where, self._ranges[where].end, "there is no such partition any more")
            return
        self._missing_since.pop(where, None)
        bounds = self._consumer.bounds(where, patience_s)
        if bounds is None:
            return
        first, end = bounds
        has = f"the partition now has {first} to {end}"
        if self._position[where] < first:
            self._lost(where, first, has)
        elif end <= self._position[where] < self._high_watermark.get(where, end):
            self._consumer.trouble = f"a transaction is open that began at {end} or before"
        # Where no fetch was answered yet, what is committed may end before the partition does.
        elif end <= self._position[where] and (is_elsewhere or where in self._high_watermark):
            self._lost(where, self._ranges[where].end, has)

    def _lost(self, where: Where, up_to: int, has: str) -> None:
        wanted = self._ranges[where]
        lost_to = min(up_to, wanted.end)
        what = (
            f"records {self._position[where]} to {lost_to} of {wanted.topic}-{wanted.partition} are lost ({has}; the "
            f"batch was to read {wanted.start} to {wanted.end}): they were deleted before they were read, or the topic "
            "was made anew"
        )
        if self._fail_on_data_loss:
            raise DataLoss(f"{what}; go on with what is there by the option failOnDataLoss=false")
        logger.warning("%s; going on with what is there (failOnDataLoss=false)", what)
        self._reached(where, lost_to)
        if where in self._position:
            self._consumer.assign(self._position)
