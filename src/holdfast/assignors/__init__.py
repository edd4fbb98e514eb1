"""Who gets what: the assignors that Kafka's own client has, three more, and the interface for one's own.

from holdfast.assignors import CopartitionedAssignor, assignor

assignor("sticky")
CopartitionedAssignor(groups=[["orders", "payments"]], rest="roundrobin")
"""

from holdfast.assignors.cooperative_sticky import CooperativeStickyAssignor
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
from holdfast.assignors.sticky import StickyAssignor

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
