"""Cutting bytes into frames: however they arrive, the same frames come out, and no byte of memory is forgotten."""

from __future__ import annotations

import itertools
import random
import struct

import pytest

from holdfast.broker.network.framing import EAGER_BYTES, FrameReader
from holdfast.broker.network.request_memory import SMALL_BYTES, RequestMemory

LIMIT = 8 * EAGER_BYTES
SCRATCH = 64 * 1024


class Owner:
    received_bytes = 0
    receiving = True

    def retry_growth(self) -> None:
        raise AssertionError("nobody waits in these tests")

    def evict(self, reason: str) -> None:
        raise AssertionError(reason)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def make_reader(pool: RequestMemory, holder: Owner | None = None, scratch_bytes: int = SCRATCH) -> FrameReader:
    return FrameReader(memoryview(bytearray(scratch_bytes)), LIMIT, pool, holder or Owner())


def give(reader: FrameReader, data: bytes) -> list[bytes | bytearray]:
    """One delivery of the event loop, or several when the reader's buffer takes less."""
    frames: list[bytes | bytearray] = []
    while data:
        room = reader.buffer()
        assert len(room), "the event loop takes an empty buffer for a closed connection"
        count = min(len(room), len(data))
        room[:count] = data[:count]
        frames += reader.feed(count)
        data = data[count:]
    return frames


def release_all(pool: RequestMemory, holder: Owner, frames: list[bytes | bytearray]) -> None:
    for frame in frames:
        if type(frame) is bytearray:
            pool.release(holder, len(frame))


def test_a_stream_cut_in_two_at_any_byte_gives_the_same_frames() -> None:
    bodies = [b"a", b"four", bytes(range(200))]
    stream = b"".join(map(framed, bodies))
    for cut in range(1, len(stream)):
        pool, holder = RequestMemory(LIMIT), Owner()
        reader = make_reader(pool, holder)

        frames = give(reader, stream[:cut]) + give(reader, stream[cut:])

        assert [bytes(frame) for frame in frames] == bodies, f"cut at byte {cut}"
        release_all(pool, holder, frames)
        assert pool.used_bytes == 0
        assert not reader.has_partial_frame


def test_bytes_that_come_one_by_one_give_the_same_frames() -> None:
    bodies = [b"a", b"bc", b"x" * 300]
    pool, holder = RequestMemory(LIMIT), Owner()
    reader = make_reader(pool, holder)

    frames = list(itertools.chain.from_iterable(give(reader, bytes([byte])) for byte in b"".join(map(framed, bodies))))

    assert [bytes(frame) for frame in frames] == bodies


def test_many_frames_in_one_read_come_out_together_without_memory_of_their_own() -> None:
    bodies = [bytes([number]) * number for number in range(1, 100)]
    pool = RequestMemory(LIMIT)

    frames = give(make_reader(pool), b"".join(map(framed, bodies)))

    assert frames == bodies
    assert pool.used_bytes == 0


@pytest.mark.parametrize("size", [EAGER_BYTES - 1, EAGER_BYTES, EAGER_BYTES + 1, 3 * EAGER_BYTES + 5, LIMIT])
def test_a_large_frame_arrives_whole(size: int) -> None:
    body = random.Random(size).randbytes(size)
    pool, holder = RequestMemory(LIMIT), Owner()
    reader = make_reader(pool, holder)

    frames = give(reader, framed(body) + framed(b"next"))

    assert [bytes(frame) for frame in frames] == [body, b"next"]
    assert pool.used_bytes == size
    release_all(pool, holder, frames)
    assert pool.used_bytes == 0


def test_a_large_frame_takes_memory_as_it_arrives() -> None:
    pool = RequestMemory(LIMIT)
    reader = make_reader(pool)

    give(reader, struct.pack(">i", LIMIT) + b"only this much")

    assert pool.used_bytes == SMALL_BYTES
    booked = []
    for _ in range(LIMIT // SCRATCH - 1):
        give(reader, bytes(SCRATCH))
        booked.append(pool.used_bytes)
    assert booked == sorted(booked)
    assert len(set(booked)) < 10, "it doubles, so that the copying stays linear"
    assert booked[-1] == LIMIT


def test_a_usual_request_books_all_it_needs_once_the_size_of_a_small_one_is_there() -> None:
    pool = RequestMemory(LIMIT)
    reader = make_reader(pool, scratch_bytes=4096)
    stream = framed(bytes(EAGER_BYTES))

    give(reader, stream[: SMALL_BYTES - 1])
    assert pool.large.used_bytes == SMALL_BYTES
    give(reader, stream[SMALL_BYTES - 1 : SMALL_BYTES + 4])
    assert pool.large.used_bytes == EAGER_BYTES


def test_a_small_request_is_read_while_large_ones_wait_for_memory() -> None:
    pool, waiting, small = RequestMemory(LIMIT), Patient(), Owner()
    assert pool.large.reserve(Owner(), pool.large.limit_bytes)
    starving = make_reader(pool, waiting)
    starving.feed(fill(starving, framed(bytes(EAGER_BYTES))[:1000]))
    assert (starving.starved, pool.has_waiters) == (True, True)

    frames = give(make_reader(pool, small), framed(bytes(20_000)))

    assert [len(frame) for frame in frames] == [20_000]
    assert pool.small.used_bytes == 20_000
    release_all(pool, small, frames)
    assert pool.small.used_bytes == 0


@pytest.mark.parametrize("length", [0, -1, -(2**31), LIMIT + 1, 2**31 - 1])
def test_an_impossible_length_is_refused_before_anything_is_allocated(length: int) -> None:
    pool = RequestMemory(LIMIT)
    reader = make_reader(pool)

    assert give(reader, framed(b"good") + struct.pack(">i", length) + b"rest") == [b"good"]

    assert reader.broken is not None
    assert "socket.request.max.bytes" in reader.broken
    assert pool.used_bytes == 0


def test_without_room_in_the_pool_the_reader_waits_and_continues_when_there_is() -> None:
    pool, first, second = RequestMemory(4 * 1000), Owner(), Patient()
    give(make_reader(pool, first), framed(bytes(900))[:500])
    reader = make_reader(pool, second)

    arrived = reader.feed(fill(reader, framed(bytes(200))[:100]))

    assert (arrived, reader.starved) == ([], True)
    pool.forget(first)
    assert second.called == 1
    assert reader.grow()
    frames = give(reader, bytes(104))
    assert [len(frame) for frame in frames] == [200]
    release_all(pool, second, frames)
    assert pool.used_bytes == 0


class Patient(Owner):
    def __init__(self) -> None:
        self.called = 0

    def retry_growth(self) -> None:
        self.called += 1


def fill(reader: FrameReader, data: bytes) -> int:
    reader.buffer()[: len(data)] = data
    return len(data)


def test_thousands_of_mixed_frames_and_disconnects_leave_no_byte_booked() -> None:
    rng = random.Random(7)
    pool = RequestMemory(64 * EAGER_BYTES)
    for _ in range(300):
        holder = Owner()
        reader = make_reader(pool, holder, scratch_bytes=4096)
        for _ in range(rng.randrange(1, 12)):
            size = rng.choice([1, 3, 100, 5_000, 20_000, 200_000])
            stream = framed(bytes(size))
            cut = rng.randrange(len(stream))
            frames = give(reader, stream[:cut])
            if rng.random() < 0.2:
                break  # disconnected in the middle of a frame
            release_all(pool, holder, frames + give(reader, stream[cut:]))
        pool.forget(holder)

    assert pool.used_bytes == 0
