"""A partition: its log, and the fetches that wait for more records."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator
from typing import Final

from holdfast.broker.config.topic import TopicConfig
from holdfast.log import LogConfig, LogError, PartitionLog

LEADER_EPOCH: Final = 0
"""There is one replica, which always leads, so the epoch never changes."""


class Partition:
    __slots__ = ("config", "deleted", "fetch_waiters", "index", "log", "topic_name")

    def __init__(self, topic_name: str, index: int, log: PartitionLog, config: TopicConfig) -> None:
        self.topic_name = topic_name
        self.index = index
        self.log = log
        self.config = config
        self.deleted = False
        self.fetch_waiters: set[Callable[[], None]] = set()
        """Called after each produce and when the partition is deleted."""

    def configure(self, config: TopicConfig, log_config: LogConfig) -> None:
        """`log_config` is made from `config`, once for all partitions that share it."""
        self.config = config
        self.log.config = log_config

    def ensure_loaded(self) -> Generator[Awaitable[None], None, None]:
        """Loads an unloaded log in a worker thread, because this may scan a whole segment. For handlers that are
        generators (`util/slices.py`)."""
        if not self.log.is_loaded:
            with contextlib.suppress(LogError):  # the next use of the log fails in the same way
                yield asyncio.to_thread(self.log.load)

    def wake_fetchers(self) -> None:
        for watcher in tuple(self.fetch_waiters):
            watcher()

    def __repr__(self) -> str:
        return f"{self.topic_name}-{self.index}"
