"""The interface to the log that stores the coordinator's records.

Every group belongs to one partition of the log, as in Kafka's `__consumer_offsets`. The log says which partitions this
broker serves: all of them with a log on the local disk, some of them if several brokers share one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Protocol

from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import GroupRecord


class GroupLogError(Exception):
    """Records could not be stored or read; `code` is what the clients of the group get."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class PartitionOwner(Protocol):
    """Serves the groups of the partitions."""

    def partitions_awaited(self, partitions: Sequence[int]) -> None:
        """These partitions are about to be gained. Until then, their groups are being loaded."""

    def partitions_gained(self, partitions: Sequence[int]) -> None:
        """The records of these partitions must be replayed before their groups are served."""

    def partitions_lost(self, partitions: Sequence[int]) -> None:
        """Another broker serves them from now on.

        An append to them that is in flight must end before they are gained again: the replay would miss its records.
        """


class GroupLog(Protocol):
    partition_count: int
    is_created: bool
    """Whether there is a log to append to. An attribute rather than a method: it is read with every request."""

    async def create_if_missing(self) -> None:
        """Creates the log. The first request of the first group waits for it."""

    def start(self, owner: PartitionOwner) -> None:
        """From now on, the log calls `owner` for each partition that is gained or lost."""

    def append(self, group_id: str, records: Sequence[GroupRecord], now_ms: int) -> asyncio.Future[None]:
        """Appends the records to the group's partition, all or none.

        The result is done when they are stored, often immediately. If it fails with a `GroupLogError`, nothing is
        stored.
        """

    def replay(self, partition: int) -> Iterator[Sequence[GroupRecord]]:
        """All records of one partition in order, in chunks. Runs in a worker thread.

        Raises GroupLogError or OSError.
        """

    def replay_failed(self, partition: int, reason: str) -> bool:
        """The replay did not reach the end. Returns whether the groups that were read so far are served."""
