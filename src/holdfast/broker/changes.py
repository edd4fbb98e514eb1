"""Changes that must be made whole even if the client that asked for them goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Changes:
    """The changes under way. A connection that is lost cancels its parked request, but not what is in here."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[Any]] = set()

    async def to_the_end(self, change: Coroutine[Any, Any, T]) -> T:
        return await asyncio.shield(self.start(change))

    def start(self, change: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(change)
        self._under_way.add(task)  # the loop itself holds tasks weakly
        task.add_done_callback(self._under_way.discard)
        return task

    async def settled(self) -> None:
        """Waits for all of them, and for those that they start."""
        while self._under_way:
            await asyncio.wait(self._under_way)
