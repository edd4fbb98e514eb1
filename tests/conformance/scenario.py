"""A scenario: a short script for some members, the behaviours that it shows and the versions that it runs in."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from tests.conformance.recorder import Recorder
from tests.conformance.versions import ROWS, Row

REST = "…"
Script = Callable[[Recorder], None]


@dataclass(frozen=True, slots=True)
class Listed:
    """A difference that docs/differences.md lists: where Kafka's line says `kafka`, Holdfast's says `holdfast`.

    Either a part of the line, whose rest is the same; or, with … for any text, the whole line.
    """

    number: int
    kafka: str
    holdfast: str

    def explains(self, kafka: str, holdfast: str) -> bool:
        if REST in self.kafka + self.holdfast:
            return _is_line(self.kafka, kafka) and _is_line(self.holdfast, holdfast)
        return self.kafka in kafka and kafka.replace(self.kafka, self.holdfast) == holdfast


def _is_line(pattern: str, line: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split(REST))), line) is not None


class Environment(Enum):
    """The pair of servers that a script needs."""

    PERMANENT = auto()
    """They are there for the whole run."""
    RESTARTED = auto()
    """They are killed and started again in the middle of a script (see `servers`)."""
    SHORT_RETENTION = auto()
    """They keep offsets for a minute only. All their scenarios run at once, because each lasts as long as that."""


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    behaviours: tuple[int, ...]
    """Keys of `behaviours.BEHAVIOURS`; empty: it shows another one."""
    script: Script
    rows: tuple[Row, ...]
    listed: tuple[Listed, ...]
    after_deletions: bool
    """Difference 22: generations are counted from the first one received."""
    environment: Environment = Environment.PERMANENT


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    *behaviours: int,
    since: int = 0,
    until: int = 9,
    listed: Sequence[Listed] = (),
    after_deletions: bool = False,
    environment: Environment = Environment.PERMANENT,
) -> Callable[[Script], Script]:
    """Declare a script. `since` and `until` are rows of versions (see `versions`)."""

    def declare(script: Script) -> Script:
        name = script.__name__
        assert name not in SCENARIOS, f"two scenarios are called {name}"
        rows = ROWS[since : until + 1]
        SCENARIOS[name] = Scenario(name, behaviours, script, rows, tuple(listed), after_deletions, environment)
        return script

    return declare
