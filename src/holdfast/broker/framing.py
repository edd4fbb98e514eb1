"""Cutting a connection's bytes into request frames.

All connections receive into one scratch buffer (a read and its parsing are one step of the event loop), so an idle
connection owns no buffer at all. Only a frame that did not arrive whole in one read gets memory of its own, from the
pool, growing as its bytes arrive.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from holdfast.broker.memory import SMALL_BYTES, Holder, RequestMemory

SCRATCH_BYTES: Final = 256 * 1024
CROWDED_BYTES: Final = 4096
"""What is read at a time while the pool is empty: enough for small requests."""
EAGER_BYTES: Final = 2 * 1024 * 1024
"""Frames up to this size, a producer's usual request, get their whole memory once SMALL_BYTES of them are there. Others
double as they arrive. So a length that is only announced books little."""

_length = Struct(">i").unpack_from


class FrameReader:
    """Where the next bytes go, and the frames that are complete."""

    __slots__ = (
        "_booked",
        "_crowded_scratch",
        "_filled",
        "_frame",
        "_holder",
        "_limit",
        "_limit_name",
        "_memory",
        "_partial",
        "_pool",
        "_scratch",
        "_size",
        "broken",
        "starved",
    )

    def __init__(self, scratch: memoryview, limit_bytes: int, memory: RequestMemory, holder: Holder) -> None:
        self._scratch = scratch
        self._crowded_scratch = scratch[:CROWDED_BYTES]
        self._limit = limit_bytes
        self._limit_name = "socket.request.max.bytes"
        self._memory = memory
        self._pool = memory.small
        self._holder = holder
        self._partial = b""
        self._frame: bytearray | None = None
        self._filled = 0
        self._size = 0
        self._booked = 0
        self.starved = False
        """The pool had no room: reading must pause until `grow` succeeds."""
        self.broken: str | None = None
        """Why nothing after the frames returned so far can be read."""

    def limit(self, limit_bytes: int, name: str) -> None:
        """Frames that begin from now on may have so many bytes, by the config of that name."""
        self._limit, self._limit_name = limit_bytes, name

    @property
    def midway(self) -> bool:
        """A frame has begun and is not complete."""
        return self._frame is not None or bool(self._partial)

    def buffer(self) -> memoryview:
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        # While others wait for memory, a frame that turns out to be large must not bring much without any.
        return self._crowded_scratch if self._memory.crowded else self._scratch

    def whole(self, count: int) -> bytes | None:
        """The usual case: the `count` bytes that were put into `buffer()` are exactly one frame.

        Else None, and they are still to be taken by `received`.
        """
        if count < 8 or self._frame is not None or self._partial:
            return None
        if _length(self._scratch)[0] != count - 4 or count - 4 > self._limit:
            return None
        return bytes(self._scratch[4:count])

    def received(self, count: int) -> list[bytes | bytearray]:
        """Takes the `count` bytes that were put into `buffer()`; returns the frames they complete.

        A frame that comes as a bytearray has its length booked in the pool, to be released when it is done with.
        """
        if self._frame is None:
            return self._cut(count)
        self._filled += count
        if self._filled == self._size:
            frame, self._frame = self._frame, None
            return [frame]
        if self._filled == len(self._frame):
            self.grow()
        return []

    def _cut(self, count: int) -> list[bytes | bytearray]:
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
                self._begin(size, data[position + 4 : count])
                return frames
            frames.append(bytes(data[position + 4 : end]))
            position = end
        self._partial = bytes(data[position:count])
        return frames

    def _begin(self, size: int, arrived: memoryview | bytes) -> None:
        self._size = size
        self._pool = self._memory.pool_of(size)
        self._filled = len(arrived)
        self._booked = 0
        self._frame = bytearray(arrived)
        self.grow()

    def grow(self) -> bool:
        """Makes room for more of the current frame. False if the pool has none now."""
        frame = self._frame
        if frame is None:
            return True
        wanted = min(self._size, self._enough())
        self.starved = not self._pool.take(self._holder, wanted - self._booked)
        if not self.starved:
            self._booked = wanted
            # A new buffer rather than a resized one: the event loop may still hold a view of the old.
            larger = bytearray(wanted)
            larger[: self._filled] = memoryview(frame)[: self._filled]
            self._frame = larger
        return not self.starved

    def _enough(self) -> int:
        """How much memory the current frame may have, by what has arrived of it."""
        if self._size <= SMALL_BYTES:
            return max(CROWDED_BYTES, 2 * self._filled)
        return SMALL_BYTES if self._filled < SMALL_BYTES else max(EAGER_BYTES, 2 * self._filled)
