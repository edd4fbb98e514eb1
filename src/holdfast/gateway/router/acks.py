"""The acks of a Produce request, read from its beginning. With acks=0, Kafka sends no response."""

from __future__ import annotations

from struct import Struct
from typing import Final

from holdfast.gateway.router.frames import BrokenStream
from holdfast.wire.apis.produce import PRODUCE
from holdfast.wire.errors import WireError
from holdfast.wire.varint import decode_uvarint

HIGHEST_VERSION: Final = PRODUCE.versions[1]
"""A later version may have another layout, so it is not offered to clients."""
_FIRST_WITH_TRANSACTIONAL_ID: Final = 3
_CLIENT_ID_POSITION: Final = 8
MAX_KEPT_BYTES: Final = 256
"""The maximum size of what is kept for a client. Its id may be much longer."""

_int16 = Struct(">h").unpack_from


class AcksReader:
    """Reads the acks of one client's requests. What is before them is the same in each, so it is parsed once."""

    __slots__ = ("_before", "_position", "_version")

    def __init__(self) -> None:
        self._version = -1
        self._before = b""
        self._position = 0

    def peek(self, data: memoryview, start: int, end: int, version: int) -> int | None:
        """The acks of the request at `data[start:end]`, of which more may arrive. None if the acks have not arrived.

        Raises BrokenStream if they can never be read.
        """
        if version == self._version:
            found = start + self._position
            if found + 2 <= end and data[start + _CLIENT_ID_POSITION : found] == self._before:
                return int(_int16(data, found)[0])
        frame = data[start:end]
        position = _acks_position(frame, version)
        if position is None or position + 2 > len(frame):
            return None
        if position <= MAX_KEPT_BYTES:
            self._version, self._position = version, position
            self._before = frame[_CLIENT_ID_POSITION:position].tobytes()
        return int(_int16(frame, position)[0])


def _acks_position(frame: memoryview, version: int) -> int | None:
    try:
        position = _after_string(frame, _CLIENT_ID_POSITION)
        if version < PRODUCE.flexible:
            if version >= _FIRST_WITH_TRANSACTIONAL_ID:
                position = _after_string(frame, position)
        else:
            position = _after_compact_string(frame, _after_tags(frame, position))
        return position
    except IndexError:
        return None
    except WireError as error:
        raise BrokenStream(f"malformed Produce header: {error}") from error


def _after_string(frame: memoryview, position: int) -> int:
    """The position after a nullable string with a 2-byte length."""
    if position + 2 > len(frame):
        raise IndexError
    (length,) = _int16(frame, position)
    if length < -1:
        raise BrokenStream(f"Produce with a string of {length} bytes")
    return position + 2 + max(0, int(length))


def _after_compact_string(frame: memoryview, position: int) -> int:
    length, position = decode_uvarint(frame, position)
    return position + max(0, length - 1)


def _after_tags(frame: memoryview, position: int) -> int:
    """Each takes at least two bytes, so the end of the frame bounds the loop."""
    count, position = decode_uvarint(frame, position)
    for _ in range(count):
        _, position = decode_uvarint(frame, position)
        size, position = decode_uvarint(frame, position)
        position += size
    return position
