"""A scenario: a short play for some members, with the number of its behaviour and the versions it can be played in."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from tests.conformance.scene import Scene
from tests.conformance.versions import ROWS, Row

REST = "…"
Play = Callable[[Scene], None]


@dataclass(frozen=True, slots=True)
class Listed:
    """A difference that docs/differences.md lists: where Kafka's line says `kafka`, Holdfast's says `holdfast`.

    Either a part of the line, whose rest is the same; or, with … for what is not told, the whole line.
    """

    number: int
    kafka: str
    holdfast: str

    def explains(self, kafka: str, holdfast: str) -> bool:
        if REST in self.kafka + self.holdfast:
            return _is_line(self.kafka, kafka) and _is_line(self.holdfast, holdfast)
        return self.kafka in kafka and kafka.replace(self.kafka, self.holdfast) == holdfast


def _is_line(told: str, line: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, told.split(REST))), line) is not None


class Theatre(Enum):
    """The pair of servers that a play needs."""

    LASTING = auto()
    """They are there for the whole run."""
    MORTAL = auto()
    """They are killed and started again in the middle of a play (see `servers`)."""
    FORGETFUL = auto()
    """They keep offsets for a minute only. All their plays are played at once, for each lasts as long as that."""


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    behaviours: tuple[int, ...]
    """Numbers of section 6 of the group semantics; empty: found beside them."""
    play: Play
    rows: tuple[Row, ...]
    listed: tuple[Listed, ...]
    after_deletions: bool
    """Difference 22: generations are counted from the first one heard."""
    theatre: Theatre = Theatre.LASTING


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    *behaviours: int,
    since: int = 0,
    until: int = 9,
    listed: Sequence[Listed] = (),
    after_deletions: bool = False,
    theatre: Theatre = Theatre.LASTING,
) -> Callable[[Play], Play]:
    """Declare a play. `since` and `until` are rows of versions (see `versions`)."""

    def declare(play: Play) -> Play:
        name = play.__name__
        assert name not in SCENARIOS, f"two scenarios are called {name}"
        rows = ROWS[since : until + 1]
        SCENARIOS[name] = Scenario(name, behaviours, play, rows, tuple(listed), after_deletions, theatre)
        return play

    return declare
