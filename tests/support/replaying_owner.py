"""An owner of the partitions of a group log: it replays what it gains, as the group service does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from holdfast.broker.groups.group_log import GroupLog, GroupLogError
from holdfast.wire.group_records import GroupRecord


class ReplayingOwner:
    def __init__(self) -> None:
        self.log: GroupLog | None = None
        """Set before the log is started."""
        self.served: set[int] = set()
        self.records: dict[int, list[GroupRecord]] = {}
        self.events: list[tuple[str, int]] = []
        self.loads: dict[int, asyncio.Task[None]] = {}

    def partitions_awaited(self, partitions: Sequence[int]) -> None:
        self.events += [("awaited", partition) for partition in partitions]

    def partitions_gained(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            self.events.append(("gained", partition))
            self.records[partition] = []
            self.loads[partition] = asyncio.create_task(self._load(partition))

    def partitions_lost(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            self.events.append(("lost", partition))
            self.served.discard(partition)
            self.loads.pop(partition, None)

    async def _load(self, partition: int) -> None:
        assert self.log is not None
        chunks = self.log.replay(partition)
        found: list[GroupRecord] = []
        error: Exception | None = None
        while error is None:
            try:
                chunk = await asyncio.to_thread(next, chunks, None)
            except GroupLogError as failure:
                chunk, error = None, failure
            if self.loads.get(partition) is not asyncio.current_task():
                return
            if chunk is None:
                break
            found += chunk
        assert error is None, "an error means that the partition is lost"
        self.records[partition] = found
        self.served.add(partition)

    async def serving(self) -> None:
        """Until all partitions are served."""
        assert self.log is not None
        count = self.log.partition_count
        await until(lambda: len(self.served) == count)


async def until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110  # any condition, without an event of its own
            await asyncio.sleep(0.002)
