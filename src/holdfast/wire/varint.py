"""Variable-length integers: unsigned (lengths, tags) and zig-zag signed (inside records)."""

from __future__ import annotations

from typing import Final

from holdfast.wire.errors import WireError

Buffer = bytes | bytearray | memoryview


def encode_uvarint(value: int) -> bytes:
    """An unsigned number of at most 32 bits, seven bits a byte, lowest first."""
    if not 0 <= value <= 0xFFFFFFFF:
        raise WireError(f"{value} does not fit an unsigned varint")
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


SMALL_UVARINTS: Final = tuple(bytes((value,)) for value in range(128))
"""The varints of one byte, precomputed. They include nearly every length."""


def decode_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The number at `position` and the position after it. Raises IndexError at the end of the buffer."""
    result = 0
    for shift in (0, 7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        result |= (byte & 127) << shift
        if byte < 128:
            if result > 0xFFFFFFFF:
                break
            return result, position
    raise WireError("unsigned varint longer than 32 bits")
