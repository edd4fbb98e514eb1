"""Rebalances that registration would have avoided: several members that joined one after the other.

Rebalances with joins and without departures, each started within the window after the previous one: with registered
members, there would have been one rebalance instead. The second rebalances of a cooperative group count with them.
Members that only restarted do not count: see `static_membership_savings`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.spark.pipelines.forensics.ownership import Emit
from holdfast.spark.pipelines.forensics.rebalances import Rebalance
from holdfast.spark.pipelines.forensics.thresholds import ForensicsThresholds


@dataclass(slots=True)
class _ScaleUp:
    """Sums instead of a list of rebalances, which may be long."""

    first_ms: int
    last_ms: int
    joins: int = 0
    rounds: int = 0
    members: int = 0
    unassigned_ms: int = 0
    longest_ms: int = 0
    partition_ms: int = 0
    largest_partition_ms: int = 0

    def add(self, one: Rebalance) -> None:
        self.last_ms = one.started_ms
        self.joins += bool(one.arrivals)
        self.rounds += 1
        self.members += len(one.arrivals)
        duration_ms, partition_ms = one.unassigned_ms or 0, one.partition_ms or 0
        self.unassigned_ms += duration_ms
        self.longest_ms = max(self.longest_ms, duration_ms)
        self.partition_ms += partition_ms
        self.largest_partition_ms = max(self.largest_partition_ms, partition_ms)


@dataclass(slots=True)
class RegistrationSavings:
    thresholds: ForensicsThresholds
    emit: Emit
    _current: _ScaleUp | None = field(default=None)

    def on_decided(self, one: Rebalance, is_return: bool) -> None:
        run = self._current
        in_time = run is not None and one.started_ms - run.last_ms <= self.thresholds.scale_up_within_ms
        follows = not one.arrivals and not one.departures and one.is_cooperative
        if is_return or one.departures or not one.is_rebalance or not (one.arrivals or (follows and in_time)):
            self.finish()
            return
        if run is None or not in_time:
            self.finish()
            run = self._current = _ScaleUp(one.started_ms, one.started_ms)
        run.add(one)

    def finish(self) -> None:
        run, self._current = self._current, None
        if run is None or run.joins < 2:
            return
        remain = 1 + (run.rounds > run.joins)
        self.emit(
            "savings",
            {
                "measure": "registration",
                "at_ms": run.first_ms,
                "what": f"{run.members} members joined in {run.joins} rebalances",
                "rebalances": run.rounds - remain,
                "unassigned_ms": run.unassigned_ms - run.longest_ms,
                "partition_ms": run.partition_ms - run.largest_partition_ms,
                "moved": None,
            },
        )
