"""Assignors: those of Kafka's Java client, three of Holdfast's own, and the interface for custom ones.

from holdfast.assignors import CopartitionedAssignor, assignor

assignor("sticky")
CopartitionedAssignor(groups=[["orders", "payments"]], rest="roundrobin")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from holdfast.assignors.builtin import BUILTIN
from holdfast.assignors.copartitioned import CopartitionedAssignor
from holdfast.assignors.interface import (
    NO_GENERATION,
    Assignor,
    Cluster,
    MemberAssignment,
    MemberSubscription,
    RebalanceProtocol,
)
from holdfast.assignors.rack_aware import RackAwareAssignor
from holdfast.assignors.range import RangeAssignor
from holdfast.assignors.redundant import RedundantAssignor
from holdfast.assignors.registry import ASSIGNORS, UnknownAssignor, assignor
from holdfast.assignors.roundrobin import RoundRobinAssignor
from holdfast.extras import CLIENT, needed_for

if TYPE_CHECKING:
    from holdfast.assignors.cooperative_sticky import CooperativeStickyAssignor as CooperativeStickyAssignor
    from holdfast.assignors.sticky import StickyAssignor as StickyAssignor

__all__ = [
    "ASSIGNORS",
    "NO_GENERATION",
    "Assignor",
    "Cluster",
    "CooperativeStickyAssignor",
    "CopartitionedAssignor",
    "MemberAssignment",
    "MemberSubscription",
    "RackAwareAssignor",
    "RangeAssignor",
    "RebalanceProtocol",
    "RedundantAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "UnknownAssignor",
    "assignor",
]

ASSIGNORS.update(BUILTIN)

_IN_ARRAYS: Final = {
    "CooperativeStickyAssignor": "holdfast.assignors.cooperative_sticky",
    "StickyAssignor": "holdfast.assignors.sticky",
}


def __getattr__(name: str) -> Any:
    """These two need numpy, which `Admin` and `Member` do without: docs/decisions/0010."""
    home = _IN_ARRAYS.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needed_for(f"{__name__}.{name}", CLIENT):
        return getattr(import_module(home), name)
