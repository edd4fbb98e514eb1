"""Whether the members' assignments cover every partition of what they subscribe to.

A leader that came back and was told to skip the assignment (KIP-814) knows what the topics are now, but not what they
were when the assignment was made: partitions may have come while it was down, and Kafka's own client would not notice.
It asks the coordinator for everybody's assignment and looks.

So does one whose cooperative assignment has left partitions to be handed over: the member that has to give them up may
have been killed before it heard of that. As a static member it comes back to a seat without them, has nothing to give
up, and nobody would join again.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.assignors.interface import Cluster
from holdfast.wire.consumer_protocol import decode_assignment
from holdfast.wire.errors import WireError


def uncovered(cluster: Cluster, topics: Iterable[str], assignments: Iterable[bytes]) -> list[tuple[str, int]]:
    """The partitions of these topics that nobody has. What a member has that cannot be read counts as nothing."""
    assigned: set[tuple[str, int]] = set()
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
