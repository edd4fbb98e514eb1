"""Where partitions begin and end, and which offset belongs to a time: asked of the brokers that lead them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from holdfast.client.errors import ConnectionFailed, HoldfastError, TopicError, error_code
from holdfast.client.network import Network
from holdfast.wire.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

EARLIEST: Final = -2
LATEST: Final = -1
_READ_COMMITTED: Final = 1
_A_CLIENT: Final = -1

TopicPartition = tuple[str, int]


def list_offsets(
    network: Network, wanted: Mapping[TopicPartition, int], deadline: float, *, read_committed: bool = False
) -> dict[TopicPartition, int]:
    """The offset of each partition at its time in milliseconds, or at EARLIEST or LATEST; -1 where the time is past
    the last record. Partitions that have no leader, or another one, are asked for again until the deadline."""
    found: dict[TopicPartition, int] = {}
    while True:
        missing = {where: when for where, when in wanted.items() if where not in found}
        if not missing:
            return found
        trouble: HoldfastError | None = None
        for leader, asked in _by_leader(network, missing, deadline).items():
            try:
                trouble = _ask(network, leader, asked, deadline, read_committed, found) or trouble
            except ConnectionFailed as failure:
                trouble = failure
        if trouble is None and len(found) < len(wanted):
            trouble = TopicError("a broker left partitions out when it was asked for offsets", retriable=True)
        if trouble is not None:
            if not trouble.retriable or time.monotonic() + network.settings.retry_backoff_s >= deadline:
                raise trouble
            network.pause(network.settings.retry_backoff_s)


def _by_leader(
    network: Network, wanted: Mapping[TopicPartition, int], deadline: float
) -> dict[int, dict[TopicPartition, int]]:
    metadata = network.metadata({topic for topic, _ in wanted}, deadline)
    leaders: dict[int, dict[TopicPartition, int]] = {}
    for (topic, partition), when in wanted.items():
        of = metadata.topic(topic).leaders
        if partition >= len(of):
            said = f"topic {topic!r} has {len(of)} partitions, and there is no number {partition}"
            raise TopicError(said, retriable=True)  # a broker may be late to hear that a topic has grown
        leaders.setdefault(of[partition], {})[topic, partition] = when
    return leaders


def _ask(
    network: Network,
    leader: int,
    asked: Mapping[TopicPartition, int],
    deadline: float,
    read_committed: bool,
    found: dict[TopicPartition, int],
) -> HoldfastError | None:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, partition), when in asked.items():
        topics.setdefault(topic, []).append(ListOffsetsPartition(partition, timestamp=when))
    request = ListOffsetsRequest(
        _A_CLIENT,
        _READ_COMMITTED if read_committed else 0,
        [ListOffsetsTopic(name, entries) for name, entries in topics.items()],
    )
    response = network.node(leader, deadline).ask(request, deadline)
    trouble: HoldfastError | None = None
    for answered in response.topics:
        for entry in answered.partitions:
            if entry.error_code == 0:
                found[answered.name, entry.partition_index] = entry.offset
            else:
                code = error_code(entry.error_code)
                trouble = TopicError(f"offsets of {answered.name}-{entry.partition_index}: {code.name}", code=code)
    return trouble
