"""Limits of the structure of the source, which `tests/unit/test_architecture.py` and `tests/broker/test_hops.py` keep.

The lists name what is above a limit today, with its figure. They may only become shorter, and the figures better.
"""

from __future__ import annotations

from typing import Final

from tests.support.hops import Way

# -- requests ----------------------------------------------------------------------------------------------------------

WAYS_BEFORE: Final = {
    "JoinGroup": Way(hops=173, modules=44, calls=335),
    "SyncGroup": Way(hops=127, modules=46, calls=236),
    "OffsetCommit": Way(hops=66, modules=35, calls=119),
    "Produce": Way(hops=40, modules=22, calls=63),
    "Heartbeat": Way(hops=30, modules=21, calls=50),
}
"""Before the packages were split into today's."""

WAYS: Final = {
    "JoinGroup": Way(hops=83, modules=39, calls=171),
    "SyncGroup": Way(hops=79, modules=44, calls=152),
    "OffsetCommit": Way(hops=41, modules=29, calls=79),
    "Produce": Way(hops=28, modules=18, calls=51),
    "Heartbeat": Way(hops=15, modules=13, calls=24),
}
"""The current figures, with one hop and one call to spare."""

WAYS_TARGET: Final = {"JoinGroup": "25 / 100", "OffsetCommit": "18 / 45", "Heartbeat": "10 / 20"}
"""Modules and hops. The page says why there are more modules."""

# -- modules -----------------------------------------------------------------------------------------------------------

CYCLES: Final[frozenset[tuple[str, ...]]] = frozenset()
"""Modules that import each other, however far round, for types or to run."""

FUNCTION_LINES: Final = 47
FUNCTION_LINES_P95: Final = 21
LONG_FUNCTIONS: Final[dict[str, int]] = {}

FILE_LINES: Final = 530

MAINTAINABILITY: Final = 20.0
"""Of radon's index, which is from 0 to 100. Radon itself calls 20 and more good."""
HARD_TO_MAINTAIN: Final[dict[str, float]] = {}

TABLE: Final = (
    ("import cycles, including imports for type annotations", 4, len(CYCLES), 0),
    ("function length in lines of code, 95th percentile", 22, FUNCTION_LINES_P95, 22),
    ("longest function", 82, max([FUNCTION_LINES, *LONG_FUNCTIONS.values()]), 49),
    ("longest file", 699, FILE_LINES, 686),
    ("lowest maintainability index", 0, int(min([MAINTAINABILITY, *HARD_TO_MAINTAIN.values()])), 20),
)
"""What is measured, its figure before the packages were split into today's, its limit, and the target."""
