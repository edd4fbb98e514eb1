"""The committed offsets of a group in Kafka's own coordinator."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, NamedTuple

from holdfast.broker.storage.topics import OFFSETS_TOPIC
from holdfast.broker.structured_log import log_event
from holdfast.broker.util.slices import SliceScheduler
from holdfast.gateway.kafka.errors import KafkaRefused, KafkaUnreachable
from holdfast.gateway.kafka_groups import KafkaGroups, refused
from holdfast.gateway.upstream import Upstream
from holdfast.types import TopicPartition
from holdfast.wire.apis.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from holdfast.wire.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from holdfast.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import partition_for

logger = logging.getLogger(__name__)

LAST_WITH_NAMES: Final = 9
"""The last version of OffsetFetch and OffsetCommit that has topic names. Later ones have ids."""
TRANSACTION_PATIENCE_S: Final = 30.0

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
_LATEST: Final = -1
_CLIENT: Final = -1
"""The replica id of a client."""
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
_LAST_LIST_OFFSETS: Final = 9
_NOT_ALLOWED: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str


class KafkaOffsets:
    def __init__(self, cluster: Upstream, slices: SliceScheduler | None = None) -> None:
        self._cluster = cluster
        self._groups = KafkaGroups(cluster)
        self._slices = slices or SliceScheduler()
        self._log_partitions = 0
        self._is_warned = False

    async def read(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """All offsets of a group. Waits until transactions that commit such offsets are complete.

        Raises KafkaUnreachable if they are not complete in time, or KafkaRefused.
        """
        loop = asyncio.get_running_loop()
        deadline, pause_s = loop.time() + TRANSACTION_PATIENCE_S, _FIRST_PAUSE_S
        while (found := await self._read(group_id)) is None:
            if loop.time() > deadline:
                raise _open_transaction(group_id)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return found

    async def wait_for_transactions(self, group_id: str) -> None:
        """Waits until the transactions that may have committed offsets of the group before this call are complete.

        OffsetFetch of all offsets does not list a partition whose only offset belongs to an open transaction. Such an
        offset is before the end of the group's partition of `__consumer_offsets`, and after its last stable offset.
        """
        loop = asyncio.get_running_loop()
        deadline, pause_s = loop.time() + TRANSACTION_PATIENCE_S, _FIRST_PAUSE_S
        try:
            end = await self._end_of_log(group_id, _READ_UNCOMMITTED)
            while await self._end_of_log(group_id, _READ_COMMITTED) < end:
                if loop.time() > deadline:
                    raise _open_transaction(group_id)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        except KafkaRefused as failure:
            if failure.code not in _NOT_ALLOWED:
                raise
            self._warn(failure)

    async def _read(self, group_id: str) -> dict[TopicPartition, CommittedOffset] | None:
        """None if an open transaction may change an offset."""
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)], require_stable=True
        )
        response: OffsetFetchResponse = await self._groups.ask(
            group_id, request, lambda one: int(one.groups[0].error_code), limit=(OFFSET_FETCH, LAST_WITH_NAMES)
        )
        group = response.groups[0]
        if group.error_code != ErrorCode.NONE:
            raise refused(f"OffsetFetch of group {group_id!r}", group.error_code)
        found: dict[TopicPartition, CommittedOffset] = {}
        all_partitions = ((topic.name, one) for topic in group.topics for one in topic.partitions)
        async for name, one in self._slices.iterate(all_partitions):
            if one.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                return None
            if one.error_code != ErrorCode.NONE:
                raise refused(f"OffsetFetch of group {group_id!r} for {name}-{one.partition_index}", one.error_code)
            if one.committed_offset >= 0:  # a negative offset means none
                found[name, one.partition_index] = CommittedOffset(
                    one.committed_offset, one.committed_leader_epoch, one.metadata or ""
                )
        return found

    async def _end_of_log(self, group_id: str, isolation_level: int) -> int:
        """The end of the group's partition of `__consumer_offsets`, whose leader is the group's coordinator."""
        partition = partition_for(group_id, await self._partition_count())
        topic = ListOffsetsTopic(OFFSETS_TOPIC, [ListOffsetsPartition(partition, timestamp=_LATEST)])
        request = ListOffsetsRequest(replica_id=_CLIENT, isolation_level=isolation_level, topics=[topic])
        response: ListOffsetsResponse = await self._groups.ask(
            group_id, request, lambda _: ErrorCode.NONE, limit=(LIST_OFFSETS, _LAST_LIST_OFFSETS)
        )
        answer = response.topics[0].partitions[0]
        if answer.error_code in _NOT_ALLOWED:
            raise refused(f"ListOffsets of {OFFSETS_TOPIC}-{partition}", answer.error_code)
        if answer.error_code != ErrorCode.NONE:  # the leader has changed
            failure = refused(f"ListOffsets of {OFFSETS_TOPIC}-{partition}", answer.error_code)
            raise KafkaUnreachable(str(failure)) from failure
        return answer.offset

    async def _partition_count(self) -> int:
        """The number of partitions of `__consumer_offsets`. It does not change, because groups would lose theirs."""
        if self._log_partitions == 0:
            wanted = MetadataRequestTopic(name=OFFSETS_TOPIC)
            request = MetadataRequest(topics=[wanted], allow_auto_topic_creation=False)
            response: MetadataResponse = await self._cluster.ask_any(request)
            topic = response.topics[0]
            if topic.error_code in _NOT_ALLOWED:
                raise refused(f"Metadata of {OFFSETS_TOPIC}", topic.error_code)
            if topic.error_code != ErrorCode.NONE or not topic.partitions:
                raise KafkaUnreachable(f"Kafka's {OFFSETS_TOPIC} has no partitions yet")
            self._log_partitions = len(topic.partitions)
        return self._log_partitions

    def _warn(self, failure: KafkaRefused) -> None:
        if not self._is_warned:
            self._is_warned = True
            log_event(
                logger,
                "open transactions are not seen when a group is adopted: allow the gateway to describe "
                f"the topic {OFFSETS_TOPIC}",
                logging.WARNING,
                error=failure,
            )


def _open_transaction(group_id: str) -> KafkaUnreachable:
    return KafkaUnreachable(
        f"a transaction in Kafka may still commit offsets of group {group_id!r}, "
        f"and was not complete within {TRANSACTION_PATIENCE_S:.0f} s: the group can be adopted when it is"
    )
