"""The position of each record of a batch. The length of one record determines the position of the next.

Following the lengths one by one in Python takes longer than decoding the rest of the records. But records of one
producer often have the same length, and then one numpy comparison finds the next thousand.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from holdfast.wire.batch import Buffer
from holdfast.wire.records import decode_varint

_FIRST_RUN: Final = 32
"""The number of records that are first compared for equal length; many more if they are equal."""
_RUN_GROWTH: Final = 8
_MIN_WALK: Final = 64
_MAX_WALK: Final = 4096
"""The number of records that are followed one by one before the next attempt. Failed attempts make further ones
rarer."""


def record_starts(buffer: Buffer, data: Any, position: int, end: int, limit: int) -> tuple[Any, int]:
    """The positions of up to `limit` records from `position` to before `end`, and the position after them.

    `data` are the same bytes as an array. The positions increase, whatever the bytes are. A record may reach past the
    end, and its length may be negative; the caller checks that for all records at once. Raises IndexError if the buffer
    ends within a length.
    """
    if limit <= _FIRST_RUN:
        return _walk(buffer, position, end, limit)
    found: list[Any] = []
    walk = _MIN_WALK
    while position < end and limit > 0:
        run, position = _run(buffer, data, position, end, limit)
        found.append(run)
        limit -= len(run)
        if len(run) < _FIRST_RUN:
            walked, position = _walk(buffer, position, end, min(walk, limit))
            found.append(walked)
            limit -= len(walked)
            walk = min(2 * walk, _MAX_WALK)
        else:
            walk = _MIN_WALK
    starts = np.concatenate(found) if found else np.empty(0, np.int64)
    return starts, position


def _run(buffer: Buffer, data: Any, position: int, end: int, limit: int) -> tuple[Any, int]:
    """The records from here on that are as long as the first one; at least that one."""
    length, body = decode_varint(buffer, position)
    size = body - position + abs(length)  # a negative one is rejected later, but must not lead backwards
    width = body - position
    there = min(limit, (end - position) // size)
    if there <= 1:
        return np.array([position], np.int64), position + size
    count, window = 1, _FIRST_RUN
    while count < there:
        looked_at = min(window, there)
        rows = data[position : position + looked_at * size].reshape(looked_at, size)
        equal = rows[count:, 0] == rows[0, 0]
        for column in range(1, width):
            equal &= rows[count:, column] == rows[0, column]
        same = len(equal) if equal.all() else int(equal.argmin())
        count += same
        if count < looked_at:
            break
        window *= _RUN_GROWTH
    return np.arange(position, position + count * size, size), position + count * size


def _walk(buffer: Buffer, position: int, end: int, limit: int) -> tuple[Any, int]:
    """Follows the lengths. A step is half of the encoded number, which is the length, or its distance from -1 if
    negative."""
    starts: list[int] = []
    append = starts.append
    for _ in range(limit):
        if position >= end:
            break
        append(position)
        byte = buffer[position]
        if byte < 0x80:
            position += (byte >> 1) + 1
            continue
        second = buffer[position + 1]
        if second < 0x80:
            position += ((byte & 0x7F | second << 7) >> 1) + 2
        else:
            length, position = decode_varint(buffer, position)
            position += abs(length)
    return np.array(starts, np.int64), position
