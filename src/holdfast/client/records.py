"""The data plane: records of the partitions that it is told to read, through confluent-kafka.

librdkafka is the fastest way to records that Python has. It is given explicit partitions and offsets; of groups it
knows nothing. All calls come from the application's own thread: a second thread that asks a consumer of librdkafka for
something while another polls may wait for ever.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any, Final

import confluent_kafka

from holdfast.client.errors import ConfigError, HoldfastError

Where = tuple[str, int]

INTRODUCTION_S: Final = 0.5
"""For how long at most librdkafka is told of new topics before it is told to read them."""


class Records:
    def __init__(self, config: Mapping[str, Any]) -> None:
        try:
            self._consumer = confluent_kafka.Consumer(dict(config))
        except (confluent_kafka.KafkaException, ValueError, TypeError) as error:
            raise ConfigError(f"the data plane refuses its settings: {_said(error)}") from error
        self._start: dict[Where, int] = {}
        self._noted: dict[Where, int] = {}
        self._paused: set[Where] = set()
        self._introduced: set[str] = set()

    @property
    def assigned(self) -> Collection[Where]:
        return self._start.keys()

    # -- reading -------------------------------------------------------------------------------------------------------

    def poll(self, timeout_s: float) -> Any:
        return self._consumer.poll(timeout_s)

    def consume(self, most: int, timeout_s: float) -> list[Any]:
        messages: list[Any] = self._consumer.consume(most, timeout_s)
        return messages

    def positions(self, partitions: Collection[Where] | None = None) -> dict[Where, int]:
        """The offset of the next record that the application gets: after the last one given out, or the start."""
        asked = [where for where in (self._start if partitions is None else partitions) if where in self._start]
        found = self._consumer.position([confluent_kafka.TopicPartition(*where) for where in asked])
        return {
            where: at.offset if at.offset >= 0 else self._start[where] for where, at in zip(asked, found, strict=True)
        }

    def note(self) -> None:
        """Note the positions: the application has been given all that is before them."""
        self._noted = self.positions()

    def go_back(self) -> None:
        """To the positions that were noted last."""
        for where, offset in self.positions().items():
            noted = self._noted.get(where, self._start[where])
            if noted < offset:
                self.seek(where, noted)

    # -- what is read --------------------------------------------------------------------------------------------------

    def add(self, offsets: Mapping[Where, int]) -> None:
        """Read these too, from these offsets on."""
        if not offsets:
            return
        self._introduce({topic for topic, _ in offsets})
        self._do("incremental_assign", [_partition(where, offset) for where, offset in offsets.items()])
        self._start.update(offsets)

    def _introduce(self, topics: Collection[str]) -> None:
        """Have librdkafka ask where these topics are. Told to read one that it has never heard of, it finds out at its
        next turn of a second; what it does not learn here it still learns then."""
        deadline = time.monotonic() + INTRODUCTION_S
        for topic in sorted(set(topics) - self._introduced):
            try:
                self._consumer.list_topics(topic, timeout=max(0.0, deadline - time.monotonic()))
            except confluent_kafka.KafkaException:
                return
            self._introduced.add(topic)

    def remove(self, partitions: Collection[Where]) -> None:
        """Read these no more. What was fetched of them and not yet given out is thrown away."""
        going = [where for where in partitions if where in self._start]
        if not going:
            return
        self._do("incremental_unassign", [_partition(where) for where in going])
        for where in going:
            del self._start[where]
            self._noted.pop(where, None)
        self._paused.difference_update(going)

    def seek(self, where: Where, offset: int) -> None:
        """Starts over at the offset. librdkafka's own seek fails where fetching has not begun yet."""
        paused = where in self._paused
        self.remove([where])
        self.add({where: offset})
        if paused:
            self.pause([where])

    def pause(self, partitions: Collection[Where]) -> None:
        self._do("pause", [_partition(where) for where in partitions])
        self._paused.update(partitions)

    def resume(self, partitions: Collection[Where]) -> None:
        self._do("resume", [_partition(where) for where in partitions])
        self._paused.difference_update(partitions)

    def close(self) -> None:
        self._consumer.close()

    def _do(self, name: str, partitions: list[Any]) -> None:
        try:
            getattr(self._consumer, name)(partitions)
        except confluent_kafka.KafkaException as error:
            raise HoldfastError(f"the data plane refuses to {name.replace('_', ' ')}: {_said(error)}") from error


def _partition(where: Where, offset: int = confluent_kafka.OFFSET_INVALID) -> Any:
    return confluent_kafka.TopicPartition(where[0], where[1], offset)


def _said(error: BaseException) -> str:
    detail = error.args[0] if error.args else error
    return str(detail.str()) if isinstance(detail, confluent_kafka.KafkaError) else str(detail)
