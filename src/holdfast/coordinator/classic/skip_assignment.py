"""Which clients can lead a generation that has its assignment already (KIP-814).

Such a leader has to skip the assignment and only watch the topics. Not every client that supports JoinGroup v9 does:
franz-go rejoins if the assignment is not the one that it would have made. Clients that are not known to skip it are
answered as Kafka answers below v9, as followers, and the coordinator watches the topics: docs/decisions/0017.
"""

from __future__ import annotations

from typing import Final

from holdfast.coordinator.classic.group import CONSUMER, Group
from holdfast.coordinator.classic.member import Client
from holdfast.coordinator.classic.responses import FIRST_WITH_SKIP_ASSIGNMENT

SKIP_ASSIGNMENT_CLIENTS: Final = frozenset({"apache-kafka-java", "holdfast"})
"""As they name their software in ApiVersions."""


def supports_skip_assignment(group: Group, client: Client, api_version: int) -> bool:
    """Whether a client that joins with this version gets SkipAssignment."""
    if api_version < FIRST_WITH_SKIP_ASSIGNMENT:
        return False
    # Of other types the coordinator knows no topics that it could watch.
    return client.software in SKIP_ASSIGNMENT_CLIENTS or group.protocol_type != CONSUMER
