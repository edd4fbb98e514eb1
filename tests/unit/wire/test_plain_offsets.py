"""Offsets without metadata take a way of their own through the codec; it must lead to the same place.

The other way is the one through the generated code, which buffers other than bytes take.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.wire.errors import WireError
from holdfast.wire.group_records import OffsetCommitKey, OffsetCommitValue, decode_record, encode_key, encode_value
from holdfast.wire.message import encode

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(st.characters(codec="utf-8"), max_size=20)

KEYS = st.builds(OffsetCommitKey, NAMES, NAMES, INT32)
VALUES = st.builds(OffsetCommitValue, INT64, INT32, st.just("") | NAMES, INT64)


@given(KEYS, VALUES)
def test_both_ways_write_the_same(key: OffsetCommitKey, value: OffsetCommitValue) -> None:
    assert encode_key(key) == b"\x00\x01" + encode(key, 1)
    assert encode_value(value) == b"\x00\x03" + encode(value, 3)


@given(KEYS, VALUES, st.sampled_from([b"", b"\x00", b"\x00\x00\x00\x00", b"more"]), st.integers(0, 30))
def test_both_ways_read_the_same_also_what_is_too_long_or_too_short(
    key: OffsetCommitKey, value: OffsetCommitValue, more: bytes, missing: int
) -> None:
    key_bytes, value_bytes = encode_key(key) + more, encode_value(value)
    shorter = key_bytes[: max(2, len(key_bytes) - missing)]

    for given_key in (key_bytes, shorter):
        try:
            expected = decode_record(bytearray(given_key), bytearray(value_bytes))
        except WireError:
            with pytest.raises(WireError):
                decode_record(given_key, value_bytes)
        else:
            assert decode_record(given_key, value_bytes) == expected


def test_a_number_that_does_not_fit_is_an_error_on_either_way() -> None:
    for metadata in ("", "m"):
        with pytest.raises(WireError):
            encode_value(OffsetCommitValue(2**63, 0, metadata, 0))
    with pytest.raises(WireError):
        encode_key(OffsetCommitKey("g", "t", 2**31))
