"""The replay of a partition of the group log, in a worker thread, up to the claim of this gateway.

A log that is read in part must not pass for the whole log: its groups would start over at old offsets. So the replay
waits for Kafka for as long as it takes, and ends early only if the partition is lost.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

from holdfast.broker.groups.group_log import GroupLogError
from holdfast.broker.groups.record_batches import decode_group_batch
from holdfast.broker.structured_log import log_event
from holdfast.gateway.state.claim import LOG_FORMAT
from holdfast.gateway.state.log_reader import FetchedBatch, split
from holdfast.gateway.state.old_producers import OldProducers
from holdfast.wire.batch import HEADER_SIZE, Buffer
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.errors import WireError
from holdfast.wire.group_records import CLAIM_KEY_PREFIX, GroupRecord, decode_claim_key
from holdfast.wire.records import decode_batch

logger = logging.getLogger(__name__)

T = TypeVar("T")

_WAIT_S: Final = 1.0
"""After this time, the thread looks whether it still has to wait."""
_CLAIM_KEY_WITHIN: Final = 16
"""The key of a record begins within its first bytes, after the lengths and deltas."""


class LogAccess(Protocol):
    """What the replay asks of the event loop."""

    async def fetch(self, offset: int) -> tuple[Buffer, int]:
        """See `LogReader.fetch`. If it raises, the owner knows that the partition is lost."""

    async def fence(self, producer_ids: Sequence[int]) -> int:
        """Fences earlier writers, and returns the offset of the last claim."""

    async def refuse_format(self, log_format: int) -> None:
        """A newer gateway has written to the log."""

    def close(self) -> None: ...


class Replay:
    """Created on the event loop. `records` runs in a worker thread, and everything else on the event loop."""

    def __init__(self, partition: str, access: LogAccess, claim_offset: int, producer_id: int) -> None:
        self.ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._partition = partition
        self._access = access
        self._end = claim_offset
        self._producers = OldProducers(producer_id)
        self._pending: concurrent.futures.Future[Any] | None = None
        self._is_cancelled = False

    def cancel(self) -> None:
        """The partition is lost. Its owner must know that already."""
        self._is_cancelled = True
        pending = self._pending
        if pending is not None:
            pending.cancel()
        self.ended.set()

    def records(self) -> Iterator[Sequence[GroupRecord]]:
        try:
            yield from self._records()
        finally:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                self._loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        self._access.close()
        self.ended.set()

    def _records(self) -> Iterator[Sequence[GroupRecord]]:
        offset, is_complete = 0, False
        fetching = self._submit(self._access.fetch(offset))
        while not is_complete:
            batches, offset, is_complete = self._take(*self._wait(fetching), offset)
            if is_complete:
                is_complete = not self._fence_old_producers()
            if not is_complete:
                fetching = self._submit(self._access.fetch(offset))
            for batch in batches:
                yield from self._decoded(batch)

    def _take(self, data: Buffer, fetched_from: int, offset: int) -> tuple[list[FetchedBatch], int, bool]:
        """The next batches up to the end, the offset after them, and whether they are the last ones."""
        found = list(split(data, max(offset, fetched_from)))
        if not found:
            self._log_unreadable(offset, "no record batch")
            self._wait(self._submit(asyncio.sleep(_WAIT_S)))
        batches = [batch for batch in found if batch.header.base_offset <= self._end]
        self._producers.add(batch.header for batch in batches)
        if batches:
            offset = batches[-1].header.last_offset + 1
        return batches, offset, offset > self._end or len(batches) < len(found)

    def _fence_old_producers(self) -> bool:
        """Whether there were any. They may have written until now, and what they have written belongs to the log."""
        unfenced = self._producers.take_unfenced()
        if unfenced:
            self._end = max(self._end, self._wait(self._submit(self._access.fence(unfenced))))
        return bool(unfenced)

    def _decoded(self, batch: FetchedBatch) -> Iterator[Sequence[GroupRecord]]:
        """Unreadable records are skipped and logged: one group's record must not cost the other groups theirs."""
        if batch.header.is_control:
            return
        if _may_be_claim(batch):
            self._check_format(batch)
        records, unreadable = decode_group_batch(batch.data)
        if unreadable is not None:
            self._log_unreadable(batch.header.base_offset, str(unreadable))
        yield from records

    def _check_format(self, batch: FetchedBatch) -> None:
        try:
            keys = [record.key for record in decode_batch(batch.data) if record.key is not None]
            claims = [claim for key in keys if (claim := decode_claim_key(key)) is not None]
        except WireError:
            return  # logged as unreadable
        for claim in claims:
            if claim.log_format > LOG_FORMAT:
                self._wait(self._submit(self._access.refuse_format(claim.log_format)))
                raise self._lost()

    def _log_unreadable(self, offset: int, error: str) -> None:
        log_event(
            logger,
            "unreadable group records skipped",
            logging.ERROR,
            partition=self._partition,
            offset=offset,
            error=error,
        )

    # -- the event loop ------------------------------------------------------------------------------------------------

    def _submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        if self._is_cancelled:
            work.close()
            raise self._lost()
        self._pending = submitted = asyncio.run_coroutine_threadsafe(work, self._loop)
        return submitted

    def _wait(self, submitted: concurrent.futures.Future[T]) -> T:
        while not self._is_cancelled:
            try:
                return submitted.result(_WAIT_S)
            except concurrent.futures.CancelledError:
                break
            except TimeoutError:
                if submitted.done():
                    raise
        raise self._lost()

    def _lost(self) -> GroupLogError:
        return GroupLogError(ErrorCode.NOT_COORDINATOR, f"partition {self._partition} of the group log is lost")


def _may_be_claim(batch: FetchedBatch) -> bool:
    """A cheap look, as there are many batches and few claims. A claim is alone in its batch."""
    if batch.header.codec:
        return batch.header.record_count == 1
    start = bytes(batch.data[HEADER_SIZE : HEADER_SIZE + _CLAIM_KEY_WITHIN])
    return batch.header.record_count == 1 and CLAIM_KEY_PREFIX in start
