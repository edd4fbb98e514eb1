"""Waiting for a condition, never for a while."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE_S = 60.0
_POLL_INTERVAL_S = 0.02


def eventually(look: Callable[[], T], what: str, within_s: float = DEADLINE_S) -> T:
    """Call ``look`` until it returns something true and return that; fail, naming ``what``, when time is up."""
    deadline = time.monotonic() + within_s
    while not (seen := look()):
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}; last seen: {seen!r}"
        time.sleep(_POLL_INTERVAL_S)
    return seen
