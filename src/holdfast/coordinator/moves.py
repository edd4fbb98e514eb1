"""How many partitions changed hands, for the ledger. One of the places that may look inside an assignment."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.wire.consumer_protocol import decode_assignment
from holdfast.wire.errors import WireError

Partitions = set[tuple[str, int]]


def moved_partitions(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> int | None:
    """Partitions that a member had and has no longer; None if the bytes are not the consumer protocol's.

    Told from the side of those who give up, because those who take are not always there: a partition of a cooperative
    group is nobody's in the generation in which it moves (KIP-429), and one that has several owners moves if one of
    them is another. Of a member that is gone from the group nothing moves: somebody had to take over what it had.
    """
    try:
        moved: Partitions = set()
        for member_id, given in after.items():
            moved |= partitions_of(before.get(member_id, b"")) - partitions_of(given)
    except WireError:
        return None
    return len(moved)


def partitions_of(assignment: bytes) -> Partitions:
    """WireError if the bytes are not the consumer protocol's."""
    if not assignment:
        return set()
    decoded = decode_assignment(assignment)
    return {(topic.topic, partition) for topic in decoded.assigned_partitions for partition in topic.partitions}
