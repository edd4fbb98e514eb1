"""What a round measured, and what several rounds come to: medians with their spread, and ratios within a round."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

HOLDFAST: Final = "holdfast"
KAFKA: Final = "kafka"
ECHO: Final = "echo"
MOCK: Final = "mock"

MILLION: Final = 1_000_000


@dataclass(frozen=True)
class Row:
    """One measurement: of one server, in one round."""

    series: str
    server: str
    round: int
    values: dict[str, float]


@dataclass
class Result:
    """All rounds of one case, and what one must know to judge them."""

    case: str
    settings: dict[str, Any]
    rows: list[Row]
    taken: str = ""
    machine: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(stored: dict[str, Any]) -> Result:
        return Result(**{**stored, "rows": [Row(**row) for row in stored["rows"]]})

    def values(self, series: str, server: str, name: str) -> list[float]:
        """One figure over all rounds, in the order of the rounds."""
        rows = sorted(self._rows(series, server), key=lambda row: row.round)
        return [row.values[name] for row in rows if name in row.values]

    def has(self, series: str, server: str) -> bool:
        return any(True for _ in self._rows(series, server))

    def ratio(self, series: str, name: str, over: str = KAFKA) -> Spread | None:
        """Holdfast divided by another server, round by round: what both met in one round cancels out."""
        ours = {row.round: row.values[name] for row in self._rows(series, HOLDFAST) if name in row.values}
        theirs = {row.round: row.values[name] for row in self._rows(series, over) if name in row.values}
        ratios = [ours[number] / theirs[number] for number in sorted(ours) if theirs.get(number)]
        return spread(ratios) if ratios else None

    def _rows(self, series: str, server: str) -> Iterator[Row]:
        return (row for row in self.rows if row.series == series and row.server == server)


@dataclass(frozen=True)
class Spread:
    median: float
    low: float
    high: float
    count: int


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values), len(values))


@dataclass(frozen=True)
class Plan:
    """How long to measure. `quick` is for seeing that the harness works; its figures are worth nothing."""

    rounds: int
    quick: bool

    def pick(self, full: int, quick: int) -> int:
        return quick if self.quick else full


def alternating(servers: Iterable[str], round_number: int) -> list[str]:
    """The order in one round: who goes first changes, so that neither always finds the machine as the other left it."""
    order = list(servers)
    return order if round_number % 2 else order[::-1]


def growth(samples: Sequence[float]) -> float:
    """Whether something grows with time: its median in the last quarter over that in the second.

    The first quarter is for warming up.
    """
    quarter = len(samples) // 4
    if not quarter:
        raise ValueError(f"{len(samples)} samples have no quarters")
    return statistics.median(samples[-quarter:]) / statistics.median(samples[quarter : 2 * quarter])


def per_million(cpu_seconds: float, count: float) -> float:
    """CPU seconds for a million operations."""
    return cpu_seconds / count * MILLION if count else 0.0
