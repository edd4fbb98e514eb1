"""Finds the partitions of the subscribed topics that no member owns.

A restarted leader that skips the assignment (KIP-814) knows the current topics, but not those at the time of the
assignment. Partitions may have been added while it was down, and Kafka's own client would not notice. The leader
therefore requests the assignments of all members from the coordinator and checks them.

A leader whose cooperative assignment left partitions unassigned until they are revoked does the same. The member that
has to revoke them may have been killed before it got its assignment. As a static member it returns to an assignment
without them, has nothing to revoke, and no member would rejoin.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.assignors.interface import Cluster
from holdfast.types import TopicPartition
from holdfast.wire.consumer_protocol import decode_assignment
from holdfast.wire.errors import WireError


def unassigned_partitions(
    cluster: Cluster, topics: Iterable[str], assignments: Iterable[bytes]
) -> list[TopicPartition]:
    """An unreadable assignment counts as empty."""
    assigned: set[TopicPartition] = set()
    for assignment in assignments:
        try:
            decoded = decode_assignment(assignment)
        except WireError:
            continue
        assigned.update((entry.topic, number) for entry in decoded.assigned_partitions for number in entry.partitions)
    return [
        (topic, number)
        for topic in sorted(topics)
        for number in range(cluster.partitions.get(topic, 0))
        if (topic, number) not in assigned
    ]
