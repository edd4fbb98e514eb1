"""A partition as the broker serves it: its log, and the fetches that wait for more of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator
from typing import Final

from holdfast.broker.topic_config import TopicConfig
from holdfast.log import LogConfig, LogError, PartitionLog

LEADER_EPOCH: Final = 0
"""There is one replica and it always leads, so its first term never ends."""


class Partition:
    __slots__ = ("config", "deleted", "index", "log", "topic_name", "watchers")

    def __init__(self, topic_name: str, index: int, log: PartitionLog, config: TopicConfig) -> None:
        self.topic_name = topic_name
        self.index = index
        self.log = log
        self.config = config
        self.deleted = False
        self.watchers: set[Callable[[], None]] = set()
        """Called after each produce and when the partition is deleted."""

    def configure(self, config: TopicConfig, log_config: LogConfig) -> None:
        """`log_config` is what the log takes from `config`: made once for all partitions that have it."""
        self.config = config
        self.log.config = log_config

    def awake(self) -> Generator[Awaitable[None], None, None]:
        """Looks into the directory of a log at rest, in a worker thread: a whole segment may have to be scanned. For
        handlers that are generators (`slices`)."""
        if self.log.is_at_rest:
            with contextlib.suppress(LogError):  # the use of the log that follows fails in the same way
                yield asyncio.to_thread(self.log.wake)

    def notify(self) -> None:
        for watcher in tuple(self.watchers):
            watcher()

    def __repr__(self) -> str:
        return f"{self.topic_name}-{self.index}"
