"""The protocol between the broker and the process of a compaction, over two pipes.

A frame has two sizes, a JSON object of the first size, and bytes of the second size. The broker sends a request and
gets one response:

    task       the log, its closed segments, the producers' last batches   → ready
    read_keys  from this offset on                                         → where the keys end
    rewrite    the segments from here on, into the file with this inode    → the new segment, with its indexes

The response can also be an error. Before a response there may be lines to log. Another task may follow.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

_SIZES = struct.Struct(">II")
# Enough for a log of a million segments. The output of another program would be read as a larger size.
_MAX_TEXT_BYTES = 32 * 1024 * 1024


class Frame(NamedTuple):
    message: dict[str, Any]  # Any: a JSON value; both ends have the same version
    content: bytes = b""

    def encode(self) -> bytes:
        text = json.dumps(self.message).encode()
        return b"".join((_SIZES.pack(len(text), len(self.content)), text, self.content))


class FrameBuffer:
    """Collects bytes into frames; ValueError for bytes that are not a frame."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        self._bytes += data
        while len(self._bytes) >= _SIZES.size:
            text_size, content_size = _SIZES.unpack_from(self._bytes)
            if text_size > _MAX_TEXT_BYTES:
                raise ValueError(f"no frame: {bytes(self._bytes[:40])!r}")
            end = _SIZES.size + text_size + content_size
            if len(self._bytes) < end:
                return
            text = self._bytes[_SIZES.size : _SIZES.size + text_size]
            frame = Frame(json.loads(text), bytes(self._bytes[_SIZES.size + text_size : end]))
            del self._bytes[:end]
            yield frame


def pack_batches(batches: Collection[tuple[int, int]]) -> bytes:
    """Pairs of numbers, up to one for each producer."""
    return array("q", [number for pair in batches for number in pair]).tobytes()


def unpack_batches(content: bytes) -> frozenset[tuple[int, int]]:
    numbers = array("q", content)
    return frozenset(zip(numbers[0::2], numbers[1::2], strict=True))
