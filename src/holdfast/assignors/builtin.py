"""The assignors that have a short name: Kafka's four and three of Holdfast's own.

The package puts them into `registry`, which imports none of them: `copartitioned` looks up the strategy for its other
topics there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from holdfast.assignors.copartitioned import CopartitionedAssignor
from holdfast.assignors.interface import Assignor
from holdfast.assignors.rack_aware import RackAwareAssignor
from holdfast.assignors.range import RangeAssignor
from holdfast.assignors.redundant import RedundantAssignor
from holdfast.assignors.roundrobin import RoundRobinAssignor
from holdfast.extras import CLIENT, needed_for


def _sticky() -> Assignor:
    with needed_for("the sticky assignor", CLIENT):
        from holdfast.assignors.sticky import StickyAssignor
    return StickyAssignor()


def _cooperative_sticky() -> Assignor:
    with needed_for("the cooperative-sticky assignor", CLIENT):
        from holdfast.assignors.cooperative_sticky import CooperativeStickyAssignor
    return CooperativeStickyAssignor()


BUILTIN: Final[dict[str, Callable[[], Assignor]]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": _sticky,
    "cooperative-sticky": _cooperative_sticky,
    "copartitioned": CopartitionedAssignor,
    "redundant": RedundantAssignor,
    "rack-aware": RackAwareAssignor,
}
"""The first four are Kafka's and have the same name on the wire. Holdfast's own have another name there: their
`name`."""
