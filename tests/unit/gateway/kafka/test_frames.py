"""Response frames come out whole and in order, however the bytes are cut."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.gateway.kafka.frames import FrameError, FrameReader

LIMIT = 1000

frames = st.lists(st.binary(min_size=4, max_size=60), max_size=8)


def framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


@given(frames=frames, cuts=st.lists(st.integers(1, 50), min_size=1))
def test_frames_come_out_as_they_went_in(frames: list[bytes], cuts: list[int]) -> None:
    reader = FrameReader(LIMIT)
    left = b"".join(map(framed, frames))
    found = []
    while left:
        cut = cuts[len(left) % len(cuts)]
        found += [bytes(frame) for frame in reader.feed(left[:cut])]
        left = left[cut:]

    assert found == frames


@pytest.mark.parametrize("size", [-1, 0, 3, LIMIT + 1, 2**31 - 1])
def test_a_length_that_no_response_has_is_refused_after_the_frames_before_it(size: int) -> None:
    reader = FrameReader(LIMIT)
    received = reader.feed(framed(b"good") + struct.pack(">i", size) + b"rest")

    assert bytes(next(received)) == b"good"
    with pytest.raises(FrameError) as raised:
        next(received)
    assert raised.value.size == size
    assert raised.value.start == struct.pack(">i", size) + b"rest"


def test_the_largest_frame_is_accepted() -> None:
    reader = FrameReader(LIMIT)
    assert [len(frame) for frame in reader.feed(framed(bytes(LIMIT)))] == [LIMIT]
