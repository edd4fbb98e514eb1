"""Splits the bytes of a connection into response frames.

Memory is used only for bytes that have arrived, whatever length a frame claims to have. A frame that arrives in one
piece is not copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

_LENGTH_BYTES: Final = 4
_SMALLEST_FRAME: Final = 4
"""A response has at least a correlation id."""

_length = Struct(">i").unpack_from


class FrameError(Exception):
    """A length that no response has. The server does not speak Kafka's protocol, or not without TLS."""

    def __init__(self, size: int, start: bytes) -> None:
        super().__init__(f"a length of {size} bytes")
        self.size: Final = size
        self.start: Final = start
        """The first bytes of the frame, with its length."""


class FrameReader:
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        """The beginning of a frame."""
        self._held = 0
        self._wanted = _LENGTH_BYTES
        """With fewer bytes there is nothing to do."""

    def feed(self, data: bytes) -> Iterator[memoryview]:
        """The frames that are complete with these bytes, without their lengths. Raises FrameError."""
        if self._parts:
            self._parts.append(data)
            self._held += len(data)
            if self._held < self._wanted:
                return
            data = b"".join(self._parts)
            self._parts, self._held = [], 0
        view = memoryview(data)
        position, end = 0, len(data)
        wanted = _LENGTH_BYTES
        while end - position >= _LENGTH_BYTES:
            (size,) = _length(view, position)
            if not _SMALLEST_FRAME <= size <= self._max_bytes:
                raise FrameError(size, bytes(view[position : position + 16]))
            start = position + _LENGTH_BYTES
            if end - start < size:
                wanted = _LENGTH_BYTES + size
                break
            position = start + size
            yield view[start:position]
        self._wanted = wanted
        if position < end:
            self._parts, self._held = [data[position:]], end - position
