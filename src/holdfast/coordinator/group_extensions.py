"""What a group has beyond Kafka: its configs, its registered members, changes of assignments without a rebalance.

One record a group stores all of it, in one append with the change it belongs to. A group that uses none of it has no
such record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.coordinator.classic.member import Member
from holdfast.coordinator.runtime.batched_replies import JoinBatch
from holdfast.wire.group_records import ExtensionsValue, RegisteredMember, UnassignedTopic

EPOCHS_PER_GENERATION: Final = 1_000_000
NO_TARGET: Final = 0
BY_SESSION: Final = -1
CONFIG_NAMES: Final = {"target_size": "target.group.size", "standby_takeover_ms": "standby.takeover.ms"}
"""The config names of the fields of `Extensions` that can be configured."""


@dataclass(frozen=True, slots=True)
class Extensions:
    target_size: int = NO_TARGET
    """Members past it are standbys."""
    standby_takeover_ms: int = BY_SESSION
    """How long after its connection closed a member is replaced by a standby."""
    registered: Mapping[str, int] = field(default_factory=dict)
    """The deadline of each registered instance id."""
    generation: int = 0
    """The one that the rest is about."""
    in_generation_changes: int = 0
    changed_members: tuple[str, ...] = ()
    unassigned_on_purpose: Mapping[str, int] = field(default_factory=dict)
    """Topics with partitions that are assigned to no member, and how many the leader knew of (`partition_growth`)."""

    @classmethod
    def of(cls, value: ExtensionsValue) -> Extensions:
        return cls(
            target_size=value.target_size,
            standby_takeover_ms=value.standby_takeover_ms,
            registered={member.group_instance_id: member.deadline for member in value.registered},
            generation=value.generation,
            in_generation_changes=value.in_generation_changes,
            changed_members=tuple(value.changed_members),
            unassigned_on_purpose={topic.name: topic.partitions for topic in value.unassigned_on_purpose},
        )

    def record(self) -> ExtensionsValue | None:
        """None where there is nothing to remember."""
        if not (self.has_configs or self.registered or self.in_generation_changes or self.unassigned_on_purpose):
            return None
        return ExtensionsValue(
            target_size=self.target_size,
            standby_takeover_ms=self.standby_takeover_ms,
            registered=[RegisteredMember(instance_id, at_ms) for instance_id, at_ms in self.registered.items()],
            generation=self.generation,
            in_generation_changes=self.in_generation_changes,
            changed_members=list(self.changed_members),
            unassigned_on_purpose=[UnassignedTopic(topic, size) for topic, size in self.unassigned_on_purpose.items()],
        )

    @property
    def has_configs(self) -> bool:
        return self.target_size != NO_TARGET or self.standby_takeover_ms != BY_SESSION


def assignment_epoch(generation: int, extensions: Extensions) -> int:
    """The assignment epoch: rises with every generation, and within one with every change of an assignment.

    Derived from what is stored anyway, so that it costs an ordinary rebalance nothing and cannot go back.
    """
    changes = extensions.in_generation_changes if extensions.generation == generation else 0
    return generation * EPOCHS_PER_GENERATION + changes


@dataclass(slots=True, eq=False)
class Vacancy:
    """The assignment that a removed member left behind, which waits for a standby (see `standby_takeover`)."""

    member: Member
    topics: frozenset[str]
    was_leader: bool


@dataclass(slots=True, eq=False)
class ExtensionState:
    """What the extensions keep of a group in memory only."""

    vacancies: list[Vacancy] = field(default_factory=list)
    """Of members that were removed in this generation. They are still stored as members."""
    open_batches: int = 0
    """Batches of joins that are being handled: the join phase does not end in the middle of one."""
    unanswered_batches: list[JoinBatch] = field(default_factory=list)
    failed_assignments: int = 0
    """Since the last assignment that was stored."""
    reloaded_registered_count: int = 0
    """Members that were restored with an assignment although they are registered: they had left, and the broker was
    killed before their vacancies were filled. An upper bound: one that leaves again is not subtracted."""

    @property
    def former_owners(self) -> Iterable[Member]:
        """Members that were removed and are still stored, with their assignments."""
        return (vacancy.member for vacancy in self.vacancies)
