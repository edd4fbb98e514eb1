"""ListOffsets: the start and end of partitions, and offsets by time, from the leaders of the partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.errors import ConnectionFailed, HoldfastError, TopicError, error_code
from holdfast.types import TopicPartition
from holdfast.wire.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

EARLIEST: Final = -2
LATEST: Final = -1
_READ_COMMITTED: Final = 1
_CONSUMER_REPLICA_ID: Final = -1


def list_offsets(
    cluster: ClusterClient, wanted: Mapping[TopicPartition, int], deadline: float, *, read_committed: bool = False
) -> dict[TopicPartition, int]:
    """The offset of each partition at its time in milliseconds, or at EARLIEST or LATEST; -1 if the time is after the
    last record. Partitions without a leader, or with a new one, are requested again until the deadline."""
    found: dict[TopicPartition, int] = {}
    while True:
        missing = {where: when for where, when in wanted.items() if where not in found}
        if not missing:
            return found
        trouble: HoldfastError | None = None
        for leader, asked in _by_leader(cluster, missing, deadline).items():
            try:
                trouble = _request_offsets(cluster, leader, asked, deadline, read_committed, found) or trouble
            except ConnectionFailed as failure:
                trouble = failure
        if trouble is None and len(found) < len(wanted):
            trouble = TopicError("a broker left partitions out when it was asked for offsets", retriable=True)
        if trouble is not None and not (trouble.retriable and cluster.pause_before_retry(deadline)):
            raise trouble


def _by_leader(
    cluster: ClusterClient, wanted: Mapping[TopicPartition, int], deadline: float
) -> dict[int, dict[TopicPartition, int]]:
    metadata = cluster.metadata({topic for topic, _ in wanted}, deadline)
    leaders: dict[int, dict[TopicPartition, int]] = {}
    for (topic, partition), when in wanted.items():
        of = metadata.topic(topic).leaders
        if partition >= len(of):
            message = f"topic {topic!r} has {len(of)} partitions, and there is no number {partition}"
            raise TopicError(message, retriable=True)  # a broker's metadata may lag behind a topic's growth
        leaders.setdefault(of[partition], {})[topic, partition] = when
    return leaders


def _request_offsets(
    cluster: ClusterClient,
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
        _CONSUMER_REPLICA_ID,
        _READ_COMMITTED if read_committed else 0,
        [ListOffsetsTopic(name, entries) for name, entries in topics.items()],
    )
    response = cluster.node(leader, deadline).ask(request, deadline)
    trouble: HoldfastError | None = None
    for answered in response.topics:
        for entry in answered.partitions:
            if entry.error_code == 0:
                found[answered.name, entry.partition_index] = entry.offset
            else:
                code = error_code(entry.error_code)
                trouble = TopicError(f"offsets of {answered.name}-{entry.partition_index}: {code.name}", code=code)
    return trouble
