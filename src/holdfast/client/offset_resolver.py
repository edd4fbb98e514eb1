"""Resolves offsets to numbers: the beginning, the end, the committed offset, or a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

import confluent_kafka

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.offsets import EARLIEST, LATEST, list_offsets
from holdfast.types import TopicPartition

_ENDS: Final = {confluent_kafka.OFFSET_BEGINNING: EARLIEST, confluent_kafka.OFFSET_END: LATEST}

GroupOffsets = Callable[[Collection[TopicPartition], float], Mapping[TopicPartition, int]]


class OffsetResolver:
    def __init__(self, cluster: ClusterClient, group_offsets: GroupOffsets, *, read_committed: bool) -> None:
        self._cluster = cluster
        self._group_offsets = group_offsets
        self._read_committed = read_committed

    def resolve(self, wanted: Mapping[TopicPartition, int], deadline: float) -> dict[TopicPartition, int]:
        """Any other value is the committed offset (OFFSET_STORED, OFFSET_INVALID)."""
        offsets = {where: offset for where, offset in wanted.items() if offset >= 0}
        stored = [where for where, offset in wanted.items() if offset < 0 and offset not in _ENDS]
        if stored:
            offsets |= self._group_offsets(stored, deadline)
        ends = {where: _ENDS[offset] for where, offset in wanted.items() if offset in _ENDS}
        if ends:
            offsets |= self._list(ends, deadline)
        return offsets

    def watermarks(self, where: TopicPartition, deadline: float) -> tuple[int, int]:
        low = self._list({where: EARLIEST}, deadline)[where]
        return low, self._list({where: LATEST}, deadline)[where]

    def at_times(self, times_ms: Mapping[TopicPartition, int], deadline: float) -> dict[TopicPartition, int]:
        """The first offset at or after each time; OFFSET_END where there is none."""
        found = self._list(times_ms, deadline)
        return {where: found[where] if found[where] >= 0 else confluent_kafka.OFFSET_END for where in times_ms}

    def _list(self, wanted: Mapping[TopicPartition, int], deadline: float) -> dict[TopicPartition, int]:
        return list_offsets(self._cluster, wanted, deadline, read_committed=self._read_committed)
