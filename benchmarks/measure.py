"""The measurements of rounds and their summaries: medians with their spread, and ratios within a round."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, TypeVar

HOLDFAST: Final = "holdfast"
KAFKA: Final = "kafka"
ECHO: Final = "echo"
MOCK: Final = "mock"

MILLION: Final = 1_000_000


Turn = TypeVar("Turn")
"""The items that take turns in a round: servers or sizes."""


@dataclass(frozen=True)
class Row:
    """One measurement: of one server, in one round."""

    series: str
    server: str
    round: int
    values: dict[str, float]


@dataclass(frozen=True)
class Failure:
    """A failed measurement: the server, the round and the reason."""

    series: str
    server: str
    round: int
    reason: str


@dataclass
class Result:
    """All rounds of one case, and the context that is needed to judge them."""

    case: str
    settings: dict[str, Any]
    rows: list[Row]
    taken: str = ""
    machine: dict[str, Any] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0
    """How long the case took, including the warm-up."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(stored: dict[str, Any]) -> Result:
        rows = [Row(**row) for row in stored["rows"]]
        failures = [Failure(**failure) for failure in stored.get("failures", ())]
        return Result(**{**stored, "rows": rows, "failures": failures})

    @property
    def rounds(self) -> int:
        """The number of attempted rounds."""
        numbers = [row.round for row in self.rows] + [failure.round for failure in self.failures]
        return max(numbers, default=0)

    def values(self, series: str, server: str, name: str) -> list[float]:
        """One figure over all rounds, in the order of the rounds."""
        rows = sorted(self._rows(series, server), key=lambda row: row.round)
        return [row.values[name] for row in rows if name in row.values]

    def by_round(self, series: str, server: str, name: str) -> dict[int, float]:
        return {row.round: row.values[name] for row in self._rows(series, server) if name in row.values}

    def has(self, series: str, server: str) -> bool:
        return any(True for _ in self._rows(series, server))

    def ratio(self, series: str, name: str, over: str = KAFKA) -> Spread | None:
        """Holdfast divided by another server, round by round, so that common effects in a round cancel out."""
        ours, theirs = self.by_round(series, HOLDFAST, name), self.by_round(series, over, name)
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


class Unavailable(Exception):
    """A case cannot be measured on this machine; the message is one line that says why."""


@dataclass(frozen=True)
class Plan:
    """How long to measure. `quick` only tests the harness; its figures are meaningless."""

    rounds: int
    quick: bool
    failures: list[Failure] = field(default_factory=list)
    on_attempt: Callable[[str, str, int], None] = lambda *_: None
    """Called before each measurement, to show how far a case is."""

    def pick(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def watched_by(self, on_attempt: Callable[[str, str, int], None]) -> Plan:
        """The same plan, with the same list of failures."""
        return replace(self, on_attempt=on_attempt)

    @contextlib.contextmanager
    def attempt(self, series: str, server: str, number: int) -> Iterator[None]:
        """One measurement. If it fails, the failure is recorded, and the case continues with the next one.

        Round 0 is the warm-up.
        """
        self.on_attempt(series, server, number)
        try:
            yield
        except Unavailable:
            raise
        except Exception as reason:  # noqa: BLE001 - a fault of one server must not cost the rounds of the others
            self.failures.append(Failure(series, server, number, _one_line(reason)))

    def has_failed(self, series: str, server: str) -> int:
        """In how many rounds so far."""
        return len({one.round for one in self.failures if (one.series, one.server) == (series, server)})


def _one_line(reason: Exception) -> str:
    """The first line of the message. A server's log, which may follow it, contains paths of the machine."""
    lines = str(reason).splitlines()
    return lines[0] if lines else type(reason).__name__


def alternating(servers: Iterable[Turn], round_number: int) -> list[Turn]:
    """The order in one round. The first one changes, so that neither always runs after the other."""
    order = list(servers)
    return order if round_number % 2 else order[::-1]


def growth(samples: Sequence[float]) -> float:
    """The growth of a figure over time: the ratio of its median in the last quarter to that in the second.

    The first quarter is the warm-up.
    """
    quarter = len(samples) // 4
    if not quarter:
        raise ValueError(f"{len(samples)} samples have no quarters")
    return statistics.median(samples[-quarter:]) / statistics.median(samples[quarter : 2 * quarter])


def per_million(cpu_seconds: float, count: float) -> float:
    """CPU seconds for a million operations."""
    return cpu_seconds / count * MILLION if count else 0.0
