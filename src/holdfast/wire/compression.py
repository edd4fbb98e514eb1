"""The five compression codecs of a record batch, with a limit on the decompressed size.

Compressed batches are untrusted: a few kilobytes can decompress to gigabytes. No function allocates more than the
caller's limit, and invalid input raises :class:`CompressionError`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from mmap import mmap
from typing import TypeAlias

import cramjam

from holdfast.wire.errors import WireError

Buffer: TypeAlias = bytes | bytearray | memoryview

# Far above the decompressed size of a batch of the default message.max.bytes (1 MiB), and far below a size that harms a
# process.
DEFAULT_MAX_OUTPUT = 64 * 1024 * 1024

_MAPPED_FROM = 1024 * 1024

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
# snappy-java splits its stream into blocks of this size. Readers allocate per block, so ours are no larger.
_XERIAL_BLOCK = 32 * 1024
_INT32 = struct.Struct(">i")


class Codec(IntEnum):
    """Compression codec: bits 0-2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CompressionError(WireError):
    """Compressed bytes cannot be decompressed, or exceed the limit."""


def compress(codec: Codec, data: Buffer) -> bytes:
    """Compress as Kafka's own clients do, so that all of them can decompress it."""
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZIP:
        return bytes(cramjam.gzip.compress(data))
    if codec is Codec.SNAPPY:
        return _compress_xerial(memoryview(data))
    if codec is Codec.LZ4:
        return _compress_lz4(data)
    return bytes(cramjam.zstd.compress(data))


def decompress(codec: int, data: Buffer, max_output: int = DEFAULT_MAX_OUTPUT) -> Buffer:
    """Decompress to at most `max_output` bytes. The limit does not apply to uncompressed data, which is already in
    memory."""
    if codec == Codec.NONE:
        return data
    if codec == Codec.SNAPPY:
        return _decompress_snappy(memoryview(data), max_output)
    into = _DECOMPRESS_INTO.get(codec)
    if into is None:
        raise CompressionError(f"compression codec {codec} is unknown")
    return _decompress_bounded(into, data, max_output)


_DECOMPRESS_INTO: dict[int, Callable[[Buffer, bytearray | mmap], int]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}


def _decompress_bounded(into: Callable[[Buffer, bytearray | mmap], int], data: Buffer, max_output: int) -> memoryview:
    """Decompress into a growing buffer, because the formats need not contain the decompressed size.

    The decoder stops at the buffer's end, so a decompression bomb costs at most one buffer of the limit. Corrupt input
    is retried as often as input that is too large, because only the text of the error distinguishes the two.
    """
    room = min(max_output, max(8 * len(data), 64 * 1024))
    while True:
        # The kernel allocates a mapping's pages when the decoder writes to them, without the interpreter's lock. A
        # large bytearray would be filled with zeros while holding it.
        output: bytearray | mmap = bytearray(room) if room <= _MAPPED_FROM else mmap(-1, room)
        try:
            return memoryview(output)[: into(data, output)]
        except cramjam.DecompressionError as error:
            if room >= max_output:
                reason = f"does not unpack within the limit of {max_output} bytes: {error}"
                raise CompressionError(f"compressed data of {len(data)} bytes {reason}") from None
        room = min(max_output, 8 * room)


def _compress_lz4(data: Buffer) -> bytes:
    # Java's reader rejects frames with linked blocks.
    compressor = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _compress_xerial(data: memoryview) -> bytes:
    pieces = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        pieces.append(_INT32.pack(len(block)))
        pieces.append(block)
    return b"".join(pieces)


def _decompress_snappy(data: memoryview, max_output: int) -> bytes:
    """Both forms in use: snappy-java's blocks (Java, Python clients) and one raw block (librdkafka)."""
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_raw_block(data, max_output)
    pieces: list[bytes] = []
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if position + 4 > len(data):
            raise CompressionError("snappy stream ends inside a block length")
        (length,) = _INT32.unpack_from(data, position)
        position += 4
        if length <= 0 or length > len(data) - position:
            left = len(data) - position
            raise CompressionError(f"snappy block of {length} bytes where {left} are left")
        piece = _decompress_raw_block(data[position : position + length], max_output)
        max_output -= len(piece)
        pieces.append(piece)
        position += length
    return b"".join(pieces)


def _decompress_raw_block(block: memoryview, max_output: int) -> bytes:
    try:
        claimed = cramjam.snappy.decompress_raw_len(block)
        if claimed > max_output:
            raise CompressionError(f"snappy block claims {claimed} bytes, above the limit of {max_output}")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CompressionError(f"snappy block is corrupt: {error}") from None
