"""Assignors by the short names of the configuration."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

from holdfast.assignors.interface import Assignor

ASSIGNORS: dict[str, Callable[[], Assignor]] = {}
"""The package fills it from `builtin`."""


class UnknownAssignor(ValueError):
    """There is no assignor of that name; the message has a suggestion."""


def assignor(name: str) -> Assignor:
    """A new one at every call, because the state of an assignor belongs to one consumer."""
    make = ASSIGNORS.get(name)
    if make is None:
        # With a low cutoff, because even a distant suggestion helps more than none.
        nearest = get_close_matches(name.lower(), ASSIGNORS, n=1, cutoff=0.4)
        meant = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise UnknownAssignor(f"there is no assignor {name!r}: {meant}known are {', '.join(ASSIGNORS)}")
    return make()
