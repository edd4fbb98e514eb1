"""What the driver of the coordinator may ask about groups, outside of any request."""

from __future__ import annotations

from holdfast.coordinator.group_registry import GroupRegistry
from holdfast.wire.error_codes import ErrorCode


class GroupQueries:
    def __init__(self, registry: GroupRegistry) -> None:
        self._registry = registry
        self._groups = registry.groups

    @property
    def is_anything_loading(self) -> bool:
        return self._registry.is_anything_loading

    @property
    def is_anything_lost(self) -> bool:
        """Whether another broker serves some of the partitions."""
        return self._registry.is_anything_lost

    def is_unavailable(self, group_id: str) -> bool:
        """Whether the group is being loaded, or another broker serves it."""
        return isinstance(self._registry.find(group_id, needs_id=False), ErrorCode)

    def has_history(self, group_id: str) -> bool:
        """Whether the group exists here: it had members, or has offsets."""
        group = self._groups.get(group_id)
        return group is not None and group.has_history

    def has_members(self, group_id: str) -> bool:
        """Whether the group has members, or gave out an id for one that is about to join."""
        group = self._groups.get(group_id)
        return group is not None and bool(group.members.all_members or group.members.pending_member_ids)

    def group_ids(self) -> list[str]:
        """Of all groups that are loaded."""
        return list(self._groups)

    def committed_topics(self, group_id: str) -> set[str]:
        """The topics of which the group has committed offsets."""
        group = self._groups.get(group_id)
        return set() if group is None else {topic for topic, _ in group.stored.offsets}
