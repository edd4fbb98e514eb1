"""All topics of the cluster with their ids and sizes, from Metadata.

A Metadata response has four numbers and three arrays for each partition, and a cluster may have 100,000 partitions. The
mirror needs only their number. The response to `listing_request` is therefore decoded into a `TopicListing`: partitions
are counted and skipped. This takes a fraction of the time, and there may be more of them than the general decoder
allows in one message.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator
from dataclasses import dataclass
from struct import Struct, error
from typing import ClassVar, Final, NamedTuple

from holdfast.wire.apis.metadata import METADATA, MetadataRequest
from holdfast.wire.errors import WireError
from holdfast.wire.message import Api, Buffer
from holdfast.wire.varint import decode_uvarint

LISTING_VERSION: Final = 12
"""The first version that has topic ids in requests as well, since Kafka 3.1."""

_PAUSE_AFTER: Final = 500
"""The number of partitions that are skipped at once, in about half a millisecond."""
_PARTITION_HEAD_BYTES: Final = 14
"""Error code, index, leader and leader epoch."""
_ARRAYS_OF_PARTITION: Final = 3
_SMALLEST_PARTITION: Final = _PARTITION_HEAD_BYTES + _ARRAYS_OF_PARTITION + 1
_SMALLEST_TOPIC: Final = 26
_SMALLEST_BROKER: Final = 11
_ID_BYTES: Final = 16
_INT32_BYTES: Final = 4
_LONG: Final = 128
"""A varint of this value or a greater one has more than one byte."""

_error_code = Struct(">h").unpack_from
_node_id = Struct(">i").unpack_from

_FAILURES: Final = (error, IndexError, UnicodeDecodeError)


class ListedTopic(NamedTuple):
    name: str
    id: bytes
    partition_count: int
    error_code: int


@dataclass(slots=True)
class TopicListing:
    cluster_id: str | None
    broker_ids: list[int]
    """The live brokers, as the broker that answered knows them."""
    topics: list[ListedTopic]

    decoders: ClassVar[dict[int, Callable[[Buffer, int], tuple[TopicListing, int]]]]
    sliced_decoders: ClassVar[dict[int, Callable[[Buffer, int], Generator[None, None, tuple[TopicListing, int]]]]]


_LISTING: Final[Api] = copy.copy(METADATA)  # a copy, because the constructor would register the key a second time
_LISTING.response = TopicListing


class TopicListingRequest(MetadataRequest):
    """A MetadataRequest whose response is a TopicListing. It has to be sent in `LISTING_VERSION`."""

    __slots__ = ()
    API: ClassVar[Api] = _LISTING


def listing_request() -> TopicListingRequest:
    """Requests all topics."""
    return TopicListingRequest(topics=None, allow_auto_topic_creation=False)


def decode_listing(buffer: Buffer, position: int) -> Generator[None, None, tuple[TopicListing, int]]:
    """Decodes the body of a Metadata response in `LISTING_VERSION`. It pauses after each topic."""
    try:
        reader = _Reader(buffer, position + _INT32_BYTES)  # after the throttle time
        brokers = reader.brokers()
        listing = TopicListing(reader.string(), brokers, [])
        reader.skip(_INT32_BYTES)  # the controller
        for _ in range(reader.count(_SMALLEST_TOPIC)):
            yield
            topic = yield from reader.topic()
            if topic is not None:
                listing.topics.append(topic)
        reader.skip_tags()
    except _FAILURES as failure:
        raise WireError(f"not a listing of topics: {failure}") from failure
    return listing, reader.position


class _Reader:
    """A position in the body of a response. Every length is compared with the bytes that are left."""

    __slots__ = ("_buffer", "_end", "position")

    def __init__(self, buffer: Buffer, position: int) -> None:
        self._buffer = buffer
        self._end = len(buffer)
        self.position = position

    def skip(self, size: int) -> None:
        if size > self._end - self.position:
            raise WireError(f"{size} bytes past the end of a listing of topics")
        self.position += size

    def count(self, smallest: int) -> int:
        """The number of elements of an array. An element takes at least `smallest` bytes."""
        number, self.position = decode_uvarint(self._buffer, self.position)
        if number - 1 > (self._end - self.position) // smallest:
            raise WireError(f"{number - 1} elements past the end of a listing of topics")
        return max(number - 1, 0)

    def string(self) -> str | None:
        number, start = decode_uvarint(self._buffer, self.position)
        self.position = start
        if number == 0:
            return None
        self.skip(number - 1)
        return str(self._buffer[start : self.position], "utf-8")

    def skip_tags(self) -> None:
        number, self.position = decode_uvarint(self._buffer, self.position)
        for _ in range(number):  # the end of the buffer bounds the loop
            _, self.position = decode_uvarint(self._buffer, self.position)
            size, self.position = decode_uvarint(self._buffer, self.position)
            self.skip(size)

    def brokers(self) -> list[int]:
        found: list[int] = []
        for _ in range(self.count(_SMALLEST_BROKER)):
            found.append(_node_id(self._buffer, self.position)[0])
            self.skip(_INT32_BYTES)
            self.string()  # host
            self.skip(_INT32_BYTES)
            self.string()  # rack
            self.skip_tags()
        return found

    def topic(self) -> Generator[None, None, ListedTopic | None]:
        """None for a topic without a name, which only a request by id has in its response."""
        (code,) = _error_code(self._buffer, self.position)
        self.skip(2)
        name = self.string()
        start = self.position
        self.skip(_ID_BYTES + 1)  # with the byte that says whether the topic is internal
        topic_id = bytes(self._buffer[start : start + _ID_BYTES])
        partition_count = self.count(_SMALLEST_PARTITION)
        for skipped in range(0, partition_count, _PAUSE_AFTER):
            if skipped:
                yield
            self._skip_partitions(min(_PAUSE_AFTER, partition_count - skipped))
        self.skip(_INT32_BYTES)  # the authorized operations
        self.skip_tags()
        return None if name is None else ListedTopic(name, topic_id, partition_count, code)

    def _skip_partitions(self, count: int) -> None:
        """The loop is written out, because it runs once for each partition of the cluster."""
        buffer, position = self._buffer, self.position
        for _ in range(count):
            position += _PARTITION_HEAD_BYTES
            for _ in range(_ARRAYS_OF_PARTITION):
                number = buffer[position]
                position += 1
                if number >= _LONG:
                    number, position = decode_uvarint(buffer, position - 1)
                if number > 1:
                    position += _INT32_BYTES * (number - 1)
            if buffer[position] == 0:
                position += 1
            else:
                self.position = position
                self.skip_tags()
                position = self.position
        if position > self._end:
            raise WireError("partitions past the end of a listing of topics")
        self.position = position


def _decode_at_once(buffer: Buffer, position: int) -> tuple[TopicListing, int]:
    work = decode_listing(buffer, position)
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]  # a listing and a position


TopicListing.decoders = {LISTING_VERSION: _decode_at_once}
TopicListing.sliced_decoders = {LISTING_VERSION: decode_listing}
