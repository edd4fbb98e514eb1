"""A bound on the memory that half-received requests may take, over all connections together.

A connection takes memory as its bytes arrive, never for a length it merely announced. When the pool is empty the
connection stops reading until there is room. Everybody behind clients that send half a request and then fall silent, or
trickle, would wait for ever: while somebody waits, holders that send too slowly for what they hold are disconnected.
And so would two clients that each hold half of the pool and wait for the other half: then one of them has to go.

Small requests have a pool of their own: a heartbeat, a commit or a small produce never waits for the memory of large
ones, and a stream of them takes none from a large one that waits.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Final, Protocol

STALLED_SECONDS: Final = 5.0
"""How long a half-received request may stand still while others wait for its memory."""

SLOW_BYTES: Final = 80 * 1024
"""Less than this in that time is standing still: a megabyte would take a minute."""

WHOLE_SECONDS: Final = 20.0
"""What a holder has booked must arrive at a pace that brings it within this time: who holds much must send fast."""

SMALL_BYTES: Final = 64 * 1024
"""Requests up to this size are booked in the pool of the small ones."""

_SHARE_OF_SMALL: Final = 4
"""One part in so many of the memory is for small requests: by default, more than `max.unauthenticated.connections` can
fill with what they may send (`sasl.server.max.receive.size`)."""


def least_bytes(held_bytes: int) -> int:
    """What must arrive in STALLED_SECONDS from one that holds so much while others wait."""
    return max(min(held_bytes, SLOW_BYTES), int(held_bytes * STALLED_SECONDS / WHOLE_SECONDS))


class Holder(Protocol):
    """A connection, as the pool sees it."""

    received_bytes: int
    """All that has arrived on the connection so far."""

    @property
    def receiving(self) -> bool:
        """A request has begun to arrive and is not complete. What holds memory otherwise is being answered."""

    def retry_growth(self) -> None: ...
    def evict(self, reason: str) -> None: ...


class MemoryPool:
    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes if limit_bytes >= 0 else sys.maxsize
        self.used_bytes = 0
        self._held: dict[Holder, int] = {}
        self._waiting: deque[Holder] = deque()
        self._turn: Holder | None = None
        """The one of those who waited that is trying again."""
        self._marks: dict[Holder, tuple[float, int]] = {}
        """While somebody waits: since when each holder is watched, and what it had sent by then."""

    @property
    def crowded(self) -> bool:
        """Somebody waits for memory."""
        return bool(self._waiting)

    def take(self, holder: Holder, size: int) -> bool:
        """Books `size` more bytes for `holder`; False if there is no room, and then it is called back."""
        held = self._held.get(holder, 0)
        # Whoever alone holds memory gets more beyond the limit, because nobody else could give it back.
        full = self.used_bytes + size > self.limit_bytes and self.used_bytes > held
        # A newcomer waits behind those who wait, or a stream of small requests would starve a large one.
        behind = bool(self._waiting) and not held and holder is not self._turn
        if full or behind:
            self._wait(holder)
            return False
        self.used_bytes += size
        self._held[holder] = held + size
        return True

    def _wait(self, holder: Holder) -> None:
        if holder is self._turn:
            self._waiting.appendleft(holder)
        elif holder not in self._waiting:
            self._waiting.append(holder)

    def release(self, holder: Holder, size: int) -> None:
        """Gives back `size` of what `holder` has, and lets those who wait try again."""
        held = self._held.get(holder, 0)
        size = min(size, held)
        self.used_bytes -= size
        if held > size:
            self._held[holder] = held - size
        elif held:
            del self._held[holder]
        if self._turn is None:
            self._let_them_try()

    def _let_them_try(self) -> None:
        while self._waiting:
            self._turn = self._waiting.popleft()
            self._turn.retry_growth()
            still_waits = bool(self._waiting) and self._waiting[0] is self._turn
            self._turn = None
            if still_waits:
                break

    def forget(self, holder: Holder) -> None:
        """The connection is gone."""
        if holder in self._waiting:
            self._waiting.remove(holder)
        self._marks.pop(holder, None)
        self.release(holder, self._held.get(holder, 0))

    def evict_stalled(self, now: float) -> None:
        """While somebody waits, those who hold memory and hardly send must go."""
        if not self._waiting:
            self._marks.clear()
            return
        waiting = set(self._waiting)
        senders = [holder for holder in self._held if holder not in waiting and holder.receiving]
        for holder in senders:
            since, received = self._marks.setdefault(holder, (now, holder.received_bytes))
            if now - since < STALLED_SECONDS:
                continue
            self._marks[holder] = (now, holder.received_bytes)
            if holder.received_bytes - received < least_bytes(self._held.get(holder, 0)):
                holder.evict("its half-sent request stood still while others waited for the memory it holds")
        if self._waiting and all(holder in waiting for holder in self._held):
            # They wait for each other. The last to ask has the least to lose.
            last = next((holder for holder in reversed(self._waiting) if holder in self._held), None)
            if last is not None:
                last.evict("all memory for requests is held by requests that wait for more of it")


class RequestMemory:
    """All memory for half-received requests, in two pools that never wait for each other."""

    def __init__(self, limit_bytes: int) -> None:
        limit_bytes = limit_bytes if limit_bytes >= 0 else sys.maxsize
        self.small = MemoryPool(limit_bytes // _SHARE_OF_SMALL)
        self.large = MemoryPool(limit_bytes - self.small.limit_bytes)

    def pool_of(self, request_bytes: int) -> MemoryPool:
        """Where a request of this size is booked."""
        return self.small if request_bytes <= SMALL_BYTES else self.large

    @property
    def used_bytes(self) -> int:
        return self.small.used_bytes + self.large.used_bytes

    @property
    def crowded(self) -> bool:
        """Large requests wait for memory."""
        return self.large.crowded

    def release(self, holder: Holder, request_bytes: int) -> None:
        """A request of this size, which was booked whole, is done."""
        self.pool_of(request_bytes).release(holder, request_bytes)

    def forget(self, holder: Holder) -> None:
        """The connection is gone."""
        self.small.forget(holder)
        self.large.forget(holder)

    def evict_stalled(self, now: float) -> None:
        self.small.evict_stalled(now)
        self.large.evict_stalled(now)
