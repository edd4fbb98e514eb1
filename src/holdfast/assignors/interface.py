"""The interface of an assignor: one small class that the leader of a group runs.

    class Everything(Assignor):
        name = "everything-to-the-first"

        def assign(self, cluster, subscriptions):
            first = min(subscriptions)
            assignments = {member: MemberAssignment({}) for member in subscriptions}
            every_partition = {topic: list(range(count)) for topic, count in cluster.partitions.items()}
            assignments[first] = MemberAssignment(every_partition)
            return assignments

An assignor belongs to one consumer. Keep its state in the instance, never in the class: two consumers of one process
that share state would both claim the partitions of one of them.

`on_assignment` is optional. If it is defined, every member calls it with its assignment: `on_assignment(self,
assignment)`, or `on_assignment(self, assignment, generation)` to get the generation, too (KIP-341).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

NO_GENERATION: Final = -1


class RebalanceProtocol(IntEnum):
    """What members do with their partitions before they rejoin. A consumer uses a protocol that all its assignors
    support."""

    EAGER = 0
    """Revoke all partitions, then join."""
    COOPERATIVE = 1
    """Keep all partitions, revoke those that the new assignment lacks, and rejoin (KIP-429)."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The topics that any member subscribes to, from the leader's metadata. A missing topic does not exist."""

    partitions: Mapping[str, int]
    """The number of partitions of each topic."""
    racks: Mapping[str, Sequence[frozenset[str]]] = field(default_factory=dict)
    """The racks of each partition's replicas, if known (KIP-881)."""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """The subscription of one member, with what the coordinator knows about the member."""

    topics: Collection[str]
    user_data: bytes | None = None
    owned: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The partitions that it still owns, by topic."""
    generation: int = NO_GENERATION
    """The generation in which it got them."""
    rack: str | None = None
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """The assignment of one member: partitions by topic, each list in order, without empty topics."""

    partitions: Mapping[str, Sequence[int]]
    user_data: bytes | None = None


class Assignor(ABC):
    """Assigns partitions. Subclass it, set a name that all members of the group use, and implement `assign`."""

    name: str
    """The protocol name by which members agree on an assignor."""
    protocol: RebalanceProtocol = RebalanceProtocol.EAGER
    allows_multiple_owners: bool = False
    """Whether a partition may be assigned to several members. Otherwise that is rejected as a mistake."""
    allows_unassigned: bool = False
    """Whether a subscribed partition may stay unassigned. Otherwise that is rejected as a mistake."""

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:  # noqa: ARG002
        """The user data that this member sends to the leader in addition to its topics."""
        return None

    @abstractmethod
    def assign(
        self, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]
    ) -> Mapping[str, MemberAssignment]:
        """By member id, with one entry for every member, even if it gets no partitions."""
