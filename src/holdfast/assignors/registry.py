"""Assignors by their short names, as configuration gives them."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
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


ASSIGNORS: Final[dict[str, Callable[[], Assignor]]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": _sticky,
    "cooperative-sticky": _cooperative_sticky,
    "copartitioned": CopartitionedAssignor,
    "redundant": RedundantAssignor,
    "rack-aware": RackAwareAssignor,
}
"""The first four are Kafka's and have the same name on the wire. Ours are called otherwise there, by their `name`."""


class UnknownAssignor(ValueError):
    """There is no assignor of that name; the message says which was probably meant."""


def assignor(name: str) -> Assignor:
    """A new one at every call: what an assignor remembers belongs to one consumer."""
    make = ASSIGNORS.get(name)
    if make is None:
        # With a low bar: a name that is little like any other still helps more than a bare refusal.
        nearest = get_close_matches(name.lower(), ASSIGNORS, n=1, cutoff=0.4)
        meant = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise UnknownAssignor(f"there is no assignor {name!r}: {meant}known are {', '.join(ASSIGNORS)}")
    return make()
