"""Tasks that run to completion even if the client that requested them disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class ShieldedTasks:
    """A lost connection cancels its parked request, but not the tasks in here."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, change: Coroutine[Any, Any, T]) -> T:
        return await asyncio.shield(self.start(change))

    def start(self, change: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(change)
        self._tasks.add(task)  # the loop itself holds tasks weakly
        task.add_done_callback(self._tasks.discard)
        return task

    async def join(self) -> None:
        """Waits for all of them, and for those that they start."""
        while self._tasks:
            await asyncio.wait(self._tasks)
