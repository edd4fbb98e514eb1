"""What a standby would have saved: the time from the last activity of a member until others owned its partitions.

A standby fills the vacancy one heartbeat after it opens: at once if the member left, and `takeover_ms` after its
connection closed if it was killed. Ownership is taken from the stored assignments; the first commit is reported too,
but it may be late for other reasons (nothing to read, long batches).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.spark.pipelines.forensics.ownership import Emit
from holdfast.spark.pipelines.forensics.rebalances import Departure
from holdfast.spark.pipelines.forensics.thresholds import ForensicsThresholds
from holdfast.types import TopicPartition


@dataclass(slots=True)
class _Generation:
    """The generation in which members were lost: one rebalance replaces all members lost in the same one."""

    number: int | None
    is_counted: bool = False


@dataclass(slots=True)
class _LostMember:
    departure: Departure
    last_active_ms: int
    """The last time at which the member was active."""
    generation: _Generation
    unowned: set[TopicPartition]
    """Partitions without an owner."""
    uncommitted: set[TopicPartition] = field(default_factory=set)
    """Partitions with an owner, but without a commit since."""
    assigned_ms: int = 0
    partition_ms: int = 0
    partitions: int = 0
    consumed_ms: int | None = None


@dataclass(slots=True)
class StandbySavings:
    thresholds: ForensicsThresholds
    emit: Emit
    _loss_by_partition: dict[TopicPartition, _LostMember] = field(default_factory=dict)
    _generation: _Generation = field(default_factory=lambda: _Generation(None))

    def on_gone(self, departure: Departure, partitions: list[TopicPartition], generation: int | None) -> None:
        session_ms = departure.session_ms or self.thresholds.session_ms
        silent_ms = departure.at_ms - (session_ms if departure.how == "expired" else 0)
        for where in partitions:
            self._end(where)
        if generation is None or generation != self._generation.number:
            self._generation = _Generation(generation)
        loss = _LostMember(departure, silent_ms, self._generation, set(partitions))
        self._loss_by_partition.update(dict.fromkeys(partitions, loss))

    def on_assigned(self, owned: set[TopicPartition], at_ms: int, generation: int) -> None:
        """A group record: these partitions have an owner."""
        for loss in {id(loss): loss for loss in self._loss_by_partition.values() if loss.unowned}.values():
            if loss.generation.number == generation:
                # Within the generation: a standby took over, or another change was stored.
                for where in loss.unowned & owned:
                    loss.unowned.discard(where)
                    self._loss_by_partition.pop(where, None)
                continue
            takeover_ms = self.thresholds.heartbeat_ms + (
                self.thresholds.takeover_ms if loss.departure.how == "expired" else 0
            )
            for where in loss.unowned & owned:
                loss.partitions += 1
                loss.assigned_ms = at_ms
                loss.partition_ms += max(0, at_ms - loss.last_active_ms - takeover_ms)
                loss.uncommitted.add(where)
            loss.unowned -= owned

    def on_commit(self, where: TopicPartition, at_ms: int) -> None:
        loss = self._loss_by_partition.get(where)
        if loss is not None and where in loss.uncommitted:
            loss.consumed_ms = at_ms
            self._end(where)

    def on_empty(self) -> None:
        """The group has no members, perhaps on purpose, and a standby would not have helped. Generations may start
        again."""
        self._generation = _Generation(None)
        for where in [where for where, loss in self._loss_by_partition.items() if where in loss.unowned]:
            loss = self._loss_by_partition.pop(where)
            loss.unowned.discard(where)

    def finish(self) -> None:
        for where in [*self._loss_by_partition]:
            self._end(where)

    def _end(self, where: TopicPartition) -> None:
        loss = self._loss_by_partition.pop(where, None)
        if loss is None:
            return
        loss.unowned.discard(where)
        loss.uncommitted.discard(where)
        if not loss.unowned and not loss.uncommitted and loss.partitions:
            self._emit_saving(loss)

    def _emit_saving(self, loss: _LostMember) -> None:
        if loss.partition_ms <= 0:
            return  # a standby would not have been faster
        rebalances = 0 if loss.generation.is_counted else 1
        loss.generation.is_counted = True
        departure = loss.departure
        unowned_ms = loss.assigned_ms - loss.last_active_ms
        consumed = (
            "" if loss.consumed_ms is None else f", consumed again after {loss.consumed_ms - loss.last_active_ms} ms"
        )
        self.emit(
            "savings",
            {
                "measure": "standby",
                "at_ms": departure.at_ms,
                "what": f"{departure.label} {departure.how}: {loss.partitions} partitions, unowned {unowned_ms} ms"
                f"{consumed}",
                "rebalances": rebalances,
                "unassigned_ms": max(0, loss.partition_ms // loss.partitions),
                "partition_ms": loss.partition_ms,
                "moved": None,
            },
        )
