"""The embedded protocol of groups of type "consumer": subscriptions and assignments.

Both messages begin with an int16 version and are never flexible. Subscription v1 adds the partitions that the member
still owns (KIP-429), v2 the generation in which it got them (KIP-792), v3 its rack (KIP-881); all versions of
Assignment have the same layout. A higher version is read as our highest, because later versions may only add fields at
the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct, error, pack
from typing import Any, Final, TypeVar

from holdfast.wire.errors import WireError
from holdfast.wire.fields import array, blob, int16, int32, string
from holdfast.wire.message import Buffer, decode, encode, message, struct_type

T = TypeVar("T")

PROTOCOL_TYPE: Final = "consumer"
LATEST_VERSION: Final = 3
FIRST_WITH_OWNED: Final = 1
NO_GENERATION: Final = -1
EMPTY_ASSIGNMENT: Final = bytes.fromhex("0000 00000000 ffffffff")
"""An empty assignment without user data, v0, for a member that its leader omitted. Clients fail on zero bytes."""

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_ONE: Final = Struct(">ii")


@struct_type
class TopicPartitions:
    topic: str = string()
    partitions: list[int] = array(int32())


@message(versions=(0, LATEST_VERSION))
class Subscription:
    topics: list[str] = array(string())
    user_data: bytes | None = blob(nullable=0, default=None)
    owned_partitions: list[TopicPartitions] = array(TopicPartitions, since=1, ignorable=True)
    generation_id: int = int32(since=2, default=NO_GENERATION, ignorable=True)
    rack_id: str | None = string(since=3, nullable=3, default=None, ignorable=True)


@message(versions=(0, LATEST_VERSION))
class Assignment:
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    user_data: bytes | None = blob(nullable=0, default=None)


@message(versions=(0, 0))
class _SubscribedTopics:
    """The common beginning of all versions of a subscription."""

    version: int = int16()
    topics: list[str] = array(string())


def encode_subscription(subscription: Subscription, version: int = LATEST_VERSION) -> bytes:
    """Equal subscriptions have equal bytes, so that the coordinator can detect a change."""
    ordered = Subscription(
        topics=sorted(subscription.topics, key=_java_order),
        user_data=subscription.user_data,
        owned_partitions=_ordered(subscription.owned_partitions),
        generation_id=subscription.generation_id,
        rack_id=subscription.rack_id or None,
    )
    return _encode_prefixed(ordered, version)


def decode_subscription(metadata: Buffer) -> Subscription:
    """kafka-go (segmentio) writes v1 without the owned partitions. It is read as a member that owns nothing."""
    try:
        subscription = _decode_prefixed(Subscription, metadata)
    except WireError:
        if metadata[: _INT16.size] != _INT16.pack(FIRST_WITH_OWNED):
            raise
        subscription = decode(Subscription, 0, metadata, _INT16.size)
        if _INT16.size + len(encode(subscription, 0)) != len(metadata):
            raise  # it ends elsewhere, so the bytes are damaged
    subscription.generation_id = max(subscription.generation_id, NO_GENERATION)
    subscription.rack_id = subscription.rack_id or None
    return subscription


def encode_assignment(assignment: Assignment, version: int = LATEST_VERSION) -> bytes:
    return _encode_prefixed(Assignment(_ordered(assignment.assigned_partitions), assignment.user_data), version)


class AssignmentWriter:
    """Encodes the assignments of many members, as `encode_assignment` does, directly from partitions by topic.

    A leader encodes one for each member, with the same topics, so encoded topics are cached. With a million partitions
    this takes a tenth of the time of encoding messages.
    """

    def __init__(self, version: int = LATEST_VERSION) -> None:
        self._version = _INT16.pack(version)
        self._topics: dict[str, tuple[bytes, bytes]] = {}

    def write(self, partitions: Mapping[str, Sequence[int]], user_data: bytes | None = None) -> bytes:
        """Topics without partitions are omitted."""
        try:
            entries = [(self._topic(topic), numbers) for topic, numbers in partitions.items() if len(numbers)]
            entries.sort(key=_by_topic)
            parts = [self._version, _INT32.pack(len(entries))]
            for (_, name), numbers in entries:
                if len(numbers) == 1:
                    parts.append(name + _ONE.pack(1, numbers[0]))
                else:
                    parts.append(name + pack(f">i{len(numbers)}i", len(numbers), *sorted(numbers)))
            parts += [_INT32.pack(-1)] if user_data is None else [_INT32.pack(len(user_data)), user_data]
        except error as failure:
            raise WireError(f"an assignment cannot be written: {failure}") from failure
        return b"".join(parts)

    def _topic(self, topic: str) -> tuple[bytes, bytes]:
        """Its sort key, and its encoded form."""
        known = self._topics.get(topic)
        if known is None:
            name = topic.encode()
            known = self._topics[topic] = _java_order(topic), _INT16.pack(len(name)) + name
        return known


def _by_topic(entry: tuple[tuple[bytes, bytes], Sequence[int]]) -> bytes:
    return entry[0][0]


def decode_assignment(assignment: Buffer) -> Assignment:
    return _decode_prefixed(Assignment, assignment)


def subscribed_topics(metadata: Buffer) -> list[str]:
    """The topics of a subscription, for a coordinator that needs no more of it.

    The version and the bytes after the topics are ignored. Raises WireError if the topics are unreadable; they are then
    unknown, which is not the same as none.
    """
    return decode(_SubscribedTopics, 0, metadata).topics


def topic_count(metadata: Buffer) -> int:
    """The number of topics in a subscription, without decoding them."""
    try:
        (count,) = _INT32.unpack_from(metadata, _INT16.size)
    except error as failure:
        raise WireError(f"a subscription of {len(metadata)} bytes has no topics") from failure
    return int(count)


def _ordered(entries: list[TopicPartitions]) -> list[TopicPartitions]:
    """One entry per topic, with topics and partitions in order."""
    partitions: dict[str, list[int]] = {}
    for entry in entries:
        partitions.setdefault(entry.topic, []).extend(entry.partitions)
    return [TopicPartitions(topic, sorted(partitions[topic])) for topic in sorted(partitions, key=_java_order)]


def _java_order(topic: str) -> bytes:
    """Java compares strings by their UTF-16 units."""
    return topic.encode("utf-16-be", "surrogatepass")


def _encode_prefixed(value: Any, version: int) -> bytes:
    encoded = encode(value, version)
    return _INT16.pack(version) + encoded


def _decode_prefixed(cls: type[T], buffer: Buffer) -> T:
    try:
        (version,) = _INT16.unpack_from(buffer)
    except error as failure:
        raise WireError(f"{cls.__name__} of {len(buffer)} bytes has no room for its version") from failure
    return decode(cls, min(version, LATEST_VERSION), buffer, _INT16.size)
