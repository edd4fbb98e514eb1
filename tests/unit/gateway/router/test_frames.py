"""Splitting streams into frames: whatever passes is unchanged, however the bytes are cut."""

from __future__ import annotations

import random
import struct

import pytest

from holdfast.gateway.router.frames import (
    COLLECT,
    MAX_HEAD_BYTES,
    MORE,
    PASS,
    WAIT,
    BrokenStream,
    FrameSplitter,
    Replace,
    Verdict,
)

PASSES, COLLECTED, REPLACED, LATE = range(4)


def frame(kind: int, body: bytes) -> bytes:
    return struct.pack(">iB", len(body) + 1, kind) + body


class Owner:
    """Decides by the first byte; of LATE frames only when their 20th byte is there."""

    def __init__(self) -> None:
        self.passed = bytearray()
        self.pieces = 0
        self.collected: list[bytes] = []
        self.waits = False
        self.stops_after_collecting = False
        self.has_memory = True

    def frame_begins(self, data: memoryview, position: int, end: int, size: int) -> Verdict | Replace:
        assert end - position >= min(size, 8)
        if self.waits:
            return WAIT
        kind = data[position]
        if kind == LATE:
            return PASS if end - position >= min(20, size) else MORE
        if kind == REPLACED:
            return Replace(3, struct.pack(">i", size - 1) + b"ab")
        return COLLECT if kind == COLLECTED else PASS

    def reserve(self, size: int, count: int) -> bool:
        assert count <= size
        return self.has_memory

    def pass_on(self, data: memoryview | bytes) -> None:
        assert len(data)
        self.passed += data
        self.pieces += 1

    def frame_collected(self, frame: bytes) -> bool:
        self.collected.append(frame)
        return not self.stops_after_collecting


def feed(splitter: FrameSplitter, *chunks: bytes) -> None:
    for chunk in chunks:
        assert splitter.feed(memoryview(chunk)) == len(chunk)


SAMPLE = [
    frame(PASSES, b"0123456789"),
    frame(COLLECTED, b"for the owner"),
    frame(COLLECTED, b""),
    frame(REPLACED, b"xy0123456789"),
    frame(LATE, b"a" * 40),
    frame(PASSES, b""),
    frame(COLLECTED, b"the last"),
]
STREAM = b"".join(SAMPLE)
PASSED = SAMPLE[0] + struct.pack(">i", 12) + b"ab" + b"0123456789" + SAMPLE[4] + SAMPLE[5]
TAKEN = [b"\1for the owner", b"\1", b"\1the last"]


@pytest.mark.parametrize("size", range(1, len(STREAM) + 1))
def test_frames_are_the_same_in_chunks_of_any_size(size: int) -> None:
    owner = Owner()
    splitter = FrameSplitter(owner)
    feed(splitter, *(STREAM[start : start + size] for start in range(0, len(STREAM), size)))
    assert bytes(owner.passed) == PASSED
    assert owner.collected == TAKEN
    assert not splitter.is_inside


@pytest.mark.parametrize("cut", range(1, len(STREAM)))
def test_frames_are_the_same_when_the_stream_is_cut_anywhere(cut: int) -> None:
    owner = Owner()
    feed(FrameSplitter(owner), STREAM[:cut], STREAM[cut:])
    assert bytes(owner.passed) == PASSED
    assert owner.collected == TAKEN


@pytest.mark.parametrize("cut", range(len(STREAM) + 1))
def test_what_waits_is_fed_again_and_nothing_is_lost(cut: int) -> None:
    owner = Owner()
    splitter = FrameSplitter(owner)
    left = b""
    for chunk in (STREAM[:cut], STREAM[cut:]):
        owner.waits, owner.stops_after_collecting, owner.has_memory = True, True, False
        data = left + chunk
        left = data[splitter.feed(memoryview(data)) :]
        owner.waits, owner.has_memory = False, True
        before = -1
        while left and len(left) != before:
            before = len(left)
            left = left[splitter.feed(memoryview(left)) :]
    assert not left
    assert bytes(owner.passed) == PASSED
    assert owner.collected == TAKEN


def test_consecutive_frames_pass_in_one_piece() -> None:
    owner = Owner()
    feed(FrameSplitter(owner), frame(PASSES, b"x" * 50) * 100)
    assert owner.pieces == 1


@pytest.mark.parametrize("seed", range(200))
def test_random_frames_in_random_chunks(seed: int) -> None:
    rng = random.Random(seed)
    kinds = [(rng.randrange(4), rng.choice((12, 20, 300, rng.randrange(12, 5000)))) for _ in range(30)]
    frames = [frame(kind, rng.randbytes(size)) for kind, size in kinds]
    owner = Owner()
    splitter = FrameSplitter(owner)
    left = b"".join(frames)
    while left:
        owner.waits, owner.has_memory = rng.random() < 0.2, rng.random() < 0.8
        owner.stops_after_collecting = rng.random() < 0.5
        left = left[splitter.feed(memoryview(left[: rng.choice((1, 3, 7, 100, 2000))])) :]
    passed = b"".join(
        one if kind != REPLACED else struct.pack(">i", len(one) - 5) + b"ab" + one[7:]
        for (kind, _), one in zip(kinds, frames, strict=True)
        if kind != COLLECTED
    )
    assert bytes(owner.passed) == passed
    assert owner.collected == [one[4:] for (kind, _), one in zip(kinds, frames, strict=True) if kind == COLLECTED]


@pytest.mark.parametrize("length", [-1, -(1 << 31)])
def test_a_negative_length_breaks_the_stream(length: int) -> None:
    with pytest.raises(BrokenStream, match="length"):
        FrameSplitter(Owner()).feed(memoryview(struct.pack(">i", length)))


def test_an_owner_that_cannot_decide_breaks_the_stream_at_its_limit() -> None:
    class Undecided(Owner):
        def frame_begins(self, data: memoryview, position: int, end: int, size: int) -> Verdict | Replace:
            return MORE

    with pytest.raises(BrokenStream, match="malformed"):
        FrameSplitter(Undecided()).feed(memoryview(frame(LATE, b"whole")))
    splitter = FrameSplitter(Undecided())
    with pytest.raises(BrokenStream, match="malformed"):
        for _ in range(MAX_HEAD_BYTES // 1000 + 2):
            splitter.feed(memoryview(struct.pack(">i", 1 << 30) + bytes(996)))


def test_a_large_length_alone_takes_no_memory() -> None:
    splitter = FrameSplitter(Owner())
    feed(splitter, struct.pack(">iB", (1 << 31) - 1, COLLECTED) + bytes(7))
    assert splitter.is_collecting
