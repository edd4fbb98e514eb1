"""The producer of a partition of the group log: the id and the epoch that fence every earlier writer.

Each partition has a `transactional.id`, but there are no transactions. InitProducerId gives a higher epoch each time,
and once the leader of the partition has a batch with that epoch, it rejects batches with a lower one. So the writer
appends a claim first. Whatever an earlier writer stored lies before the claim, and is read by the new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final, NamedTuple

from holdfast.gateway.kafka.errors import KafkaRefused, KafkaUnreachable
from holdfast.gateway.state.codes import error_name, known_code
from holdfast.gateway.state.ports import Cluster
from holdfast.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from holdfast.wire.error_codes import ErrorCode

TRANSACTION: Final = 1
"""The type of a transaction coordinator in FindCoordinator."""
HIGHEST_EPOCH: Final = (1 << 15) - 1
"""Kafka never assigns it to a producer: at 32,766 the next InitProducerId returns another producer id."""

_TRANSACTION_TIMEOUT_MS: Final = 60_000
"""Required, and without meaning here."""
_SHORTEST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 1.0

_TRANSIENT: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
"""Answers to a writer whose partition another one has claimed."""


class Producer(NamedTuple):
    id: int
    epoch: int


NOBODY: Final = Producer(-1, -1)
"""In a request, a producer without an id."""


class Fenced(Exception):
    """Another writer has claimed the partition. Asking again would take it back, so nobody may."""


def pauses() -> Iterator[float]:
    """Between attempts, in seconds: short ones at first."""
    pause_s = _SHORTEST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


async def init_producer(cluster: Cluster, transactional_id: str, current: Producer | None = None) -> Producer:
    """A producer whose epoch is higher than all before.

    With `current`, it is a compare-and-set (KIP-360): Fenced if another writer has come in between. It can be repeated,
    because Kafka remembers the epoch before the current one. Waits while Kafka cannot be reached. Raises KafkaRefused.
    """
    expected = NOBODY if current is None else current
    request = InitProducerIdRequest(transactional_id, _TRANSACTION_TIMEOUT_MS, *expected)
    refresh, pause = False, pauses()
    while True:
        try:
            coordinator = await cluster.coordinator_of(transactional_id, TRANSACTION, refresh=refresh)
            response: InitProducerIdResponse = await cluster.ask(coordinator, request)
        except KafkaUnreachable:
            pass
        except KafkaRefused as error:
            if error.code not in _TRANSIENT:
                raise
        else:
            if response.error_code == ErrorCode.NONE:
                return Producer(response.producer_id, response.producer_epoch)
            if response.error_code in FENCED:
                raise Fenced(f"{transactional_id}: Kafka answers {ErrorCode(response.error_code).name}")
            if response.error_code not in _TRANSIENT:
                raise KafkaRefused(
                    f"Kafka answers {error_name(response.error_code)} to InitProducerId for the transactional.id "
                    f"{transactional_id}; the gateway's user needs the operations Describe and Write on it",
                    known_code(response.error_code),
                )
        refresh = True
        await asyncio.sleep(next(pause))
