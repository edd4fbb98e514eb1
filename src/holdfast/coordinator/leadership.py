"""Who may be told that it leads an assignment that is already made (KIP-814).

Such a leader has to skip the assignment and only watch the topics. Not every client that speaks JoinGroup v9 does:
franz-go rejoins if the assignment is not the one that it would have made. Any but those that are known to honour it is
answered as Kafka answers below v9, as a follower, and the coordinator watches the topics: docs/decisions/0017.
"""

from __future__ import annotations

from typing import Final

from holdfast.coordinator.answers import FIRST_WITH_SKIP_ASSIGNMENT
from holdfast.coordinator.group import CONSUMER, Group
from holdfast.coordinator.members import Client

HONOUR_SKIP_ASSIGNMENT: Final = frozenset({"apache-kafka-java", "holdfast"})
"""As they name their software in ApiVersions."""


def can_skip(group: Group, client: Client, api_version: int) -> bool:
    """Whether a client that joins with this version is told to skip the assignment."""
    if api_version < FIRST_WITH_SKIP_ASSIGNMENT:
        return False
    # Of other types the coordinator knows no topics that it could watch.
    return client.software in HONOUR_SKIP_ASSIGNMENT or group.protocol_type != CONSUMER
