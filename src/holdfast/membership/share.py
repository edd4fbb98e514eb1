"""What a consumer has, what it says of itself when it joins, and what each new assignment changes.

Eager members give everything up before they join. Cooperative ones keep what they have, give up what the new
assignment lacks, and join once more so that it can be given to somebody else (KIP-429).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.assignors.interface import Assignor, MemberAssignment, RebalanceProtocol
from holdfast.assignors.listening import tell
from holdfast.wire.consumer_protocol import (
    NO_GENERATION,
    Subscription,
    TopicPartitions,
    decode_assignment,
    encode_subscription,
)

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Before a join: what the application must let go of."""

    revoked: list[TopicPartition] = field(default_factory=list)
    lost: list[TopicPartition] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Change:
    """After a rebalance: what goes, what comes, and why to join once more, if so."""

    revoked: list[TopicPartition]
    added: list[TopicPartition]
    rejoin: str | None = None
    lost: list[TopicPartition] = field(default_factory=list)
    """What somebody else has already, because the group has fallen back to an eager strategy."""


class Share:
    """The partitions of one consumer. It is the only place that knows which they are."""

    def __init__(
        self, assignors: Sequence[Assignor], rack: str | None = None, *, follows_the_group: bool = False
    ) -> None:
        """With an eager strategy among several a member is eager, as Java's are: the group may choose that one.

        One that `follows_the_group` gives up only what the strategy which the group chose last asks for. In the one
        rebalance in which a group falls back to an eager strategy, partitions that it kept may be given away while it
        still works on them; it has lost them then.
        """
        if not assignors:
            raise ValueError("at least one assignment strategy is needed")
        self.assignors = {assignor.name: assignor for assignor in assignors}
        self.protocol = min(assignor.protocol for assignor in assignors)
        self._follows_the_group = follows_the_group
        self.topics: frozenset[str] = frozenset()
        self.owned: set[TopicPartition] = set()
        self._generation = NO_GENERATION
        self._rack = rack

    def give_up(self, *, lost: bool, leaving: bool = False) -> GivenUp:
        """What goes before a join. Of topics that are no longer subscribed to, cooperative members let go as well; who
        leaves the group lets go of everything."""
        if lost:
            going = sorted(self.owned)
            self.owned.clear()
            self._generation = NO_GENERATION
            return GivenUp(lost=going)
        going = self.going(leaving=leaving)
        self.owned.difference_update(going)
        return GivenUp(revoked=going)

    def going(self, *, leaving: bool = False) -> list[TopicPartition]:
        """What must be given up before a join, or before this member leaves."""
        if leaving or self.protocol is RebalanceProtocol.EAGER:
            return sorted(self.owned)
        return sorted(where for where in self.owned if where[0] not in self.topics)

    def protocols(self) -> list[tuple[str, bytes]]:
        """What this member says of itself, by the name of each strategy that it knows."""
        return [(name, self._subscription(assignor)) for name, assignor in self.assignors.items()]

    def adopt(self, protocol: str, generation: int, assignment: bytes) -> Change:
        """Take what the leader has given. WireError says that it cannot be read."""
        decoded = decode_assignment(assignment)
        given = {(entry.topic, number) for entry in decoded.assigned_partitions for number in entry.partitions}
        strange = sorted({topic for topic, _ in given} - self.topics)
        if strange:
            # The leader worked with an older subscription of ours; what it gave is of no use (6.286).
            return Change([], [], f"received an assignment of topics not subscribed to any more: {', '.join(strange)}")
        revoked, added = sorted(self.owned - given), sorted(given - self.owned)
        self.owned = given
        self._generation = generation
        assignor = self.assignors[protocol]
        if self._follows_the_group:
            self.protocol = assignor.protocol
        partitions = {entry.topic: entry.partitions for entry in decoded.assigned_partitions}
        tell(assignor, MemberAssignment(partitions, decoded.user_data), generation)
        if assignor.protocol is RebalanceProtocol.EAGER:
            return Change([], added, lost=revoked)
        return Change(revoked, added, "need to revoke partitions and re-join" if revoked else None)

    def _subscription(self, assignor: Assignor) -> bytes:
        owned: dict[str, list[int]] = {}
        for topic, number in self.owned:
            owned.setdefault(topic, []).append(number)
        return encode_subscription(
            Subscription(
                topics=list(self.topics),
                user_data=assignor.subscription_user_data(self.topics),
                owned_partitions=[TopicPartitions(topic, numbers) for topic, numbers in owned.items()],
                generation_id=self._generation,
                rack_id=self._rack,
            )
        )
