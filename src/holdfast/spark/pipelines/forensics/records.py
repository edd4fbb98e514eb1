"""The records of the two topics about a group, in one form.

The ledger has causes, and `__consumer_offsets` has owners. They are combined by time, which is the broker's wall clock
in both. An event is written after its group record, in the same millisecond at the earliest, so they are matched by
generation and not by order.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from holdfast.types import TopicPartition
from holdfast.wire.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from holdfast.wire.errors import WireError
from holdfast.wire.group_records import GroupMetadataKey, GroupMetadataValue, decode_record, encode_key

OFFSETS_TOPIC: Final = "__consumer_offsets"

_ANY_KEY: Final = encode_key(GroupMetadataKey("g"))
_MAX_NAME_LENGTH: Final = 60
_INT32: Final = range(-(2**31), 2**31)
_NUMBERS: Final = ("unassigned_ms", "moved_partitions", "members")
"""Numbers of an event that are used here. All of them fit into 32 bits."""
_FIRST_MS: Final = -62_135_596_800_000
_LAST_MS: Final = 253_402_300_799_999
"""The first and last millisecond of the years 1 to 9999."""
MAX_UNREADABLE_KINDS: Final = 50
"""Kinds of unreadable records that are counted separately."""


class RecordKind(IntEnum):
    """The kind of a record. Within a millisecond, those of the ledger come first."""

    UNREADABLE = 0
    """Unknown to this version: `body` names it, `after` is the count."""
    EVENT = 1
    """An event of the ledger; `body` is its JSON."""
    GROUP = 2
    """A group record; without a `body` the group was deleted."""
    FIRST_COMMIT = 3
    """The first commit of a partition since the last group record; `after` is the offset."""
    COMMIT_BACK = 4
    """A commit below the one before it: from `before` to `after`."""


RECORD_COLUMNS: Final = (
    "group_id STRING, at_ms BIGINT, offset BIGINT, kind INT, body BINARY, topic STRING, partition INT,"
    " before BIGINT, after BIGINT"
)
"""`offset` is that of the record in its topic."""


class UnreadableRecord(Exception):
    """A record that this version cannot read; the message names its kind."""


@dataclass(frozen=True, slots=True)
class LedgerEvent:
    """An event of the ledger."""

    at_ms: int
    kind: str
    generation: int
    cause: str
    fields: Mapping[str, Any]

    def text(self, name: str) -> str | None:
        found = self.fields.get(name)
        return _valid_text(found) if isinstance(found, str) else None

    def number(self, name: str) -> int | None:
        found = self.fields.get(name)
        return found if isinstance(found, int) else None


@dataclass(frozen=True, slots=True)
class MemberRef:
    """A member in a group record, with its assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    partitions: tuple[TopicPartition, ...]

    @property
    def label(self) -> str:
        """Identifies the member, across restarts if it is static."""
        return self.instance_id or self.member_id

    @property
    def process(self) -> str:
        """Identifies the process: a dynamic member has a new member id after every start."""
        return process_of(self.instance_id, self.client_id, self.client_host)


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group record of `__consumer_offsets`."""

    at_ms: int
    generation: int
    protocol: str | None
    state_ms: int
    """When the group entered its state; -1 if unknown."""
    members: tuple[MemberRef, ...]
    is_decoded: bool
    """Whether the assignments could be decoded with the consumer protocol."""


def process_of(instance_id: str | None, client_id: str | None, client_host: str | None) -> str:
    return instance_id or f"{client_id or '?'} on {client_host or '?'}"


def read_event(at_ms: int, body: bytes | None) -> LedgerEvent:
    """Raises UnreadableRecord if it is not an event: any client may write to the topic, and a record may be
    truncated."""
    try:
        fields = json.loads(body or b"")
        kind, generation, cause = fields["kind"], fields["generation"], fields.get("cause", "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UnreadableRecord("__group_ledger: no event") from None
    numbers = [generation, *(fields[name] for name in _NUMBERS if fields.get(name) is not None)]
    if not (isinstance(kind, str) and isinstance(cause, str) and all(map(_is_number, numbers))):
        raise UnreadableRecord("__group_ledger: no event")
    return LedgerEvent(at_ms, kind, generation, _valid_text(cause), fields)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in _INT32


def _valid_text(text: str) -> str:
    """JSON may contain half of a surrogate pair, which cannot be encoded as UTF-8."""
    return text.encode("utf-8", "replace").decode()


def read_stored(at_ms: int, body: bytes) -> StoredGroup:
    """Raises UnreadableRecord for an unknown version, and for bytes that cannot be decoded."""
    try:
        decoded = decode_record(_ANY_KEY, body)
    except WireError:
        version = int.from_bytes(body[:2], "big") if len(body) >= 2 else -1
        known = 0 <= version <= 4  # as `wire.group_records` has them
        raise UnreadableRecord(
            f"{OFFSETS_TOPIC}: a group, {'damaged' if known else f'value version {version}'}"
        ) from None
    assert decoded is not None and isinstance(decoded[1], GroupMetadataValue)
    value = decoded[1]
    is_read = value.protocol_type == PROTOCOL_TYPE
    members = []
    for member in value.members:
        partitions: tuple[TopicPartition, ...] = ()
        if is_read:
            try:
                partitions = _partitions(member.assignment)
            except WireError:
                is_read = False
        members.append(
            MemberRef(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.session_timeout,
                partitions,
            )
        )
    return StoredGroup(at_ms, value.generation, value.protocol, value.current_state_timestamp, tuple(members), is_read)


def _partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    if not assignment:
        return ()
    return tuple(
        (topic.topic, number)
        for topic in decode_assignment(assignment).assigned_partitions
        for number in topic.partitions
    )


def clamp_to_dates(at_ms: int) -> int:
    """The nearest time that has a date: a record may have any timestamp."""
    return min(max(at_ms, _FIRST_MS), _LAST_MS)


def count_unreadable(counts: Counter[str], name: str) -> None:
    """Names may come from any client: they are shortened, and only some kinds are counted separately."""
    short = name if len(name) <= _MAX_NAME_LENGTH else f"{name[:_MAX_NAME_LENGTH]}…"
    if short not in counts and len(counts) >= MAX_UNREADABLE_KINDS:
        short = f"{name.partition(':')[0]}: others"
    counts[short] += 1
