"""What a registration would have saved: several members that came one after the other.

Rebalances in which somebody came and nobody went, each begun within the window after the one before: announced
beforehand, all of them would have been one. A cooperative group's second rounds are counted with them. Members that
only came back are not meant: see `returns`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.spark.pipelines.forensics.ownership import Emit
from holdfast.spark.pipelines.forensics.rebalances import Rebalance
from holdfast.spark.pipelines.forensics.rules import Rules


@dataclass(slots=True)
class _Run:
    """Sums, not rebalances: it may be long."""

    first_ms: int
    last_ms: int
    joins: int = 0
    rounds: int = 0
    members: int = 0
    stood_ms: int = 0
    longest_ms: int = 0
    partition_ms: int = 0
    largest_partition_ms: int = 0

    def add(self, one: Rebalance) -> None:
        self.last_ms = one.started_ms
        self.joins += bool(one.came)
        self.rounds += 1
        self.members += len(one.came)
        stood_ms, partition_ms = one.stood_still_ms or 0, one.partition_ms or 0
        self.stood_ms += stood_ms
        self.longest_ms = max(self.longest_ms, stood_ms)
        self.partition_ms += partition_ms
        self.largest_partition_ms = max(self.largest_partition_ms, partition_ms)


@dataclass(slots=True)
class ScaleUps:
    rules: Rules
    emit: Emit
    _run: _Run | None = field(default=None)

    def on_decided(self, one: Rebalance, is_return: bool) -> None:
        run = self._run
        in_time = run is not None and one.started_ms - run.last_ms <= self.rules.scale_up_within_ms
        follows = not one.came and not one.went and one.is_cooperative
        if is_return or one.went or not one.is_one or not (one.came or (follows and in_time)):
            self.finish()
            return
        if run is None or not in_time:
            self.finish()
            run = self._run = _Run(one.started_ms, one.started_ms)
        run.add(one)

    def finish(self) -> None:
        run, self._run = self._run, None
        if run is None or run.joins < 2:
            return
        remain = 1 + (run.rounds > run.joins)
        self.emit(
            "savings",
            {
                "measure": "registration",
                "at_ms": run.first_ms,
                "what": f"{run.members} members came in {run.joins} rebalances",
                "rebalances": run.rounds - remain,
                "stood_still_ms": run.stood_ms - run.longest_ms,
                "partition_ms": run.partition_ms - run.largest_partition_ms,
                "moved": None,
            },
        )
