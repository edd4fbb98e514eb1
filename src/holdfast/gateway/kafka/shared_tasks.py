"""Work that concurrent callers share: the second one waits for the result of the first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from holdfast.gateway.kafka.errors import KafkaUnreachable

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class SharedTasks(Generic[K, T]):
    """At most one task for each key. A caller that is cancelled leaves the task to the others."""

    def __init__(self) -> None:
        self._tasks: dict[K, asyncio.Task[T]] = {}
        self._is_closed = False

    async def run(self, key: K, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of the task that runs for this key, or else of a new one."""
        if self._is_closed:
            raise KafkaUnreachable("the gateway's Kafka client is closed")
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(work())
            task.add_done_callback(lambda done: self._ended(key, done))
        await asyncio.wait((task,))  # unlike `await task`, does not pass a cancellation on
        if task.cancelled():
            raise KafkaUnreachable("the gateway's Kafka client is closed")
        return task.result()

    def _ended(self, key: K, task: asyncio.Task[T]) -> None:
        self._tasks.pop(key, None)
        if not task.cancelled():
            task.exception()  # every caller may have been cancelled, and asyncio would log that nobody saw the failure

    async def close(self) -> None:
        """Cancels all of them. Callers that wait get KafkaUnreachable."""
        self._is_closed = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
