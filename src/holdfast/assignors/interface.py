"""What an assignor is: the leader's answer to "who gets what", as one small class.

    class Everything(Assignor):
        name = "everything-to-the-first"

        def assign(self, cluster, subscriptions):
            first = min(subscriptions)
            shares = {member: MemberAssignment({}) for member in subscriptions}
            shares[first] = MemberAssignment({topic: list(range(count)) for topic, count in cluster.partitions.items()})
            return shares

An assignor belongs to one consumer. What it remembers it remembers in the instance, never in the class: two consumers
of one process that shared their memory would both claim what only one of them has.

`on_assignment` is optional. Where it is defined, every member calls it with what it was given: `on_assignment(self,
assignment)`, or `on_assignment(self, assignment, generation)` for those who must know how fresh it is (KIP-341).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

NO_GENERATION: Final = -1


class RebalanceProtocol(IntEnum):
    """What members do with their partitions before they rejoin. A consumer does what all its assignors can."""

    EAGER = 0
    """Give up everything, then join."""
    COOPERATIVE = 1
    """Keep everything, give up what the new assignment lacks, and join once more (KIP-429)."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The topics that anybody in the group subscribes to, as the leader sees them. A missing topic does not exist."""

    partitions: Mapping[str, int]
    """How many partitions each topic has."""
    racks: Mapping[str, Sequence[frozenset[str]]] = field(default_factory=dict)
    """The racks of each partition's replicas, where they are known (KIP-881)."""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What one member told the leader, and what the coordinator told about the member."""

    topics: Collection[str]
    user_data: bytes | None = None
    owned: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The partitions that it still has, by topic."""
    generation: int = NO_GENERATION
    """The generation in which it got them."""
    rack: str | None = None
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """What one member gets: partitions by topic, each list in order and without topics that have none."""

    partitions: Mapping[str, Sequence[int]]
    user_data: bytes | None = None


class Assignor(ABC):
    """Who gets what. Subclass it, give it a name that all members of the group know, and write `assign`."""

    name: str
    """The protocol name by which members agree on an assignor."""
    protocol: RebalanceProtocol = RebalanceProtocol.EAGER
    several_owners: bool = False
    """Whether a partition may be given to several members. Otherwise that is taken for a mistake and refused."""
    may_leave_out: bool = False
    """Whether a subscribed partition may be given to nobody. Otherwise that is taken for a mistake and refused."""

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:  # noqa: ARG002
        """What the leader should know of this member besides its topics."""
        return None

    @abstractmethod
    def assign(
        self, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]
    ) -> Mapping[str, MemberAssignment]:
        """By member id, one entry for every member, also for one that gets nothing."""
