"""Splitting the bytes of a connection into request frames.

All connections receive into one scratch buffer (a read and its parsing are one step of the event loop), so an idle
connection has no buffer. Only a frame that does not arrive in one read gets its own memory from the pool, which grows
as bytes arrive.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from holdfast.broker.network.request_memory import SMALL_BYTES, MemoryOwner, RequestMemory

SCRATCH_BYTES: Final = 256 * 1024
LARGE_READ: Final = SCRATCH_BYTES // 2
"""A read of this many bytes comes from a client that has more to send than we should take at once."""
CONTENDED_READ_BYTES: Final = 4096
"""The size of a read while the pool is empty: enough for small requests."""
EAGER_BYTES: Final = 2 * 1024 * 1024
"""Frames up to this size, such as a producer's usual request, get all their memory once SMALL_BYTES have arrived. The
memory of larger frames doubles as they arrive, so a large length field alone reserves little."""

_length = Struct(">i").unpack_from


class FrameReader:
    """Provides the buffer for the next bytes, and returns complete frames."""

    __slots__ = (
        "_contended_scratch",
        "_filled",
        "_frame",
        "_limit",
        "_limit_name",
        "_memory",
        "_owner",
        "_partial",
        "_pool",
        "_reserved",
        "_scratch",
        "_size",
        "_waiters",
        "broken",
        "starved",
    )

    def __init__(self, scratch: memoryview, limit_bytes: int, memory: RequestMemory, owner: MemoryOwner) -> None:
        self._scratch = scratch
        self._contended_scratch = scratch[:CONTENDED_READ_BYTES]
        self._limit = limit_bytes
        self._limit_name = "socket.request.max.bytes"
        self._memory = memory
        self._waiters = memory.large.waiters
        self._pool = memory.small
        self._owner = owner
        self._partial = b""
        self._frame: bytearray | None = None
        self._filled = 0
        self._size = 0
        self._reserved = 0
        self.starved = False
        """The pool had no room. Reading must pause until `grow` succeeds."""
        self.broken: str | None = None
        """Why no frame can be read after those returned so far."""

    def set_limit(self, limit_bytes: int, name: str) -> None:
        """Sets the maximum size of frames that begin from now on; `name` is the config of the limit."""
        self._limit, self._limit_name = limit_bytes, name

    @property
    def has_partial_frame(self) -> bool:
        """A frame has begun and is not complete."""
        return self._frame is not None or bool(self._partial)

    def buffer(self, sizehint: int = -1) -> memoryview:  # noqa: ARG002  # the loop's hint; our buffers have fixed sizes
        """The buffer for the next bytes, for the event loop."""
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        # While others wait for memory, a large frame must not read much before it has memory of its own.
        return self._contended_scratch if self._waiters else self._scratch

    def single_frame(self, count: int) -> bytes | None:
        """The usual case: the `count` bytes that were put into `buffer()` are exactly one frame.

        Otherwise returns None, and the bytes must be passed to `feed`.
        """
        if count < 8 or self._frame is not None or self._partial:
            return None
        if _length(self._scratch)[0] != count - 4 or count - 4 > self._limit:
            return None
        return self._scratch[4:count].tobytes()  # faster than bytes()

    def feed(self, count: int) -> list[bytes | bytearray]:
        """Takes the `count` bytes that were put into `buffer()`, and returns the frames that they complete.

        The length of a frame that is returned as a bytearray is reserved in the pool. Release it after use.
        """
        if self._frame is None:
            return self._split_frames(count)
        self._filled += count
        if self._filled == self._size:
            frame, self._frame = self._frame, None
            return [frame]
        if self._filled == len(self._frame):
            self.grow()
        return []

    def _split_frames(self, count: int) -> list[bytes | bytearray]:
        data: memoryview | bytes = self._scratch[:count]
        if self._partial:
            data = self._partial + data
            self._partial = b""
            count = len(data)
        frames: list[bytes | bytearray] = []
        position = 0
        while count - position >= 4:
            size = _length(data, position)[0]
            if not 0 < size <= self._limit:
                self.broken = f"request of {size} bytes; the limit ({self._limit_name}) is {self._limit}"
                return frames
            end = position + 4 + size
            if end > count:
                self._start_frame(size, data[position + 4 : count])
                return frames
            frames.append(bytes(data[position + 4 : end]))
            position = end
        self._partial = bytes(data[position:count])
        return frames

    def _start_frame(self, size: int, arrived: memoryview | bytes) -> None:
        self._size = size
        self._pool = self._memory.pool_for(size)
        self._filled = len(arrived)
        self._reserved = 0
        self._frame = bytearray(arrived)
        self.grow()

    def grow(self) -> bool:
        """Gets memory for more of the current frame. False if the pool has none now."""
        frame = self._frame
        if frame is None:
            return True
        wanted = min(self._size, self._target_bytes())
        self.starved = not self._pool.reserve(self._owner, wanted - self._reserved)
        if not self.starved:
            self._reserved = wanted
            # A new buffer rather than a resized one, because the event loop may still hold a view of the old one.
            larger = bytearray(wanted)
            larger[: self._filled] = memoryview(frame)[: self._filled]
            self._frame = larger
        return not self.starved

    def _target_bytes(self) -> int:
        """The memory that the current frame may have, from the number of bytes that have arrived."""
        if self._size <= SMALL_BYTES:
            return max(CONTENDED_READ_BYTES, 2 * self._filled)
        return SMALL_BYTES if self._filled < SMALL_BYTES else max(EAGER_BYTES, 2 * self._filled)
