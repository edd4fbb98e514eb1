"""What the matrix asks of every client, in one vocabulary; the ``*_client`` modules say it in each client's own."""

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

DEADLINE_S = 60.0
"""How long any one thing may take before a test gives up; far more than it needs."""

BEGINNING = -2
END = -1
"""Where a reader starts, besides an offset: the numbers of ListOffsets."""

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class Record:
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    """None: the client's clock."""


@dataclass(frozen=True)
class Stored:
    """A record as a reader got it."""

    offset: int
    timestamp_ms: int
    value: bytes | None
    key: bytes | None
    headers: Headers


@dataclass(frozen=True)
class Sending:
    """How a producer sends; whatever stands at None is left at the client's own default."""

    compression: str | None = None
    acks: str | None = None
    idempotent: bool | None = None
    max_request_bytes: int | None = None


DEFAULT_SENDING = Sending()


class Reader(Protocol):
    """A consumer with one partition assigned to it."""

    def poll(self, timeout_s: float) -> list[Stored]:
        """What has come since the last call; waits up to ``timeout_s`` for something."""


class Client(Protocol):
    name: str

    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Record], partition: int = 0, sending: Sending = ...
    ) -> None:
        """Send the records in order and return when the broker has acknowledged all of them (acks 0: all are sent)."""

    def reader(
        self, bootstrap: str, topic: str, partition: int = 0, start: int = BEGINNING, fetch_wait_ms: int | None = None
    ) -> AbstractContextManager[Reader]:
        """Assign the partition to a consumer, without a group. The end is the one of now, not of the first poll."""

    def offset_for_time(self, bootstrap: str, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset whose record is not older; None past the last."""


class LibraryClient(Client, Protocol):
    """A client that is a library, with an admin and more than one way to move about."""

    def watermarks(self, bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]: ...

    def seek_and_read(self, bootstrap: str, topic: str, steps: Sequence[int]) -> list[Stored]:
        """With one consumer, seek to each of the offsets (or BEGINNING) of partition 0 and read one record there."""

    def begin_transaction(self, bootstrap: str, transactional_id: str) -> None:
        """Make a transactional producer and start it up."""

    def topics(self, bootstrap: str) -> dict[str, int]:
        """Every topic and how many partitions it has."""

    def create_topic(
        self, bootstrap: str, topic: str, partitions: int, configs: Mapping[str, str] | None = None
    ) -> None:
        """Make a topic and return when it takes records."""

    def delete_topic(self, bootstrap: str, topic: str) -> None: ...

    def grow_topic(self, bootstrap: str, topic: str, partitions: int) -> None: ...

    def topic_configs(self, bootstrap: str, topic: str) -> dict[str, str | None]: ...

    def set_topic_config(self, bootstrap: str, topic: str, name: str, value: str) -> None: ...


def read_from(reader: Reader, count: int, within_s: float = DEADLINE_S) -> list[Stored]:
    """Poll until ``count`` records are there."""
    deadline = time.monotonic() + within_s
    got: list[Stored] = []
    while len(got) < count:
        left = deadline - time.monotonic()
        assert left > 0, f"{len(got)} of {count} records within {within_s} s"
        got += reader.poll(min(left, 1.0))
    return got


def read(
    client: Client, bootstrap: str, topic: str, count: int, partition: int = 0, start: int = BEGINNING
) -> list[Stored]:
    with client.reader(bootstrap, topic, partition, start) as reader:
        return read_from(reader, count)


def values(stored: Sequence[Stored]) -> list[bytes | None]:
    return [record.value for record in stored]
