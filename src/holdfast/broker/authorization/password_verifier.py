"""Verifies passwords one at a time, in turn between hosts.

A verification deliberately takes about ten milliseconds of CPU time. If a client tries a thousand passwords at once,
they are verified one after the other, and a client on another host waits for only one of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from holdfast.broker.authorization.scram import Credential

# Separate from the other worker threads, because clients that guess passwords must not delay disk operations.
_hashing: Final = ThreadPoolExecutor(1, thread_name_prefix="holdfast-passwords")


class FairPasswordVerifier:
    def __init__(self) -> None:
        self._is_busy = False
        self._waiters: dict[str, deque[asyncio.Future[None]]] = {}
        """By host, in the order of their turns."""

    async def verify(self, host: str, credential: Credential, password: str) -> bool:
        await self._acquire(host)
        try:
            return await asyncio.get_running_loop().run_in_executor(_hashing, credential.matches, password)
        finally:
            self._release()

    async def _acquire(self, host: str) -> None:
        if not self._is_busy:
            self._is_busy = True
            return
        mine = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(host, deque()).append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            # The client has disconnected. If it already had its turn, the next client gets it.
            if not mine.cancelled():
                self._release()
            raise

    def _release(self) -> None:
        while self._waiters:
            host, queue = next(iter(self._waiters.items()))
            del self._waiters[host]
            following = queue.popleft()
            if queue:
                self._waiters[host] = queue  # behind the other hosts
            if not following.done():
                following.set_result(None)
                return
        self._is_busy = False
