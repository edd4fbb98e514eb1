"""A scenario: a short play for some members, with the number of its behaviour and the versions it can be played in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.conformance.scene import Scene
from tests.conformance.versions import ROWS, Row

Play = Callable[[Scene], None]


@dataclass(frozen=True, slots=True)
class Listed:
    """A difference that docs/differences.md lists: where Kafka's line says `kafka`, Holdfast's says `holdfast`."""

    number: int
    kafka: str
    holdfast: str


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    behaviours: tuple[int, ...]
    """Numbers of section 6 of the group semantics; empty: found beside them."""
    play: Play
    rows: tuple[Row, ...]
    listed: tuple[Listed, ...]


SCENARIOS: dict[str, Scenario] = {}


def scenario(*behaviours: int, since: int = 0, until: int = 9, listed: Sequence[Listed] = ()) -> Callable[[Play], Play]:
    """Declare a play. `since` and `until` are rows of versions (see `versions`)."""

    def declare(play: Play) -> Play:
        name = play.__name__
        assert name not in SCENARIOS, f"two scenarios are called {name}"
        SCENARIOS[name] = Scenario(name, behaviours, play, ROWS[since : until + 1], tuple(listed))
        return play

    return declare
