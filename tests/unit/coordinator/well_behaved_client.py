"""A client that behaves: it joins, syncs, beats, and does what every answer asks of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.harness import Handle
from tests.unit.coordinator.members import Consumer

STARTS_OVER = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


@dataclass(eq=False)
class WellBehavedClient:
    consumer: Consumer
    syncing: Handle | None = None
    assignment: bytes | None = None
    """What it works on, in the generation of its consumer."""

    def step(self, all_of_them: Sequence[WellBehavedClient]) -> None:
        """One thing at a time: it waits for an answer, takes one, or asks."""
        consumer = self.consumer
        if consumer.joining is not None:
            self._after_join(consumer.joining)
        elif self.syncing is not None:
            self._after_sync(self.syncing)
        elif consumer.generation < 0:
            self._join()
        else:
            self._continue(consumer.heartbeat(), all_of_them)

    def _join(self) -> None:
        self.assignment = None
        self.consumer.join()

    def _after_join(self, handle: Handle) -> None:
        if handle.is_pending:
            return
        self.consumer.take()
        if self.consumer.joining is not None:
            self._do_as(handle.code)

    def _after_sync(self, handle: Handle) -> None:
        if handle.is_pending:
            return
        self.syncing = None
        if handle.code is ErrorCode.NONE:
            self.assignment = handle.reply.assignment
        else:
            self._do_as(handle.code)

    def _continue(self, code: ErrorCode, all_of_them: Sequence[WellBehavedClient]) -> None:
        if code is not ErrorCode.NONE:
            self._do_as(code)
        elif self.assignment is None:
            for other in all_of_them:
                other.consumer.take()
            others = [other.consumer for other in all_of_them if other is not self]
            self.syncing = self.consumer.sync(*others)

    def _do_as(self, code: ErrorCode) -> None:
        """Every error of joins, syncs and heartbeats ends in another join."""
        self.assignment, self.consumer.joining, self.consumer.generation = None, None, -1
        if code in STARTS_OVER:
            self.consumer.id = ""
