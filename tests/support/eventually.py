"""Waiting for a condition, never for a while."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE_S = 60.0
_POLL_INTERVAL_S = 0.02


def eventually(look: Callable[[], T], what: str, within_s: float = DEADLINE_S, *, of: object = None) -> T:
    """Call ``look`` until it returns something true and return that; fail, naming ``what``, when time is up. ``of`` is
    shown as it is then: in ``what`` it would be as it was in the beginning."""
    deadline = time.monotonic() + within_s
    while not (seen := look()):
        if time.monotonic() >= deadline:
            shown = "" if of is None else f" of {of!r}"
            raise AssertionError(f"not within {within_s} s: {what}{shown}; last seen: {seen!r}")
        time.sleep(_POLL_INTERVAL_S)
    return seen
