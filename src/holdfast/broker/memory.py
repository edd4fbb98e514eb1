"""A bound on the memory that half-received requests may take, over all connections together.

A connection takes memory as its bytes arrive, never for a length it merely announced. When the pool is empty the
connection stops reading until there is room. Two clients that each hold half of the pool and wait for the other half
would wait for ever, and so would everybody behind a client that sends half a request and falls silent: then the
holder that has made no progress for longest is disconnected.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Final, Protocol

STALLED_SECONDS: Final = 5.0
"""How long a half-received request may stand still while others wait for its memory."""


class Holder(Protocol):
    """A connection, as the pool sees it."""

    last_active: float

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
        self.release(holder, self._held.get(holder, 0))

    def evict_stalled(self, now: float) -> None:
        """While somebody waits, the holder that has stood still for longest must go, if it has for too long."""
        if not self._waiting or not self._held:
            return
        stalest = min(self._held, key=lambda holder: holder.last_active)
        if now - stalest.last_active >= STALLED_SECONDS:
            stalest.evict("its half-sent request stood still while others waited for the memory it holds")
