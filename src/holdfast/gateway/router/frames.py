"""Splitting a stream of bytes into frames, most of which pass on unread.

A frame is a 4-byte length and that many bytes. Its owner decides from the first few bytes whether it passes, so that no
frame has to be in memory as a whole. Consecutive frames that pass are passed on in one piece, as they arrived.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from struct import Struct
from typing import Final, Protocol

HEAD_BYTES: Final = 8
"""A frame is shown to its owner when this much of it has arrived: API key, version and correlation id of a request."""
MAX_HEAD_BYTES: Final = 256 * 1024
"""The owner has to decide at the latest when it sees this much. The two strings before the acks of a Produce have up to
64 KiB together; the brokers in a Metadata response take less than a hundred bytes each."""

_length = Struct(">i").unpack_from


class BrokenStream(Exception):
    """The stream cannot be read any further. The text says why, for the log."""


class Verdict(Enum):
    PASS = 1
    """The frame passes on as it arrives."""
    COLLECT = 2
    """The owner gets the whole frame."""
    MORE = 3
    """The owner has to see more of the frame."""
    WAIT = 4
    """The frame must not begin now."""


PASS: Final = Verdict.PASS
COLLECT: Final = Verdict.COLLECT
MORE: Final = Verdict.MORE
WAIT: Final = Verdict.WAIT


@dataclass(frozen=True, slots=True)
class Replace:
    """The frame passes, with another beginning."""

    taken: int
    """Bytes of the frame, without its length, that `data` replaces."""
    data: bytes
    """With the frame's new length."""


class FrameUser(Protocol):
    def frame_begins(self, data: memoryview, position: int, end: int, size: int) -> Verdict | Replace:
        """What becomes of a frame of `size` bytes, of which `data[position:end]` has arrived.

        Called again for the same frame after WAIT and MORE, and after COLLECT if memory could not be reserved.
        """

    def reserve(self, size: int, count: int) -> bool:
        """Whether `count` more bytes of a frame of `size` bytes may be collected now."""

    def pass_on(self, data: memoryview | bytes) -> None:
        """The data is valid during the call only."""

    def frame_collected(self, frame: bytes) -> bool:
        """The frame without its length. Whether the next frame may begin."""


class FrameSplitter:
    __slots__ = ("_frame", "_head", "_left", "_size", "_user")

    def __init__(self, user: FrameUser) -> None:
        self._user = user
        self._left = 0
        """Bytes of the current frame that still pass."""
        self._head = b""
        """The beginning of a frame, with its length, that is not decided yet."""
        self._frame: bytearray | None = None
        """The frame that is being collected."""
        self._size = 0

    @property
    def is_inside(self) -> bool:
        """A frame has begun and is not complete."""
        return bool(self._left or self._head) or self._frame is not None

    @property
    def is_collecting(self) -> bool:
        return self._frame is not None

    def feed(self, data: memoryview) -> int:
        """Takes as many bytes as it can now, and returns how many. The rest must be fed again later."""
        if self._left:
            passed = min(self._left, len(data))
            self._left -= passed
            return self._split(data, passed)
        if self._frame is not None:
            return self._collect_more(data, self._frame)
        if self._head:
            return self._feed_after_head(data)
        return self._split(data, 0)

    def _feed_after_head(self, data: memoryview) -> int:
        before = self._head
        self._head = b""
        taken = self._split(memoryview(b"".join((before, data))), 0)
        if taken:
            return taken - len(before)
        self._head = before
        return 0

    def _split(self, data: memoryview, position: int) -> int:
        """`data[:position]` passes; frames begin behind it."""
        user = self._user
        start, end = 0, len(data)
        while end - position >= 4:
            (size,) = _length(data, position)
            begin = position + 4
            stop = begin + size
            if size < 0:
                raise BrokenStream(f"a frame has the length {size}")
            if stop > end and end - begin < HEAD_BYTES:
                break
            verdict = user.frame_begins(data, begin, min(stop, end), size)
            if verdict is not PASS:
                if start < position:
                    user.pass_on(data[start:position])
                if isinstance(verdict, Replace):
                    user.pass_on(verdict.data)
                    start = begin + verdict.taken
                elif verdict is COLLECT and stop <= end:
                    start = position = stop
                    if user.frame_collected(data[begin:stop].tobytes()):
                        continue
                    return position
                else:
                    return self._stop(verdict, data, position, size)
            position = stop
            if stop > end:
                self._left = stop - end
                position = end
        if start < position:
            user.pass_on(data[start:position])
        if position < end:
            self._head = data[position:].tobytes()
        return end

    def _stop(self, verdict: Verdict, data: memoryview, position: int, size: int) -> int:
        """The frame at `position` cannot be finished now."""
        end = len(data)
        arrived = end - position - 4
        if verdict is MORE:
            if arrived >= min(size, MAX_HEAD_BYTES):
                raise BrokenStream("a frame has a malformed header")
            self._head = data[position:].tobytes()
            return end
        if verdict is COLLECT and self._user.reserve(size, arrived):
            self._frame, self._size = bytearray(data[position + 4 :]), size
            return end
        return position

    def _collect_more(self, data: memoryview, frame: bytearray) -> int:
        part = data[: self._size - len(frame)]
        if not self._user.reserve(self._size, len(part)):
            return 0
        frame += part
        if len(frame) < self._size:
            return len(part)
        self._frame = None
        if not self._user.frame_collected(bytes(frame)):
            return len(part)
        return len(part) + self._split(data[len(part) :], 0)
