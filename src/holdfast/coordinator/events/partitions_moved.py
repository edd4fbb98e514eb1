"""How many partitions changed their owner, for events. One of the modules that read assignments."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.wire.consumer_protocol import decode_assignment
from holdfast.wire.errors import WireError

Partitions = set[tuple[str, int]]


def moved_partitions(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> int | None:
    """Partitions that a member had and has no longer; None if the bytes are not the consumer protocol's.

    Counted at the former owners, because the new owner is not always known yet: in a cooperative group a partition has
    no owner in the generation in which it moves (KIP-429). A partition with several owners moves if one of them
    changes. The partitions of a removed member are not counted: another member had to take them over.
    """
    try:
        moved: Partitions = set()
        for member_id, given in after.items():
            moved |= partitions_of(before.get(member_id, b"")) - partitions_of(given)
    except WireError:
        return None
    return len(moved)


def changed_owner(before: Mapping[str, bytes], after: Mapping[str, bytes], gone: Mapping[str, bytes]) -> int | None:
    """Partitions that moved, and those of removed members that another member has now.

    `gone` are the assignments of members that were removed since the last assignment, by member id; of a member that is
    back under another id, by that one.
    """
    try:
        held = {member_id: partitions_of(given) for member_id, given in after.items()}
        changed: Partitions = set()
        for member_id, now in held.items():
            changed |= partitions_of(before.get(member_id, b"")) - now
        assigned: Partitions = set().union(*held.values())
        for member_id, had in gone.items():
            changed |= (partitions_of(had) - held.get(member_id, set())) & assigned
    except WireError:
        return None
    return len(changed)


def partition_count(assignment: bytes) -> int | None:
    """None if the bytes are not the consumer protocol's."""
    try:
        return len(partitions_of(assignment))
    except WireError:
        return None


def partitions_of(assignment: bytes) -> Partitions:
    """WireError if the bytes are not the consumer protocol's."""
    if not assignment:
        return set()
    decoded = decode_assignment(assignment)
    return {(topic.topic, partition) for topic in decoded.assigned_partitions for partition in topic.partitions}
