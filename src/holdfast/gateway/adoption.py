"""Takes a group over from Kafka's own coordinator.

The name of the group is held first. From then on no client can join the group in Kafka or commit offsets there, so the
offsets that are read afterwards are the last ones. (There is one exception: a transactional producer that sends no
member id, as Kafka allows for old producers.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from holdfast.broker.util.slices import SliceScheduler
from holdfast.gateway.group_names import GroupNames
from holdfast.gateway.kafka_groups import KafkaGroups
from holdfast.gateway.kafka_offsets import KafkaOffsets
from holdfast.gateway.upstream import Upstream
from holdfast.types import TopicPartition
from holdfast.wire.group_records import OffsetCommitValue


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Adoption:
    def __init__(
        self,
        cluster: Upstream,
        names: GroupNames,
        slices: SliceScheduler | None = None,
        *,
        now_ms: Callable[[], int] = _wall_clock_ms,
    ) -> None:
        self._names = names
        self._slices = slices or SliceScheduler()
        self._groups = KafkaGroups(cluster)
        self._offsets = KafkaOffsets(cluster, self._slices)
        self._now_ms = now_ms

    async def adopt(self, group_id: str) -> Mapping[TopicPartition, OffsetCommitValue]:
        """Holds the name of the group and returns its offsets in Kafka; empty for a new group.

        Raises NameInUse if the group has members in Kafka, KafkaUnreachable or KafkaRefused. After the last two, the
        name may be held, and the group must not be served before another call has succeeded.
        """
        is_known = (await self._groups.describe(group_id)).group_state != "Dead"
        await self._names.hold(group_id)
        if is_known:
            await self._offsets.wait_for_transactions(group_id)
        committed = await self._offsets.read(group_id)
        if committed and not is_known:  # a group of the newer protocols, which cannot be described
            await self._offsets.wait_for_transactions(group_id)
            committed = await self._offsets.read(group_id)
        now_ms = self._now_ms()
        return {
            partition: OffsetCommitValue(found.offset, found.leader_epoch, found.metadata, now_ms)
            async for partition, found in self._slices.iterate(committed.items())
        }
