"""Large groups to be assigned, as decoded from the wire, at different events. They are the same for both sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.assignors import Assignor, Cluster, MemberAssignment, MemberSubscription, StickyAssignor, assignor
from holdfast.assignors.callbacks import notify_assignment

GENERATION: Final = 7
BUCKETS: Final = 5

Group = tuple[Cluster, dict[str, MemberSubscription]]


@dataclass(frozen=True)
class Shape:
    """A number of topics and partitions, and members that subscribe to all topics or, if unequal, to some."""

    topics: int
    partitions: int
    members: int
    equal: bool = True

    @property
    def total(self) -> int:
        return self.topics * self.partitions

    def __str__(self) -> str:
        kind = "equal" if self.equal else "unequal"
        return f"{self.total:,} partitions × {self.members:,} members, {kind} subscriptions"


@dataclass(frozen=True)
class Event:
    """The previous state of a group, relative to the current one: 1 is all of it."""

    name: str
    members_before: float | None
    """None if no member has an assignment yet."""
    members_now: float = 1.0
    partitions_before: float = 1.0


ONE: Final = -1.0
"""One member less, for any size."""

EVENTS: Final = (
    Event("full", members_before=None),
    Event("stable", members_before=1.0),
    Event("one joins", members_before=ONE),
    Event("many join", members_before=0.9),
    Event("one leaves", members_before=1.0, members_now=ONE),
    Event("many leave", members_before=1.0, members_now=0.9),
    Event("partitions added", members_before=1.0, partitions_before=0.9),
)


def group_of(shape: Shape, event: Event, strategy: str) -> Group:
    """The group at the moment of `event`. Previous assignments are those of our sticky assignor, on both sides."""
    ids = [_member_id(number) for number in range(shape.members)]
    topics = [f"topic-{number:04d}" for number in range(shape.topics)]
    cluster = Cluster(dict.fromkeys(topics, shape.partitions))
    subscriptions = {
        member: MemberSubscription(_own(_topics_of(shape, number, topics))) for number, member in enumerate(ids)
    }
    now = {member: subscriptions[member] for member in ids[: _part(shape.members, event.members_now)]}
    if event.members_before is None:
        return cluster, now
    before = {member: subscriptions[member] for member in ids[: _part(shape.members, event.members_before)]}
    smaller = Cluster(dict.fromkeys(topics, _part(shape.partitions, event.partitions_before)))
    had = StickyAssignor().assign(smaller, before)
    return cluster, {
        member: _with_owned(one, had[member], assignor(strategy)) if member in had else one
        for member, one in now.items()
    }


def _with_owned(subscription: MemberSubscription, had: MemberAssignment, strategy: Assignor) -> MemberSubscription:
    """The member's own subscription: its assignment in the user data or, if cooperative, as owned partitions."""
    partitions: Mapping[str, Sequence[int]] = {topic: list(numbers) for topic, numbers in had.partitions.items()}
    notify_assignment(strategy, MemberAssignment(partitions), GENERATION)
    return MemberSubscription(
        topics=subscription.topics,
        user_data=strategy.subscription_user_data(subscription.topics),
        owned={} if strategy.name == "sticky" else {_again(topic): numbers for topic, numbers in partitions.items()},
        generation=GENERATION,
    )


def _member_id(number: int) -> str:
    """Like the ids of clients, and not in the order in which they joined."""
    return f"consumer-{number * 7919 % 1_000_003:07d}-{number * 2654435761 % 2**32:08x}-4f0e-4c5c-9d6b-0b5a3a7c1d2e"


def _topics_of(shape: Shape, number: int, topics: Sequence[str]) -> Sequence[str]:
    return topics if shape.equal else topics[: len(topics) * (1 + number % BUCKETS) // BUCKETS]


def _own(topics: Sequence[str]) -> list[str]:
    """New strings for every member, because decoded strings are never the same objects."""
    return [_again(topic) for topic in topics]


def _again(text: str) -> str:
    return text.encode().decode()


def _part(whole: int, part: float) -> int:
    return whole - 1 if part == ONE else round(whole * part)
