"""The user data of a sticky member: its previous assignment, and since KIP-341 the generation.

    v0   previous_assignment [topic STRING, partitions [INT32]]
    v1   the same, then generation INT32

There is no version field. A leader from before KIP-341 ignores the four bytes at the end. A later leader reads data
without them as v0. Other bytes are not a claim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct, pack
from typing import Final

import numpy as np
from numpy.typing import NDArray

from holdfast.assignors.interface import NO_GENERATION

_INT32: Final = Struct(">i")
_LENGTH: Final = Struct(">h")
_MAX_NAME_LENGTH: Final = 2**15 - 1
_BIG_ENDIAN: Final = np.dtype(">i4")

_HASH_TABLE_SIZE: Final = 16
"""The capacity of a new java.util.HashMap."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of the bytes: topic after topic, each with its number of partitions."""

    topics: Sequence[bytes] = ()
    """As bytes, because they need not be UTF-8."""
    lengths: Sequence[int] = ()
    starts: Sequence[int] = ()
    """The start of the partitions of each topic."""
    end: int = 0


@dataclass(frozen=True, slots=True)
class PreviousAssignment:
    """The partitions of all topics in one array, in the order of the layout."""

    layout: Layout
    partitions: NDArray[np.int64]
    generation: int


NOTHING: Final = PreviousAssignment(Layout(), np.empty(0, dtype=np.int64), NO_GENERATION)


def encode(partitions: Mapping[str, Sequence[int]], generation: int) -> bytes:
    """Always v1, and topics in the order in which Java's client writes them."""
    lists = {topic: numbers for topic, numbers in partitions.items() if len(numbers)}
    parts = [_INT32.pack(len(lists))]
    for topic in _in_hash_order(lists):
        name, numbers = topic.encode(), lists[topic]
        parts += (_LENGTH.pack(len(name)), name, pack(f">i{len(numbers)}i", len(numbers), *numbers))
    parts.append(_INT32.pack(generation))
    return b"".join(parts)


class Reader:
    """Decodes the user data of the members of one group, one after the other.

    They usually differ only in the partition numbers: the same topics, with as many partitions of each. The layout of
    the previous one is therefore tried first, by comparing all bytes that are not partition numbers, which takes a
    tenth of the time of parsing.
    """

    def __init__(self) -> None:
        self._layout: Layout = NOTHING.layout
        self._example: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
        self._fixed_bytes: NDArray[np.uint8] = self._example
        self._positions: NDArray[np.int64] = np.empty((0, 4), dtype=np.int64)

    def read(self, user_data: bytes | None) -> PreviousAssignment:
        """Never fails. Missing or unreadable data claims nothing."""
        if not user_data:
            return NOTHING
        as_bytes = np.frombuffer(user_data, dtype=np.uint8)
        if len(as_bytes) != len(self._example) or ((as_bytes ^ self._example) & self._fixed_bytes).any():
            layout = find_layout(user_data)
            if layout is None:
                return NOTHING
            self._remember(layout, as_bytes)
        layout = self._layout
        partitions = as_bytes[self._positions].view(_BIG_ENDIAN).reshape(-1).astype(np.int64)
        has_generation = layout.end + _INT32.size <= len(user_data)
        generation = int(_INT32.unpack_from(user_data, layout.end)[0]) if has_generation else NO_GENERATION
        return PreviousAssignment(layout, partitions, max(generation, NO_GENERATION))

    def _remember(self, layout: Layout, example: NDArray[np.uint8]) -> None:
        lengths = np.array(layout.lengths, dtype=np.int64)
        firsts = np.repeat(np.array(layout.starts, dtype=np.int64) - 4 * (np.cumsum(lengths) - lengths), lengths)
        self._layout, self._example = layout, example
        self._positions = (firsts + 4 * np.arange(len(firsts)))[:, np.newaxis] + np.arange(4)
        self._fixed_bytes = np.full(len(example), 0xFF, dtype=np.uint8)
        self._fixed_bytes[self._positions] = 0
        self._fixed_bytes[layout.end :] = 0


def find_layout(user_data: bytes) -> Layout | None:
    """None if this is not user data."""
    topics: list[bytes] = []
    lengths: list[int] = []
    starts: list[int] = []
    at, size = _INT32.size, len(user_data)
    count = _INT32.unpack_from(user_data)[0] if at <= size else -1
    for _ in range(count):
        name_length = int.from_bytes(user_data[at : at + 2], "big")
        name_end = at + 2 + name_length
        length = int.from_bytes(user_data[name_end : name_end + 4], "big")
        topics.append(user_data[at + 2 : name_end])
        lengths.append(length)
        starts.append(name_end + 4)
        # Missing bytes read as zero, and negative numbers as huge ones; both lead beyond the end.
        at = name_end + 4 + 4 * length
        if at > size or name_length > _MAX_NAME_LENGTH:
            return None
    return None if count < 0 else Layout(topics, lengths, starts, at)


def _in_hash_order(partitions: dict[str, Sequence[int]]) -> list[str]:
    """The iteration order of the hash table into which Java's client puts these, partition by partition.

    It is by bucket, and within a bucket the last one added is first. The table grows when it is three quarters full,
    but only when the next partition is added. A last topic with a single partition therefore does not make it grow.
    """
    latest_first = list(reversed(partitions))
    grown_for = len(latest_first) - bool(latest_first and len(partitions[latest_first[0]]) == 1)
    buckets = _HASH_TABLE_SIZE
    while grown_for > buckets * 3 // 4:
        buckets *= 2
    return sorted(latest_first, key=lambda topic: _spread_hash(topic) & (buckets - 1))


@lru_cache(maxsize=4096)
def _spread_hash(text: str) -> int:
    hashed = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        hashed = (31 * hashed + (high << 8) + low) & 0xFFFFFFFF
    return hashed ^ (hashed >> 16)
