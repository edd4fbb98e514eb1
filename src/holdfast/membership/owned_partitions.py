"""The partitions that a consumer owns, and their changes by a join or a new assignment.

Eager members revoke all partitions before they join. Cooperative members keep their partitions, revoke those that the
new assignment lacks, and rejoin so that they can be assigned to other members (KIP-429).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.assignors.callbacks import notify_assignment
from holdfast.assignors.interface import Assignor, MemberAssignment, RebalanceProtocol
from holdfast.types import TopicPartition
from holdfast.wire.consumer_protocol import (
    NO_GENERATION,
    Subscription,
    TopicPartitions,
    decode_assignment,
    encode_subscription,
)


@dataclass(frozen=True, slots=True)
class Revocation:
    """The partitions that the application must give up before a join."""

    revoked: list[TopicPartition] = field(default_factory=list)
    lost: list[TopicPartition] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AssignmentChange:
    """The changes of a rebalance, and the reason to rejoin, if any."""

    revoked: list[TopicPartition]
    added: list[TopicPartition]
    rejoin: str | None = None
    lost: list[TopicPartition] = field(default_factory=list)
    """Other members already own these, because the group has fallen back to an eager strategy."""


class OwnedPartitions:
    """The partitions of one consumer, and the subscription with which it joins."""

    def __init__(
        self, assignors: Sequence[Assignor], rack: str | None = None, *, protocol_follows_group: bool = False
    ) -> None:
        """With one eager strategy among several a member is eager, as in Java: the group may choose that one.

        With `protocol_follows_group`, a member revokes partitions according to the strategy that the group chose last.
        In the one rebalance in which the group falls back to an eager strategy, partitions that it kept may be assigned
        to other members while it still processes them. They are lost then.
        """
        if not assignors:
            raise ValueError("at least one assignment strategy is needed")
        self.assignors = {assignor.name: assignor for assignor in assignors}
        self.protocol = min(assignor.protocol for assignor in assignors)
        self._protocol_follows_group = protocol_follows_group
        self.topics: frozenset[str] = frozenset()
        self.partitions: set[TopicPartition] = set()
        self._generation_id = NO_GENERATION
        self._rack = rack

    def revoke(self, *, lost: bool, leaving: bool = False) -> Revocation:
        """Before a join. Cooperative members revoke the topics that they no longer subscribe to. A member that leaves
        revokes all partitions."""
        if lost:
            lost_partitions = sorted(self.partitions)
            self.partitions.clear()
            self._generation_id = NO_GENERATION
            return Revocation(lost=lost_partitions)
        revoked = self.to_revoke(leaving=leaving)
        self.partitions.difference_update(revoked)
        return Revocation(revoked=revoked)

    def to_revoke(self, *, leaving: bool = False) -> list[TopicPartition]:
        """The partitions that `revoke` would revoke."""
        if leaving or self.protocol is RebalanceProtocol.EAGER:
            return sorted(self.partitions)
        return sorted(where for where in self.partitions if where[0] not in self.topics)

    def protocols(self) -> list[tuple[str, bytes]]:
        """The subscription for each strategy that this member supports."""
        return [(name, self._subscription(assignor)) for name, assignor in self.assignors.items()]

    def on_assignment(self, protocol: str, generation: int, assignment: bytes) -> AssignmentChange:
        """Apply an assignment. Raises WireError if it is unreadable."""
        decoded = decode_assignment(assignment)
        assigned = {(entry.topic, number) for entry in decoded.assigned_partitions for number in entry.partitions}
        unsubscribed = sorted({topic for topic, _ in assigned} - self.topics)
        if unsubscribed:
            # The leader used an older subscription of this member, so the assignment cannot be used.
            return AssignmentChange(
                [], [], f"received an assignment of topics not subscribed to any more: {', '.join(unsubscribed)}"
            )
        revoked, added = sorted(self.partitions - assigned), sorted(assigned - self.partitions)
        self.partitions = assigned
        self._generation_id = generation
        assignor = self.assignors[protocol]
        if self._protocol_follows_group:
            self.protocol = assignor.protocol
        partitions = {entry.topic: entry.partitions for entry in decoded.assigned_partitions}
        notify_assignment(assignor, MemberAssignment(partitions, decoded.user_data), generation)
        if assignor.protocol is RebalanceProtocol.EAGER:
            return AssignmentChange([], added, lost=revoked)
        return AssignmentChange(revoked, added, "need to revoke partitions and re-join" if revoked else None)

    def _subscription(self, assignor: Assignor) -> bytes:
        owned: dict[str, list[int]] = {}
        for topic, number in self.partitions:
            owned.setdefault(topic, []).append(number)
        return encode_subscription(
            Subscription(
                topics=list(self.topics),
                user_data=assignor.subscription_user_data(self.topics),
                owned_partitions=[TopicPartitions(topic, numbers) for topic, numbers in owned.items()],
                generation_id=self._generation_id,
                rack_id=self._rack,
            )
        )
