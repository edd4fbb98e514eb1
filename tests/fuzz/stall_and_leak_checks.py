"""When an input counts as a stall and when as a leak.

A stall is an input whose CPU time exceeds `Pace`: so much for any input, and so much for each of its bytes. CPU time,
because a busy machine makes everything late; the best of three, because a collection of garbage may hit any of them.

A leak is memory that stays after all that an input brought about is gone. One run proves nothing (caches fill), so the
input is repeated, and what counts is the growth for each further repetition.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from time import thread_time
from typing import Final

from tests.fuzz.fuzzed_broker import collect_garbage, make_sliced_encoders

TRIES: Final = 3
WARM_UP: Final = 3
REPEATS: Final = 8
ALLOWED_GROWTH_BYTES: Final = 64
"""For each repetition. Dictionaries grow in jumps; an object that stays is larger than this."""


class Stall(AssertionError):
    """An input took more CPU time than its size can justify."""


class Leak(AssertionError):
    """An input left something behind."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How much CPU time an input may take."""

    seconds: float
    seconds_per_byte: float

    def allowed(self, size: int) -> float:
        return self.seconds + self.seconds_per_byte * size

    def slowed(self, times: float) -> Pace:
        """The same pace for code that counts its branches meanwhile."""
        return Pace(self.seconds * times, self.seconds_per_byte * times)


def run_in_pace(run: Callable[[bytes], None], data: bytes, pace: Pace) -> None:
    """Runs the input; Stall if it is too slow each time that it is tried."""
    allowed = pace.allowed(len(data))
    spent = _spent(run, data)
    for _ in range(TRIES - 1):
        if spent <= allowed:
            return
        spent = min(spent, _spent(run, data))
    if spent > allowed:
        raise Stall(f"{len(data)} bytes took {spent * 1000:.0f} ms of CPU time; {allowed * 1000:.0f} ms are allowed")


def _spent(run: Callable[[bytes], None], data: bytes) -> float:
    before = thread_time()
    run(data)
    return thread_time() - before


def check_growth(repeat: Callable[[], None]) -> None:
    """Leak if the memory in use grows with every repetition, and does so twice in a row."""
    make_sliced_encoders()
    tracemalloc.start()
    try:
        _settled_bytes(repeat, WARM_UP)
        for repeats in (REPEATS, 2 * REPEATS):
            before = _settled_bytes(repeat, 1)
            grown = (_settled_bytes(repeat, repeats) - before) / repeats
            if grown <= ALLOWED_GROWTH_BYTES:
                return
        raise Leak(f"memory grows by {grown:.0f} bytes each time; {ALLOWED_GROWTH_BYTES} are allowed")
    finally:
        tracemalloc.stop()


def _settled_bytes(repeat: Callable[[], None], times: int) -> int:
    for _ in range(times):
        repeat()
    collect_garbage()
    return tracemalloc.get_traced_memory()[0]
