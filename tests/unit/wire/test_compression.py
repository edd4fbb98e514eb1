"""The codecs of a record batch: what goes in comes out, and a bomb does not."""

import contextlib
import gzip
import struct
import tracemalloc

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.wire.compression import Codec, CompressionError, compress, decompress
from holdfast.wire.errors import WireError

PACKING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


@pytest.mark.parametrize("codec", Codec)
@given(data=st.binary(max_size=200_000) | st.builds(bytes.__mul__, st.binary(min_size=1), st.integers(0, 5000)))
def test_what_is_packed_unpacks_to_itself(codec: Codec, data: bytes) -> None:
    packed = compress(codec, data)

    assert bytes(decompress(codec, memoryview(packed), len(data))) == data


@pytest.mark.parametrize("codec", PACKING)
def test_an_output_above_the_limit_is_refused(codec: Codec) -> None:
    packed = compress(codec, bytes(1_000_001))

    with pytest.raises(CompressionError, match="limit"):
        decompress(codec, packed, 1_000_000)


def test_what_was_never_packed_has_no_limit() -> None:
    """It is the batch itself, which its sender has already held."""
    assert bytes(decompress(Codec.NONE, b"plain", 4)) == b"plain"


@pytest.mark.parametrize("codec", PACKING)
def test_a_bomb_costs_no_more_than_the_limit(codec: Codec) -> None:
    # given 256 MiB of nothing, packed
    bomb = compress(codec, bytes(256 * 1024 * 1024))
    limit = 1024 * 1024

    # when it is unpacked with a limit of one MiB
    tracemalloc.start()
    try:
        with pytest.raises(CompressionError):
            decompress(codec, bomb, limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # then Python has allocated little more than that
    assert peak < 2 * limit + 2 * len(bomb)


@pytest.mark.parametrize("codec", PACKING)
@given(data=st.binary(max_size=300))
def test_garbage_ends_in_one_error_type(codec: Codec, data: bytes) -> None:
    with contextlib.suppress(WireError):
        decompress(codec, data, 100_000)


@pytest.mark.parametrize("codec", PACKING)
@given(data=st.binary(min_size=100, max_size=3000), cut=st.integers(1, 40))
def test_a_cut_stream_is_no_shorter_result(codec: Codec, data: bytes, cut: int) -> None:
    packed = compress(codec, data)

    try:
        unpacked = bytes(decompress(codec, packed[: max(0, len(packed) - cut)], 100_000))
    except CompressionError:
        return
    # Snappy's stream may be cut between two blocks; a batch's CRC and record count see to that.
    assert codec is Codec.SNAPPY
    assert data.startswith(unpacked)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_refused(codec: int) -> None:
    with pytest.raises(CompressionError, match=f"codec {codec}"):
        decompress(codec, b"x")


def test_raw_snappy_as_librdkafka_sends_it() -> None:
    data = b"from librdkafka " * 10_000

    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data)))) == data


def test_snappy_blocks_as_java_sends_them() -> None:
    blocks = [b"first block", b"second block" * 1000]
    stream = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for block in blocks:
        packed = bytes(cramjam.snappy.compress_raw(block))
        stream += struct.pack(">i", len(packed)) + packed

    assert bytes(decompress(Codec.SNAPPY, stream)) == b"".join(blocks)


@pytest.mark.parametrize("length", [0, -1, -(2**31), 2**31 - 1, 100])
def test_a_snappy_block_that_does_not_fit_is_refused(length: int) -> None:
    stream = b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, length) + b"short"

    with pytest.raises(CompressionError):
        decompress(Codec.SNAPPY, stream)


def test_lz4_frames_have_independent_blocks_because_java_reads_no_others() -> None:
    frame = compress(Codec.LZ4, b"x" * 500_000)

    assert frame[:4] == struct.pack("<I", 0x184D2204)
    assert frame[4] & 0b0010_0000, "the block independence flag"


def test_gzip_is_what_gzip_reads() -> None:
    assert gzip.decompress(compress(Codec.GZIP, b"plain")) == b"plain"
    assert bytes(decompress(Codec.GZIP, gzip.compress(b"plain"))) == b"plain"
