"""The writer of one partition of the group log: an idempotent producer with a claim on the partition.

Appends that wait are joined into one batch, and one batch is in flight, or up to five, the number that Kafka remembers
of a producer. They are sent in rounds, one round per connection:

- While a round succeeds, batches are sent in order and answered in order.
- If a batch fails, or the connection is lost, nothing more is sent. After the last answer the writer looks for the
  leader and sends all batches that are not known to be stored again, in order and with their sequence numbers. Kafka
  recognizes the ones that it has. Those who wait for them just wait longer.
- A batch that Kafka rejects for its content fails alone. The batches behind it cannot be stored, because a sequence
  number is missing, so they get new ones.
- If another writer has claimed the partition (INVALID_PRODUCER_EPOCH), the partition is lost, for good.
- If Kafka expects another sequence number than that of the oldest batch, either the log has lost batches, or it has
  stored this one and does not remember it (a producer snapshot keeps only the last batch). Nobody can tell which, so
  the writer gives up, and the partition is claimed and replayed again.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from holdfast.broker.groups.group_log import GroupLogError
from holdfast.broker.structured_log import log_event
from holdfast.gateway.kafka.errors import KafkaRefused, KafkaUnreachable
from holdfast.gateway.state.append_queue import AppendBatch, AppendQueue, WriterLimits
from holdfast.gateway.state.claim import encoded_claim
from holdfast.gateway.state.codes import error_name
from holdfast.gateway.state.leader_link import LeaderLink
from holdfast.gateway.state.offset_check import OffsetCheck
from holdfast.gateway.state.ports import Cluster, Connection
from holdfast.gateway.state.produce import (
    OTHER_SEQUENCE,
    REJECTED,
    STORED,
    answered_within_s,
    partition_response,
    produce_request,
)
from holdfast.gateway.state.producer import FENCED, Fenced, Producer, init_producer, pauses
from holdfast.gateway.state.topic import StateTopic, StateTopicError
from holdfast.wire.apis.produce import PartitionProduceResponse
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import GroupRecord

logger = logging.getLogger(__name__)

REMEMBERED_BATCHES: Final = 5
"""Of each producer. Kafka would not recognize an older batch that is sent again (KIP-98)."""
_LONG_ROUND_S: Final = 5.0
"""The end of a round that lasted longer is no reason to wait before the next one."""


class Loss(enum.Enum):
    """Why a writer does not write any more."""

    FENCED = "another gateway has claimed the partition"
    DIVERGED = "the log does not contain what this gateway knows"
    UNUSABLE = "the gateway has to stop"
    CLOSED = "the gateway stops"


class PartitionWriter:
    def __init__(
        self,
        cluster: Cluster,
        topic: StateTopic,
        partition: int,
        *,
        gateway_id: str,
        on_lost: Callable[[Loss, str], None],
        limits: WriterLimits = WriterLimits(),  # noqa: B008  # frozen
    ) -> None:
        """`on_lost` is called at most once, and before the appends that wait fail."""
        assert 1 <= limits.in_flight <= REMEMBERED_BATCHES
        self.name: Final = f"{topic.name}-{partition}"
        """The name of the partition, and its `transactional.id`."""
        self.loss: Loss | None = None
        self._cluster, self._topic, self._partition = cluster, topic, partition
        self._gateway_id, self._on_lost, self._limits = gateway_id, on_lost, limits
        self._loop = asyncio.get_running_loop()
        self._producer: Producer | None = None
        self._next_producer: Producer | None = None
        """With a higher epoch. It replaces the other when nothing is in flight."""
        self._sequence = 0
        self._waiting = AppendQueue(self.name, topic.max_message_bytes, limits)
        self._sent: deque[AppendBatch] = deque()
        """In order of their sequence numbers: sent once at least, and not answered in order yet."""
        self._link = LeaderLink(cluster, topic, partition, self._connection_lost)
        self._connection: Connection | None = None
        self._round = self._unanswered = 0
        self._failure: str | None = None
        """Why the round ends; None while it succeeds."""
        self._round_ended = asyncio.Event()
        self._is_flush_scheduled = self._is_round_open = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._offsets = OffsetCheck(self.name)
        self._stored_s = self._renewed_s = self._loop.time()
        self._logged_s = -1.0
        self._is_renewing = False
        self._emptied: asyncio.Future[None] | None = None

    @property
    def producer(self) -> Producer | None:
        return self._producer

    @property
    def is_idle(self) -> bool:
        """Whether it has claimed the partition, and nothing is under way."""
        return self.loss is None and self._producer is not None and not self._sent and not self._waiting

    @property
    def stored_s(self) -> float:
        """When the partition was last known to be ours, in the event loop's time."""
        return self._stored_s

    # -- the claim -----------------------------------------------------------------------------------------------------

    async def claim(self, current: Producer | None = None) -> int:
        """Claims the partition and returns the offset of the claim. Everything that earlier writers stored is below it.

        With `current`, only if no other writer has claimed it meanwhile. Raises GroupLogError if the partition is lost,
        and KafkaRefused.
        """
        try:
            self._producer = await init_producer(self._cluster, self.name, current)
        except Fenced as error:
            self.lose(Loss.FENCED, str(error))
            raise self._lost_error() from error
        if self.loss is not None:
            raise self._lost_error()
        self._renewed_s = self._loop.time()
        self._start(self._run())
        offset = -1
        while offset < 0:  # only DUPLICATE_SEQUENCE_NUMBER does not tell the offset
            stored: asyncio.Future[None] = self._loop.create_future()
            claim = self._claim_batch(stored)
            self._waiting.put_first(claim)
            self._schedule_flush()
            await stored
            offset = claim.offset
        return offset

    def _claim_batch(self, stored: asyncio.Future[None] | None = None) -> AppendBatch:
        """Also the heartbeat of an idle partition, and the first batch of a new epoch."""
        assert self._producer is not None, "the producer is initialized first"
        record, now_ms = encoded_claim(self._producer, self._gateway_id)
        claim = AppendBatch(now_ms, self._loop.time(), is_claim=True)
        claim.add(record, 1, stored)
        return claim

    # -- appends -------------------------------------------------------------------------------------------------------

    def append(self, records: Sequence[GroupRecord], now_ms: int) -> asyncio.Future[None]:
        """See `GroupLog.append`. Fails with a GroupLogError."""
        stored: asyncio.Future[None] = self._loop.create_future()
        if self.loss is not None:
            stored.set_exception(self._lost_error())
            return stored
        try:
            self._waiting.add(records, now_ms, stored)
        except GroupLogError as error:
            stored.set_exception(error)
        else:
            self._schedule_flush()
        return stored

    def _schedule_flush(self) -> None:
        """The appends of one iteration of the event loop are one batch."""
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_scheduled = False
        if self._emptied is not None and not (self._sent or self._waiting or self._emptied.done()):
            self._emptied.set_result(None)
        while self._is_round_open and self._failure is None and len(self._sent) < self._limits.in_flight:
            if self._next_producer is not None:
                if self._sent:
                    return  # the epochs must not mix: a batch of the old one would be rejected after the first new one
                self._producer, self._next_producer, self._sequence = self._next_producer, None, 0
                self._waiting.put_first(self._claim_batch())
            if not self._waiting:
                return
            assert self._producer is not None, "a round begins after the claim"
            batch = self._waiting.pop()
            batch.seal(self._producer, self._sequence)
            self._sequence = batch.next_sequence
            self._sent.append(batch)
            self._send(batch)

    # -- rounds --------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._run_rounds()
        except Exception:
            # A bug. The groups are replayed, and go on.
            logger.exception("the writer of partition %s failed", self.name)
            self.lose(Loss.DIVERGED, "the writer failed")

    async def _run_rounds(self) -> None:
        pause = pauses()
        is_first = True
        while self.loss is None:
            began_s = self._loop.time()
            try:
                self._connection = await self._link.connect(is_first=is_first)
            except (KafkaUnreachable, KafkaRefused) as error:
                self._failure = str(error)
            except StateTopicError as error:
                self.lose(Loss.UNUSABLE, str(error))
                return
            else:
                self._begin_round()
                await self._round_ended.wait()
            is_first = False
            if self._loop.time() - began_s > _LONG_ROUND_S or self._stored_s > began_s:
                pause = pauses()
            self._log_failure()
            await asyncio.sleep(next(pause))

    def _log_failure(self) -> None:
        """Once, until something is stored. A connection that Kafka closes because it is idle is no failure."""
        if self._logged_s != self._stored_s and (self._sent or self._waiting):
            self._logged_s = self._stored_s
            log_event(logger, "group log not reachable", logging.WARNING, partition=self.name, error=self._failure)

    def _begin_round(self) -> None:
        """Sends again what is not known to be stored, and goes on."""
        assert self._connection is not None, "connected before the round"
        self._round += 1
        self._unanswered, self._failure = 0, None
        self._is_round_open = True
        self._round_ended.clear()
        for batch in self._sent:
            if not batch.is_stored and self._failure is None:
                self._send(batch)
        self._end_round_if_over()
        self._schedule_flush()

    def _send(self, batch: AppendBatch) -> None:
        assert self._connection is not None, "a round has a connection"
        timeout_s = self._limits.produce_timeout_s
        request = produce_request(self._topic, self._partition, batch.data, timeout_s)
        batch.sends += 1
        try:
            answer = self._connection.send(request, timeout_s=answered_within_s(timeout_s))
        except (KafkaUnreachable, KafkaRefused) as error:
            self._fail_round(str(error))
            return
        self._unanswered += 1
        answer.add_done_callback(partial(self._answered, batch, self._round))

    def _answered(self, batch: AppendBatch, sent_in_round: int, answer: asyncio.Future[Any]) -> None:
        error = None if answer.cancelled() else answer.exception()
        if sent_in_round != self._round or self.loss is not None:
            return
        self._unanswered -= 1
        if (answer.cancelled() or error is not None) and batch.sends == 0:
            # The broker may still take the request, with a sequence number that another batch has now.
            self.lose(Loss.DIVERGED, f"no answer to a batch of partition {self.name} behind a rejected one: {error}")
        elif answer.cancelled() or error is not None:
            self._fail_round(str(error or "the request was cancelled"))
        else:
            self._take(batch, partition_response(answer.result()))
        self._end_round_if_over()

    def _connection_lost(self) -> None:
        if self._is_round_open:
            self._fail_round("the connection was lost")
            self._end_round_if_over()

    def _fail_round(self, failure: str) -> None:
        if self._failure is None:
            self._failure = failure

    def _end_round_if_over(self) -> None:
        """Not before the last answer: a batch that is sent again must not overtake one that is still under way."""
        if self._failure is not None and self._unanswered == 0 and self._is_round_open:
            self._is_round_open = False
            self._round_ended.set()

    # -- answers -------------------------------------------------------------------------------------------------------

    def _take(self, batch: AppendBatch, answer: PartitionProduceResponse) -> None:
        code = answer.error_code
        if code in STORED and batch.sends == 0:
            self.lose(Loss.DIVERGED, f"partition {self.name} has a batch that is behind a missing sequence number")
        elif code in STORED:
            batch.is_stored, batch.offset = True, answer.base_offset if code == ErrorCode.NONE else -1
            self._settle()
        elif code in FENCED:
            self.lose(Loss.FENCED, f"Kafka answers {error_name(code)} to a batch of partition {self.name}")
        elif code in REJECTED:
            self._drop(batch, code, answer.error_message)
        elif code in OTHER_SEQUENCE and self._failure is None:
            # All batches before this one are stored.
            self.lose(
                Loss.DIVERGED,
                f"Kafka answers {error_name(code)} to the batch of partition {self.name} with sequence number "
                f"{batch.sequence}, the next one after those that it has confirmed",
            )
        else:
            self._fail_round(f"Kafka answers {error_name(code)}")

    def _settle(self) -> None:
        """Batches are confirmed in order."""
        while self._sent and self._sent[0].is_stored:
            batch = self._sent.popleft()
            self._offsets.stored(batch.offset, batch.count)
            batch.succeed()
        self._stored_s = self._loop.time()
        self._schedule_flush()

    def expect_other_records(self) -> None:
        """The gateway is about to write to the partition in another way."""
        self._offsets.expect_others()

    def _drop(self, batch: AppendBatch, code: int, message: str | None) -> None:
        """The batch will never be stored. Those behind it cannot be stored under their sequence numbers."""
        reason = f"Kafka answers {error_name(code)} to group records" + (f" ({message})" if message else "")
        position = self._sent.index(batch)
        behind = list(self._sent)[position + 1 :]
        if batch.sends > 1 or any(later.sends > 1 or later.is_stored for later in behind):
            # The limit may be lower since the first attempt, which may have succeeded.
            self.lose(Loss.DIVERGED, reason)
            return
        log_event(logger, "group records not stored", logging.ERROR, partition=self.name, error=reason)
        self._sent.remove(batch)
        batch.fail(GroupLogError(ErrorCode.UNKNOWN_SERVER_ERROR, reason))
        assert self._producer is not None, "it has sent the batch"
        sequence = batch.sequence
        for later in behind:
            later.seal(self._producer, sequence)
            sequence = later.next_sequence
        self._sequence = sequence
        self._fail_round(reason)
        self._schedule_flush()

    # -- time ----------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Called about every second."""
        if self.loss is not None or self._producer is None:
            return
        now_s, limits = self._loop.time(), self._limits
        if now_s - self._stored_s >= limits.stored_within_s:
            # They are certainly not stored. The fate of those that were sent is not known.
            self._waiting.fail_older(now_s - limits.stored_within_s, self._failure or "")
        if now_s - self._stored_s >= limits.heartbeat_s:
            self.probe()
        # Repeated before the new epoch is used, a renewal would return the same epoch again.
        is_renewed = self._next_producer is not None or self._is_renewing
        if now_s - self._renewed_s >= limits.renewal_s and not is_renewed:
            self._is_renewing = True
            self._start(self._renew(self._producer))

    def probe(self) -> None:
        """Finds out whether the partition is still ours, by a claim. Appends that are under way find it out as well."""
        if self.is_idle:
            self._waiting.put_first(self._claim_batch())
            self._schedule_flush()

    async def _renew(self, current: Producer) -> None:
        """Appends go on with the current epoch meanwhile, which is valid until the first batch with a higher one."""
        try:
            renewed = await init_producer(self._cluster, self.name, current)
        except Fenced:
            # The answer to a claim tells whether another gateway has claimed the partition. If not, a request of our
            # own, whose connection was lost, may have been processed late.
            self._renewed_s = self._loop.time()
            self.probe()
        except KafkaRefused as error:
            log_event(logger, "producer not renewed", logging.ERROR, partition=self.name, error=str(error))
            self._renewed_s += 0.1 * self._limits.renewal_s
        else:
            # With an epoch that is in use, sequence numbers must not start over: batches would pass for duplicates.
            assert renewed != self._producer, "a renewal returns a new epoch"
            self._next_producer = renewed
            self._renewed_s = self._loop.time()
            self._schedule_flush()
        finally:
            self._is_renewing = False

    # -- the end -------------------------------------------------------------------------------------------------------

    async def close(self, timeout_s: float) -> None:
        """Waits until everything is stored, at most `timeout_s`."""
        if self.loss is None and (self._sent or self._waiting):
            self._emptied = self._loop.create_future()
            await asyncio.wait([self._emptied], timeout=timeout_s)
        self.lose(Loss.CLOSED, "the gateway stops")

    def lose(self, loss: Loss, reason: str) -> None:
        """Nothing is written any more, and all who wait get NOT_COORDINATOR."""
        if self.loss is not None:
            return
        self.loss, self._failure = loss, reason
        self._is_round_open = False
        if loss is not Loss.CLOSED:
            self._on_lost(loss, reason)
        error = self._lost_error()
        for batch in (*self._sent, *self._waiting.clear()):
            batch.fail(error)
        self._sent.clear()
        self._link.close()
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        if self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    def _lost_error(self) -> GroupLogError:
        return GroupLogError(ErrorCode.NOT_COORDINATOR, f"partition {self.name} is lost: {self._failure}")

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
