"""What the two topics say of a group, in one form.

The ledger tells why something happened, and `__consumer_offsets` who owned what. They are put together by time, which
is the broker's wall clock in both. An event is told after what it is about was stored, at the same millisecond at the
earliest; so what belongs together is recognised by its generation, never by the order of the two.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from holdfast.wire.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from holdfast.wire.errors import WireError
from holdfast.wire.group_records import GroupMetadataKey, GroupMetadataValue, decode_record, encode_key

Where = tuple[str, int]
"""Topic and partition."""

OFFSETS_TOPIC: Final = "__consumer_offsets"

_ANY_KEY: Final = encode_key(GroupMetadataKey("g"))
_LONGEST_NAME: Final = 60
_INT32: Final = range(-(2**31), 2**31)
_NUMBERS: Final = ("stood_still_ms", "moved_partitions", "members")
"""Of an event, as far as they are read here. None has ever been near what 32 bits hold."""
_FIRST_MS: Final = -62_135_596_800_000
_LAST_MS: Final = 253_402_300_799_999
"""The years 1 to 9999."""
MOST_NAMES: Final = 50
"""Of what cannot be read, so many kinds are told apart."""


class Kind(IntEnum):
    """What a row of facts is. Of one millisecond, the ledger's come first."""

    UNREAD = 0
    """Nothing that this version knows: `body` names it, `after` is how many there were."""
    EVENT = 1
    """Of the ledger; `body` is its JSON."""
    GROUP = 2
    """The group as it was stored; without a `body` it is gone."""
    FIRST = 3
    """The first commit of a partition since the group was last stored; `after` is the offset."""
    BACK = 4
    """A commit below the one before it: from `before` to `after`."""


FACTS: Final = (
    "group_id STRING, at_ms BIGINT, place BIGINT, kind INT, body BINARY, topic STRING, partition INT,"
    " before BIGINT, after BIGINT"
)
"""`place` is the offset in the topic that the fact is from."""


class Unread(Exception):
    """A record that this version cannot read; the message names its kind."""


@dataclass(frozen=True, slots=True)
class Event:
    """Of the ledger."""

    at_ms: int
    kind: str
    generation: int
    cause: str
    told: Mapping[str, Any]

    def text(self, name: str) -> str | None:
        found = self.told.get(name)
        return _writable(found) if isinstance(found, str) else None

    def number(self, name: str) -> int | None:
        found = self.told.get(name)
        return found if isinstance(found, int) else None


@dataclass(frozen=True, slots=True)
class Seat:
    """A member, with what it was given."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    partitions: tuple[Where, ...]

    @property
    def label(self) -> str:
        """Who it is through a restart, as far as that can be told."""
        return self.instance_id or self.member_id

    @property
    def process(self) -> str:
        """Which process it may be the member of: a dynamic one has another id with every start."""
        return process_of(self.instance_id, self.client_id, self.client_host)


@dataclass(frozen=True, slots=True)
class Stored:
    """A group as it stands in `__consumer_offsets`."""

    at_ms: int
    generation: int
    protocol: str | None
    state_ms: int
    """When the group entered its state; -1 where that is not said."""
    seats: tuple[Seat, ...]
    is_read: bool
    """Whether the assignments are the consumer protocol's."""


def process_of(instance_id: str | None, client_id: str | None, client_host: str | None) -> str:
    return instance_id or f"{client_id or '?'} on {client_host or '?'}"


def read_event(at_ms: int, body: bytes | None) -> Event:
    """Raises Unread for what is no event: anybody may write to the topic, and its end may be cut off."""
    try:
        told = json.loads(body or b"")
        kind, generation, cause = told["kind"], told["generation"], told.get("cause", "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Unread("__group_ledger: no event") from None
    numbers = [generation, *(told[name] for name in _NUMBERS if told.get(name) is not None)]
    if not (isinstance(kind, str) and isinstance(cause, str) and all(map(_is_number, numbers))):
        raise Unread("__group_ledger: no event")
    return Event(at_ms, kind, generation, _writable(cause), told)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in _INT32


def _writable(text: str) -> str:
    """JSON may name half of a surrogate pair, which no table and no page can hold."""
    return text.encode("utf-8", "replace").decode()


def read_stored(at_ms: int, body: bytes) -> Stored:
    """Raises Unread for a version that we do not know, and for bytes that are none."""
    try:
        decoded = decode_record(_ANY_KEY, body)
    except WireError:
        version = int.from_bytes(body[:2], "big") if len(body) >= 2 else -1
        known = 0 <= version <= 4  # as `wire.group_records` has them
        raise Unread(f"{OFFSETS_TOPIC}: a group, {'damaged' if known else f'value version {version}'}") from None
    assert decoded is not None and isinstance(decoded[1], GroupMetadataValue)
    value = decoded[1]
    is_read = value.protocol_type == PROTOCOL_TYPE
    seats = []
    for member in value.members:
        partitions: tuple[Where, ...] = ()
        if is_read:
            try:
                partitions = _partitions(member.assignment)
            except WireError:
                is_read = False
        seats.append(
            Seat(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.session_timeout,
                partitions,
            )
        )
    return Stored(at_ms, value.generation, value.protocol, value.current_state_timestamp, tuple(seats), is_read)


def _partitions(assignment: bytes) -> tuple[Where, ...]:
    if not assignment:
        return ()
    return tuple(
        (topic.topic, number)
        for topic in decode_assignment(assignment).assigned_partitions
        for number in topic.partitions
    )


def nameable_ms(at_ms: int) -> int:
    """The nearest time that has a date: a record may have any."""
    return min(max(at_ms, _FIRST_MS), _LAST_MS)


def count_unread(counts: Counter[str], name: str) -> None:
    """Names come from anybody: they are shortened, and only so many kinds are told apart."""
    short = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
    if short not in counts and len(counts) >= MOST_NAMES:
        short = f"{name.partition(':')[0]}: others"
    counts[short] += 1
