"""Earlier writers of a partition whose producer id is not that of the current one.

The epoch of a claim fences earlier writers with the same producer id. A `transactional.id` gets another producer id if
it was not used for `transactional.id.expiration.ms`, or if its epochs are used up. An earlier writer that still runs
would then not be fenced. So the new one appends a claim for each older producer id that it finds in the log, with the
highest epoch, which Kafka never assigns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from holdfast.gateway.kafka.errors import KafkaRefused, KafkaUnreachable
from holdfast.gateway.state.append_queue import idempotent_batch
from holdfast.gateway.state.claim import encoded_claim
from holdfast.gateway.state.ports import Cluster
from holdfast.gateway.state.produce import STORED, answered_within_s, partition_response, produce_request
from holdfast.gateway.state.producer import HIGHEST_EPOCH, Producer, pauses
from holdfast.gateway.state.topic import StateTopic
from holdfast.wire.batch import NO_PRODUCER_ID, BatchHeader
from holdfast.wire.error_codes import ErrorCode

_TIMEOUT_S: Final = 30.0


class OldProducers:
    """The producer ids in a log, other than the current one."""

    def __init__(self, current_id: int) -> None:
        self._ignored = {current_id, NO_PRODUCER_ID}
        self._found: set[int] = set()

    def add(self, headers: Iterable[BatchHeader]) -> None:
        for header in headers:
            if header.producer_id in self._ignored or header.is_control:
                continue
            if header.producer_epoch == HIGHEST_EPOCH:
                self._ignored.add(header.producer_id)
                self._found.discard(header.producer_id)
            else:
                self._found.add(header.producer_id)

    def take_unfenced(self) -> list[int]:
        """Those that may still write. They are returned once."""
        found = sorted(self._found)
        self._ignored |= self._found
        self._found.clear()
        return found


async def fence_producer(
    cluster: Cluster, topic: StateTopic, partition: int, producer_id: int, current: Producer, gateway_id: str
) -> int:
    """Appends a claim of the current producer, with which the leader rejects this producer id. Returns its offset.

    Waits while Kafka cannot be reached.
    """
    pause = pauses()
    sequence, refresh = 0, False
    record, now_ms = encoded_claim(current, gateway_id)
    while True:
        batch = idempotent_batch(record, 1, now_ms, Producer(producer_id, HIGHEST_EPOCH), sequence)
        try:
            leader = await cluster.leader_of(topic.name, partition, refresh=refresh)
            request = produce_request(topic, partition, batch, _TIMEOUT_S)
            answer = partition_response(await cluster.ask(leader, request, timeout_s=answered_within_s(_TIMEOUT_S)))
        except (KafkaUnreachable, KafkaRefused):
            pass
        else:
            if answer.error_code == ErrorCode.NONE:
                return answer.base_offset
            if answer.error_code in STORED:  # without its offset
                sequence += 1
        refresh = True
        await asyncio.sleep(next(pause))
