"""A bound on the memory that half-received requests may take, over all connections together.

A connection takes memory as its bytes arrive, never for a length field alone. When the pool is empty, the connection
stops reading until there is room. Clients that send half a request and then stop, or send very slowly, would make
others wait for ever. Therefore, while a connection waits, owners of memory that send too slowly for the memory they
hold are disconnected. Two clients that each hold half of the pool and wait for the other half would also wait for ever,
so one of them is disconnected.

Small requests have a separate pool. A heartbeat, a commit or a small produce never waits for the memory of large
requests, and a stream of small requests takes no memory from a large request that waits.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Final, Protocol

STALLED_SECONDS: Final = 5.0
"""How long a half-received request may make no progress while others wait for its memory."""

STALLED_BYTES: Final = 80 * 1024
"""Fewer bytes than this in that time are no progress. At that rate, a megabyte would take a minute."""

MAX_ARRIVAL_SECONDS: Final = 20.0
"""Reserved memory must be filled at a rate that fills it within this time, so a large request must be sent fast."""

SMALL_BYTES: Final = 64 * 1024
"""Requests up to this size use the pool for small ones."""

_SMALL_POOL_DIVISOR: Final = 4
"""The pool for small requests is 1/N of the memory. By default, that is more than `max.unauthenticated.connections`
connections can fill with requests of `sasl.server.max.receive.size`."""


def min_bytes(held_bytes: int) -> int:
    """The bytes that must arrive in STALLED_SECONDS for this much reserved memory while others wait."""
    return max(min(held_bytes, STALLED_BYTES), int(held_bytes * STALLED_SECONDS / MAX_ARRIVAL_SECONDS))


class MemoryOwner(Protocol):
    """A connection, as the pool sees it."""

    received_bytes: int
    """Bytes that have arrived on the connection so far."""

    @property
    def receiving(self) -> bool:
        """A request has begun to arrive and is not complete. Otherwise the memory is that of a request being served."""

    def retry_growth(self) -> None: ...
    def evict(self, reason: str) -> None: ...


class MemoryPool:
    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes if limit_bytes >= 0 else sys.maxsize
        self.used_bytes = 0
        self._reserved: dict[MemoryOwner, int] = {}
        self.waiters: deque[MemoryOwner] = deque()
        """The owners that wait for memory, in order. The same object throughout the life of the pool."""
        self._retrying: MemoryOwner | None = None
        """The waiter that is retrying."""
        self._progress: dict[MemoryOwner, tuple[float, int]] = {}
        """While others wait: since when each owner is watched, and how much it had sent by then."""

    @property
    def has_waiters(self) -> bool:
        """A connection waits for memory."""
        return bool(self.waiters)

    def reserve(self, owner: MemoryOwner, size: int) -> bool:
        """Reserves `size` more bytes for `owner`. False if there is no room; then `retry_growth` is called later."""
        held = self._reserved.get(owner, 0)
        # The only owner of memory gets more than the limit, because no other could release any.
        full = self.used_bytes + size > self.limit_bytes and self.used_bytes > held
        # A new owner queues behind the waiters. Otherwise a stream of small requests would starve a large one.
        behind = bool(self.waiters) and not held and owner is not self._retrying
        if full or behind:
            self._wait(owner)
            return False
        self.used_bytes += size
        self._reserved[owner] = held + size
        return True

    def _wait(self, owner: MemoryOwner) -> None:
        if owner is self._retrying:
            self.waiters.appendleft(owner)
        elif owner not in self.waiters:
            self.waiters.append(owner)

    def release(self, owner: MemoryOwner, size: int) -> None:
        """Releases `size` bytes of `owner`, and lets the waiters retry."""
        held = self._reserved.get(owner, 0)
        size = min(size, held)
        self.used_bytes -= size
        if held > size:
            self._reserved[owner] = held - size
        elif held:
            del self._reserved[owner]
        if self._retrying is None:
            self._retry_waiters()

    def _retry_waiters(self) -> None:
        while self.waiters:
            self._retrying = self.waiters.popleft()
            self._retrying.retry_growth()
            still_waits = bool(self.waiters) and self.waiters[0] is self._retrying
            self._retrying = None
            if still_waits:
                break

    def forget(self, owner: MemoryOwner) -> None:
        """The connection is gone."""
        if owner in self.waiters:
            self.waiters.remove(owner)
        self._progress.pop(owner, None)
        self.release(owner, self._reserved.get(owner, 0))

    def evict_stalled(self, now: float) -> None:
        """While others wait, disconnects owners of memory that make too little progress."""
        if not self.waiters:
            self._progress.clear()
            return
        waiting = set(self.waiters)
        senders = [owner for owner in self._reserved if owner not in waiting and owner.receiving]
        for owner in senders:
            since, received = self._progress.setdefault(owner, (now, owner.received_bytes))
            if now - since < STALLED_SECONDS:
                continue
            self._progress[owner] = (now, owner.received_bytes)
            if owner.received_bytes - received < min_bytes(self._reserved.get(owner, 0)):
                owner.evict("its half-sent request made no progress while others waited for the memory it holds")
        if self.waiters and all(owner in waiting for owner in self._reserved):
            # All owners wait for each other. The last one to request memory loses the least progress.
            last = next((owner for owner in reversed(self.waiters) if owner in self._reserved), None)
            if last is not None:
                last.evict("all memory for requests is held by requests that wait for more of it")


class RequestMemory:
    """The memory for half-received requests, in two pools that never wait for each other."""

    def __init__(self, limit_bytes: int) -> None:
        limit_bytes = limit_bytes if limit_bytes >= 0 else sys.maxsize
        self.small = MemoryPool(limit_bytes // _SMALL_POOL_DIVISOR)
        self.large = MemoryPool(limit_bytes - self.small.limit_bytes)

    def pool_for(self, request_bytes: int) -> MemoryPool:
        """The pool for a request of this size."""
        return self.small if request_bytes <= SMALL_BYTES else self.large

    @property
    def used_bytes(self) -> int:
        return self.small.used_bytes + self.large.used_bytes

    @property
    def has_waiters(self) -> bool:
        """Large requests wait for memory."""
        return self.large.has_waiters

    def release(self, owner: MemoryOwner, request_bytes: int) -> None:
        """A request of this size is complete; all of it was reserved."""
        self.pool_for(request_bytes).release(owner, request_bytes)

    def forget(self, owner: MemoryOwner) -> None:
        """The connection is gone."""
        self.small.forget(owner)
        self.large.forget(owner)

    def evict_stalled(self, now: float) -> None:
        self.small.evict_stalled(now)
        self.large.evict_stalled(now)
