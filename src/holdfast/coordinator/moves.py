"""How many partitions changed hands, for the ledger. One of the places that may look inside an assignment."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.wire.consumer_protocol import decode_assignment
from holdfast.wire.errors import WireError


def moved_partitions(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> int | None:
    """Partitions that had an owner and have another now; None if the bytes are not the consumer protocol's."""
    try:
        old, new = _owners(before), _owners(after)
    except WireError:
        return None
    return sum(1 for partition, owner in new.items() if old.get(partition, owner) != owner)


def _owners(assignments: Mapping[str, bytes]) -> dict[tuple[str, int], str]:
    owners: dict[tuple[str, int], str] = {}
    for member_id, data in assignments.items():
        if not data:
            continue
        for topic in decode_assignment(data).assigned_partitions:
            for partition in topic.partitions:
                owners[topic.topic, partition] = member_id
    return owners
