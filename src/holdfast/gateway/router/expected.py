"""The responses that Kafka still owes on one connection. Kafka answers the requests of a connection in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.gateway.kafka.errors import KafkaUnreachable
from holdfast.gateway.router.frames import Replace


class Expected:
    """One response. If nothing is said about it, it passes on as it arrives."""

    __slots__ = ("begin", "changes_topics", "correlation_id", "take")

    def __init__(
        self,
        correlation_id: int | None,
        take: Callable[[bytes], bytes] | asyncio.Future[bytes] | None = None,
        begin: Callable[[memoryview, int], Replace | None] | None = None,
        *,
        changes_topics: bool = False,
    ) -> None:
        self.correlation_id = correlation_id
        """None for a token of SASL without a header."""
        self.take = take
        """Given the response without its length: what the client gets, with its length. Or the future that gets it."""
        self.begin = begin
        """Given the arrived part of the response and its size: its new beginning. None if more has to arrive."""
        self.changes_topics = changes_topics
        """It reports that topics were created, deleted or enlarged."""

    def fail(self, reason: str) -> None:
        """It will not arrive."""
        if isinstance(self.take, asyncio.Future) and not self.take.done():
            self.take.set_exception(KafkaUnreachable(reason))
