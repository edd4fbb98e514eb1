"""What is stored of a group beyond Kafka: its configs, who was announced, what changed hands without a rebalance.

One record a group holds all of it, and a group that uses none of it has no such record. It is stored in one append with
whatever it belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.wire.group_records import ExtensionsValue, LeftOut, RegisteredMember

EPOCHS_PER_GENERATION: Final = 1_000_000
NO_TARGET: Final = 0
BY_SESSION: Final = -1
CONFIG_NAMES: Final = {"target_size": "target.group.size", "standby_takeover_ms": "standby.takeover.ms"}
"""What the fields of `Extensions` that can be configured are called by users."""


@dataclass(frozen=True, slots=True)
class Extensions:
    target_size: int = NO_TARGET
    """Members past it are standbys."""
    standby_takeover_ms: int = BY_SESSION
    """How long after its connection closed a member's place is given to a standby."""
    registered: Mapping[str, int] = field(default_factory=dict)
    """Until when each instance id that was announced is waited for."""
    generation: int = 0
    """The one that the rest is about."""
    quiet_changes: int = 0
    changed: tuple[str, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Topics of which partitions were left out of all shares, with how many the leader knew of (see `growth`)."""

    @classmethod
    def of(cls, value: ExtensionsValue) -> Extensions:
        return cls(
            target_size=value.target_size,
            standby_takeover_ms=value.standby_takeover_ms,
            registered={member.group_instance_id: member.deadline for member in value.registered},
            generation=value.generation,
            quiet_changes=value.quiet_changes,
            changed=tuple(value.changed),
            left_out={topic.name: topic.partitions for topic in value.left_out},
        )

    def record(self) -> ExtensionsValue | None:
        """None where there is nothing to remember."""
        if not (self.has_configs or self.registered or self.quiet_changes or self.left_out):
            return None
        return ExtensionsValue(
            target_size=self.target_size,
            standby_takeover_ms=self.standby_takeover_ms,
            registered=[RegisteredMember(instance_id, at_ms) for instance_id, at_ms in self.registered.items()],
            generation=self.generation,
            quiet_changes=self.quiet_changes,
            changed=list(self.changed),
            left_out=[LeftOut(topic, size) for topic, size in self.left_out.items()],
        )

    @property
    def has_configs(self) -> bool:
        return self.target_size != NO_TARGET or self.standby_takeover_ms != BY_SESSION


def epoch(generation: int, extensions: Extensions) -> int:
    """The assignment epoch: rises with every generation, and within one with every quiet change.

    Made of facts that are stored anyway, so that it costs an ordinary rebalance nothing and cannot go back.
    """
    quiet = extensions.quiet_changes if extensions.generation == generation else 0
    return generation * EPOCHS_PER_GENERATION + quiet
