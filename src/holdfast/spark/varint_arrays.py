"""Varints of many records at once: numpy decodes one field of all records in a few passes.

The bytes are untrusted. Reading past the buffer raises IndexError. The caller ensures that no position is negative,
which numpy would count from the end.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from holdfast.wire.batch import BatchError, BatchFault

_CONTINUES: Final = np.uint8(0x80)
_BITS: Final = np.uint8(0x7F)
_LAST_SHIFT: Final = 63
"""The shift of the tenth byte."""
_ALL_BUT_SIGN: Final = np.int64((1 << 63) - 1)


def decode_varints(data: Any, at: Any) -> tuple[Any, Any]:
    """The zigzag varints at these positions of `data`, and the positions after them, both as int64."""
    first = data[at]
    continues = first >= _CONTINUES
    if not continues.any():
        raw = first.astype(np.int64)
        return (raw >> 1) ^ -(raw & 1), at + 1
    # Most of the others have two bytes. A position past the end is clipped here and detected with the next byte.
    second = data.take(at + 1, mode="clip")
    raw = (second & _BITS).astype(np.int64)
    raw <<= 7
    raw *= continues
    raw |= first & _BITS
    after = at + 1 + continues
    longer = np.flatnonzero(continues & (second >= _CONTINUES))
    if len(longer):
        _add_rest(data, longer, raw, after)
    elif after[-1] > len(data):
        raise IndexError("the last varint is cut off")
    return ((raw >> 1) & _ALL_BUT_SIGN) ^ -(raw & 1), after


def _add_rest(data: Any, longer: Any, raw: Any, after: Any) -> None:
    """The third and later bytes of the varints that have more than two."""
    for shift in range(14, _LAST_SHIFT + 1, 7):
        byte = data[after[longer]]
        raw[longer] |= (byte & _BITS).astype(np.int64) << shift
        after[longer] += 1
        longer = longer[byte >= _CONTINUES]
        if not len(longer):
            return
    raise BatchError(BatchFault.INVALID_RECORD, "a varint of more than ten bytes")
