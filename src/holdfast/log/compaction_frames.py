"""What the broker and the process of a compaction say to each other, through two pipes.

A frame is two sizes, a JSON object of the first and bytes of the second. The broker asks, and gets one answer:

    task       the log, its closed segments, the producers' last batches   → ready
    read_keys  from this offset on                                         → where the keys end
    rewrite    the segments from here on, into the file with this inode    → the new segment, with its indexes

Instead of an answer there can be an error, and before any answer come lines to be logged.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

_SIZES = struct.Struct(">II")
# A log of a million segments has room in it; what another program prints begins with more.
_MOST_TEXT_BYTES = 32 * 1024 * 1024


class Frame(NamedTuple):
    message: dict[str, Any]  # Any: whatever JSON can hold; both ends are of one version
    content: bytes = b""

    def encode(self) -> bytes:
        text = json.dumps(self.message).encode()
        return b"".join((_SIZES.pack(len(text), len(self.content)), text, self.content))


class FrameBuffer:
    """Bytes as they come, until they are frames; ValueError for what can be none."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        self._bytes += data
        while len(self._bytes) >= _SIZES.size:
            text_size, content_size = _SIZES.unpack_from(self._bytes)
            if text_size > _MOST_TEXT_BYTES:
                raise ValueError(f"no frame: {bytes(self._bytes[:40])!r}")
            end = _SIZES.size + text_size + content_size
            if len(self._bytes) < end:
                return
            text = self._bytes[_SIZES.size : _SIZES.size + text_size]
            frame = Frame(json.loads(text), bytes(self._bytes[_SIZES.size + text_size : end]))
            del self._bytes[:end]
            yield frame


def pack_batches(batches: Collection[tuple[int, int]]) -> bytes:
    """Pairs of numbers; there can be as many as there were producers."""
    return array("q", [number for pair in batches for number in pair]).tobytes()


def unpack_batches(content: bytes) -> frozenset[tuple[int, int]]:
    numbers = array("q", content)
    return frozenset(zip(numbers[0::2], numbers[1::2], strict=True))
