"""What a member of a sticky group tells its leader: what it had, and since KIP-341 in which generation it got it.

    v0   previous_assignment [topic STRING, partitions [INT32]]
    v1   the same, then generation INT32

Nothing says which version it is. A leader of before KIP-341 reads what it knows and never sees the four bytes after it;
a leader of today takes bytes without them for v0. Bytes that are neither are no claim at all.
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
_LONGEST_NAME: Final = 2**15 - 1
_BIG_ENDIAN: Final = np.dtype(">i4")

_HASH_TABLE_SIZE: Final = 16
"""Of a fresh java.util.HashMap."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things stand in the bytes: topic after topic, each with how many partitions."""

    topics: Sequence[bytes] = ()
    """As they stand there. Nothing promises that they are UTF-8."""
    lengths: Sequence[int] = ()
    starts: Sequence[int] = ()
    """Where the partitions of each begin."""
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
    """Reads what the members of one group say, one after the other.

    They mostly say the same but for the partition numbers: the same topics, as many of each. So the layout of the last
    one is tried first, by a comparison of all bytes that are not partition numbers; a tenth of the work of a search.
    """

    def __init__(self) -> None:
        self._layout: Layout = NOTHING.layout
        self._example: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
        self._telling: NDArray[np.uint8] = self._example
        self._positions: NDArray[np.int64] = np.empty((0, 4), dtype=np.int64)

    def read(self, user_data: bytes | None) -> PreviousAssignment:
        """Never fails: what cannot be read, or was never sent, claims nothing."""
        if not user_data:
            return NOTHING
        as_bytes = np.frombuffer(user_data, dtype=np.uint8)
        if len(as_bytes) != len(self._example) or ((as_bytes ^ self._example) & self._telling).any():
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
        self._telling = np.full(len(example), 0xFF, dtype=np.uint8)
        self._telling[self._positions] = 0
        self._telling[layout.end :] = 0


def find_layout(user_data: bytes) -> Layout | None:
    """None if this is no user data."""
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
        # What is missing reads as zero, and what is negative as huge: both lead beyond the end.
        at = name_end + 4 + 4 * length
        if at > size or name_length > _LONGEST_NAME:
            return None
    return None if count < 0 else Layout(topics, lengths, starts, at)


def _in_hash_order(partitions: dict[str, Sequence[int]]) -> list[str]:
    """The order in which Java's client reads the hash table into which it sorted these, partition by partition.

    That is by bucket, and within one the last that came is first. The table grows when it is three quarters full, but
    only as the next partition comes: so one more topic at the end, if it has a single partition, does not make it grow.
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
