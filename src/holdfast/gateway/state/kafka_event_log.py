"""The event log in Kafka: the topic `__group_ledger`. No reply waits for it, and no group depends on it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

from holdfast.broker.groups.event_log import BATCH_BYTES, MAX_PENDING
from holdfast.coordinator.events.group_event import GroupEvent
from holdfast.gateway.kafka.errors import KafkaRefused, KafkaUnreachable
from holdfast.gateway.state.append_queue import SEQUENCES
from holdfast.gateway.state.codes import error_name
from holdfast.gateway.state.ports import Cluster
from holdfast.gateway.state.produce import (
    OTHER_SEQUENCE,
    REJECTED,
    STORED,
    answered_within_s,
    partition_response,
    produce_request,
)
from holdfast.gateway.state.producer import FENCED, NOBODY, Producer, pauses
from holdfast.gateway.state.topic import StateTopic
from holdfast.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.records import Record, encode_batch

logger = logging.getLogger(__name__)

CLOSED_WITHIN_S: Final = 5.0
_TIMEOUT_S: Final = 30.0
_OTHER_PRODUCER: Final = OTHER_SEQUENCE | FENCED
"""Kafka has forgotten the producer, which happens after a day without events."""


class KafkaEventLog:
    """One batch is in flight. Events that wait are bounded, and the oldest are dropped first."""

    def __init__(self, cluster: Cluster, topic: StateTopic) -> None:
        self._cluster, self._topic = cluster, topic
        self._pending: deque[tuple[GroupEvent, int]] = deque()
        self._in_flight = self._dropped = 0
        self._producer = NOBODY
        self._sequence = 0
        self._sending: asyncio.Task[None] | None = None

    def write(self, events: list[GroupEvent], now_ms: int) -> None:
        """Takes the events. They are sent after the replies of this iteration of the event loop."""
        self._pending.extend((event, now_ms) for event in events)
        excess = len(self._pending) - MAX_PENDING
        if excess > 0:
            self._drop_oldest(excess)
        if self._pending and self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send_pending())
            self._sending.add_done_callback(self._sent)

    async def close(self) -> None:
        """Sends what is pending, if Kafka takes it soon."""
        sending = self._sending
        if sending is not None:
            await asyncio.wait([sending], timeout=CLOSED_WITHIN_S)
            sending.cancel()
        left = len(self._pending) + self._in_flight
        if left:
            logger.error("%d group events are not stored: the gateway stops", left)

    def _drop_oldest(self, count: int) -> None:
        for _ in range(count):
            self._pending.popleft()
        if not self._dropped:  # Kafka may be away for an hour
            logger.error("group events are not stored: Kafka does not take them, and only %d are kept", MAX_PENDING)
        self._dropped += count

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("group events are not stored", exc_info=error)

    async def _send_pending(self) -> None:
        while self._pending:
            records = self._next_batch()
            self._in_flight = len(records)
            await self._store(records)
            self._in_flight = 0
            if self._dropped:
                logger.error("%d group events were not stored: Kafka did not take them in time", self._dropped)
                self._dropped = 0

    def _next_batch(self) -> list[Record]:
        """As many of the pending events as one batch can hold."""
        records: list[Record] = []
        size = 0
        while self._pending and size < BATCH_BYTES:
            event, at_ms = self._pending.popleft()
            record = Record(len(records), at_ms, event.group_id.encode(), event.to_json())
            records.append(record)
            size += len(record.key or b"") + len(record.value or b"")
        return records

    async def _store(self, records: list[Record]) -> None:
        """Until the batch is stored. A repeated one is recognized by its sequence number."""
        pause = pauses()
        refresh = False
        while True:
            try:
                code = await self._produce(records, refresh=refresh)
            except (KafkaUnreachable, KafkaRefused) as error:
                logger.debug("group events wait: %s", error)
            else:
                if code in STORED:
                    self._sequence = (self._sequence + len(records)) % SEQUENCES
                    return
                if code in REJECTED:
                    logger.error("%d group events are not stored: Kafka answers %s", len(records), error_name(code))
                    return
                if code in _OTHER_PRODUCER:
                    self._producer = NOBODY
            refresh = True
            await asyncio.sleep(next(pause))

    async def _produce(self, records: list[Record], *, refresh: bool) -> int:
        if self._producer is NOBODY:
            self._producer, self._sequence = await self._new_producer(), 0
        (producer_id, epoch), name = self._producer, self._topic.name
        batch = encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=self._sequence)
        leader = await self._cluster.leader_of(name, 0, refresh=refresh)
        request = produce_request(self._topic, 0, batch, _TIMEOUT_S)
        response = await self._cluster.ask(leader, request, timeout_s=answered_within_s(_TIMEOUT_S))
        return partition_response(response).error_code

    async def _new_producer(self) -> Producer:
        response: InitProducerIdResponse = await self._cluster.ask_any(InitProducerIdRequest(None, 0))
        if response.error_code != ErrorCode.NONE:
            raise KafkaUnreachable(f"Kafka answers {error_name(response.error_code)} to InitProducerId")
        return Producer(response.producer_id, response.producer_epoch)
