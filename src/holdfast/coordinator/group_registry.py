"""The groups of a coordinator: which exist, which are still being loaded, and which another broker serves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.coordinator.classic.group import Group
from holdfast.coordinator.classic.state_machine import EMPTY
from holdfast.coordinator.runtime.effects import Record
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import (
    ExtensionsKey,
    GenerationKey,
    GroupMetadataKey,
    GroupRecordValue,
    HighestGenerationKey,
    HighestGenerationValue,
    OffsetCommitKey,
    partition_for,
)
from holdfast.wire.offset_records import OffsetRecords

GroupKey = OffsetCommitKey | GroupMetadataKey | GenerationKey | ExtensionsKey
"""The key of a record of one group."""


class GroupRegistry:
    def __init__(self, partition_count: int) -> None:
        self.groups: dict[str, Group] = {}
        self.highest_deleted_generation = 0
        """Of any deleted group: a new group starts above it, so that no commit of a member of the old one is taken for
        one of the new group."""
        self._partition_count = partition_count
        self._loading: set[int] = set()
        self._loading_groups: dict[int, set[str]] = {}
        """The groups that are being loaded, by partition."""
        self._lost: set[int] = set()
        """Partitions that another broker serves."""

    # -- lookup --------------------------------------------------------------------------------------------------------

    def find(
        self,
        group_id: str,
        *,
        loading: ErrorCode = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        needs_id: bool = True,
    ) -> Group | ErrorCode | None:
        """The group, None if it does not exist, or the error of an id that is invalid, loading or served elsewhere.

        A group that exists is not in a lost partition, so it is found without asking for its partition.
        """
        if needs_id and not group_id:
            return ErrorCode.INVALID_GROUP_ID
        if self._loading and self.is_loading(group_id):
            return loading
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.NOT_COORDINATOR if self._lost and self._is_lost(group_id) else None
        return None if group.state is EMPTY and group.is_only_configured else group

    def _is_lost(self, group_id: str) -> bool:
        return partition_for(group_id, self._partition_count) in self._lost

    def get_or_create(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id, generation=self.highest_deleted_generation)
        return group

    def drop_if_unused(self, group: Group) -> None:
        """The command was rejected, or what was last known of the group has ended."""
        if group.is_unused and self.groups.get(group.id) is group:
            del self.groups[group.id]

    # -- loading -------------------------------------------------------------------------------------------------------

    def load_started(self, partitions: Iterable[int]) -> None:
        self._loading.update(partitions)
        self._lost.difference_update(partitions)

    @property
    def is_anything_loading(self) -> bool:
        return bool(self._loading)

    @property
    def is_anything_lost(self) -> bool:
        return bool(self._lost)

    def is_loading(self, group_id: str) -> bool:
        return bool(self._loading) and partition_for(group_id, self._partition_count) in self._loading

    def replay(self, records: Sequence[Record]) -> None:
        """Applies the next records of the log."""
        if type(records) is OffsetRecords:
            group = self.groups.get(records.group_id) or self._create_loading(records.group_id)
            group.replay(records)
            return
        for key, value in records:
            if not isinstance(key, HighestGenerationKey):
                self._replay(key, value)
            elif isinstance(value, HighestGenerationValue):
                self.highest_deleted_generation = max(self.highest_deleted_generation, value.generation)

    def _replay(self, key: GroupKey, value: GroupRecordValue | None) -> None:
        group = self.groups.get(key.group)
        if group is None:
            if value is None:
                return
            group = self._create_loading(key.group)
        if isinstance(key, GroupMetadataKey) and value is None:
            # The end of the group: its earlier records must not count for a later group of the same name.
            self.groups[key.group] = group.successor()
            return
        group.replay(((key, value),))

    def _create_loading(self, group_id: str) -> Group:
        group = self.groups[group_id] = Group(group_id)
        self._loading_groups.setdefault(partition_for(group_id, self._partition_count), set()).add(group_id)
        return group

    def load_finished(self, partition: int) -> list[Group]:
        """The groups of the partition that are stored."""
        self._loading.discard(partition)
        loaded: list[Group] = []
        for group_id in self._loading_groups.pop(partition, ()):
            group = self.groups[group_id]
            if not group.is_stored:
                del self.groups[group_id]
                continue
            if not (group.stored.has_record or group.stored.has_generation_record):
                # Only offsets, perhaps committed after a group of this name was deleted: as a new group.
                group.start_above(self.highest_deleted_generation)
            loaded.append(group)
        return loaded

    def unload(self, partitions: Iterable[int]) -> list[Group]:
        """Forgets the groups of the partitions, which are lost until they are loaded again. Returns these groups."""
        lost = set(partitions)
        self._lost |= lost
        self._loading -= lost
        for partition in lost:
            self._loading_groups.pop(partition, None)
        unloaded = [group for group in self.groups.values() if partition_for(group.id, self._partition_count) in lost]
        for group in unloaded:
            del self.groups[group.id]
        return unloaded
