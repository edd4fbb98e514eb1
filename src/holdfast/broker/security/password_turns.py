"""Passwords are compared one at a time, and the hosts that guess take turns.

A comparison takes some ten milliseconds of a processor on purpose. A stranger who tries a thousand passwords at once
waits for them one after the other; whoever comes from another host waits for one of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from holdfast.broker.security.scram import Credential

# Apart from the other worker threads: strangers who try passwords must not make the disk wait.
_hashing: Final = ThreadPoolExecutor(1, thread_name_prefix="holdfast-passwords")


class PasswordTurns:
    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By host; whose turn is next stands first."""

    async def matches(self, host: str, credential: Credential, password: str) -> bool:
        await self._turn_of(host)
        try:
            return await asyncio.get_running_loop().run_in_executor(_hashing, credential.is_of, password)
        finally:
            self._pass_on()

    async def _turn_of(self, host: str) -> None:
        if not self._is_taken:
            self._is_taken = True
            return
        mine = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(host, deque()).append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            # The client has gone. If its turn had come all the same, it is the next one's.
            if not mine.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            host, queue = next(iter(self._waiting.items()))
            del self._waiting[host]
            following = queue.popleft()
            if queue:
                self._waiting[host] = queue  # behind the other hosts
            if not following.done():
                following.set_result(None)
                return
        self._is_taken = False
