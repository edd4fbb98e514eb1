"""The record of what a group has beyond Kafka (`group_extensions`), with changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from holdfast.coordinator.classic.group import Group
from holdfast.coordinator.runtime.effects import Record
from holdfast.wire.group_records import ExtensionsKey


def extensions_record(group: Group, **changes: Any) -> tuple[Record, ...]:
    """The record of the extensions with these changes, if there is anything to store."""
    value = replace(group.extensions, **changes).record()
    if value is None and not group.stored.has_extensions_record:
        return ()
    return ((ExtensionsKey(group.id), value),)


def in_generation_change(group: Group, *members: str) -> tuple[Record, ...]:
    """The record by which these members' assignments change within the generation, and the epoch rises."""
    extensions = group.extensions
    same = extensions.generation == group.generation
    owners = {member.id for member in (*group.ext.former_owners, *group.members)}
    before = [member_id for member_id in extensions.changed_members if same and member_id in owners]
    return extensions_record(
        group,
        generation=group.generation,
        in_generation_changes=(extensions.in_generation_changes if same else 0) + 1,
        changed_members=tuple(dict.fromkeys((*before, *members))),
        unassigned_on_purpose=unassigned_in_generation(group),
    )


def record_of_unassigned(group: Group, topics: Mapping[str, int]) -> tuple[Record, ...]:
    """The record that belongs to the assignment of a generation, if it left partitions of topics unassigned."""
    if not topics:
        return ()  # the record of another generation means nothing in this one
    return extensions_record(
        group, generation=group.generation, in_generation_changes=0, changed_members=(), unassigned_on_purpose=topics
    )


def unassigned_in_generation(group: Group) -> Mapping[str, int]:
    """Topics with partitions that the leader of this generation did not assign, and how many it knew of."""
    extensions = group.extensions
    return extensions.unassigned_on_purpose if extensions.generation == group.generation else {}
