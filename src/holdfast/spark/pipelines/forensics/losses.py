"""What a standby would have saved: the time from when a member was last heard of until others had its partitions.

A standby takes the place one heartbeat after it is open: at once if the member left, and `takeover_ms` after its
connection closed if it was killed. Only what was stored counts as "had": when they were consumed again is told beside
it, by the first commit, which may be late for other reasons (nothing to read, long batches).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.spark.pipelines.forensics.facts import Where
from holdfast.spark.pipelines.forensics.ownership import Emit
from holdfast.spark.pipelines.forensics.rebalances import Going
from holdfast.spark.pipelines.forensics.rules import Rules


@dataclass(slots=True)
class _Generation:
    """The one that members were lost in: whoever is lost in the same one, the same rebalance makes up for."""

    number: int | None
    is_counted: bool = False


@dataclass(slots=True)
class _Loss:
    going: Going
    silent_ms: int
    """Since when nobody worked on them."""
    generation: _Generation
    waiting: set[Where]
    """Partitions that nobody has."""
    unread: set[Where] = field(default_factory=set)
    """That somebody has, and that no commit has come for."""
    assigned_ms: int = 0
    partition_ms: int = 0
    partitions: int = 0
    consumed_ms: int | None = None


@dataclass(slots=True)
class Losses:
    rules: Rules
    emit: Emit
    _of: dict[Where, _Loss] = field(default_factory=dict)
    _generation: _Generation = field(default_factory=lambda: _Generation(None))

    def on_gone(self, going: Going, partitions: list[Where], generation: int | None) -> None:
        session_ms = going.session_ms or self.rules.session_ms
        silent_ms = going.at_ms - (session_ms if going.how == "expired" else 0)
        for where in partitions:
            self._end(where)
        if generation is None or generation != self._generation.number:
            self._generation = _Generation(generation)
        loss = _Loss(going, silent_ms, self._generation, set(partitions))
        self._of.update(dict.fromkeys(partitions, loss))

    def on_assigned(self, owned: set[Where], at_ms: int, generation: int) -> None:
        """The group was stored: these have an owner."""
        for loss in {id(loss): loss for loss in self._of.values() if loss.waiting}.values():
            if loss.generation.number == generation:
                # Within the generation: a standby took over, or another's change was stored.
                for where in loss.waiting & owned:
                    loss.waiting.discard(where)
                    self._of.pop(where, None)
                continue
            takeover_ms = self.rules.heartbeat_ms + (self.rules.takeover_ms if loss.going.how == "expired" else 0)
            for where in loss.waiting & owned:
                loss.partitions += 1
                loss.assigned_ms = at_ms
                loss.partition_ms += max(0, at_ms - loss.silent_ms - takeover_ms)
                loss.unread.add(where)
            loss.waiting -= owned

    def on_commit(self, where: Where, at_ms: int) -> None:
        loss = self._of.get(where)
        if loss is not None and where in loss.unread:
            loss.consumed_ms = at_ms
            self._end(where)

    def on_empty(self) -> None:
        """Nobody is left, perhaps on purpose: no standby is missed. Who comes next may count its generations anew."""
        self._generation = _Generation(None)
        for where in [where for where, loss in self._of.items() if where in loss.waiting]:
            loss = self._of.pop(where)
            loss.waiting.discard(where)

    def finish(self) -> None:
        for where in [*self._of]:
            self._end(where)

    def _end(self, where: Where) -> None:
        loss = self._of.pop(where, None)
        if loss is None:
            return
        loss.waiting.discard(where)
        loss.unread.discard(where)
        if not loss.waiting and not loss.unread and loss.partitions:
            self._tell(loss)

    def _tell(self, loss: _Loss) -> None:
        if loss.partition_ms <= 0:
            return  # a standby would not have been faster
        rebalances = 0 if loss.generation.is_counted else 1
        loss.generation.is_counted = True
        going = loss.going
        unowned_ms = loss.assigned_ms - loss.silent_ms
        consumed = "" if loss.consumed_ms is None else f", consumed again after {loss.consumed_ms - loss.silent_ms} ms"
        self.emit(
            "savings",
            {
                "measure": "standby",
                "at_ms": going.at_ms,
                "what": f"{going.label} {going.how}: {loss.partitions} partitions, unowned {unowned_ms} ms{consumed}",
                "rebalances": rebalances,
                "stood_still_ms": max(0, loss.partition_ms // loss.partitions),
                "partition_ms": loss.partition_ms,
                "moved": None,
            },
        )
