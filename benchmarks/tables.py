"""Figures and tables as the page shows them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from benchmarks.measure import Spread, spread

NOTHING: Final = "–"


TIMES: Final = "×"


@dataclass(frozen=True)
class Target:
    """A bound on the ratio to another server, or, with a unit, on the figure itself."""

    bound: Literal["at least", "at most"]
    value: float
    unit: str = TIMES

    def __str__(self) -> str:
        return f"{'≥' if self.bound == 'at least' else '≤'} {self.value:g}{self.unit}"

    def met(self, measured: float) -> bool:
        return measured >= self.value if self.bound == "at least" else measured <= self.value

    def shown(self, measured: Spread) -> str:
        if self.unit == TIMES:
            return times(measured)
        return f"**{number(measured.median)}{self.unit}** [{number(measured.low)} – {number(measured.high)}]"


@dataclass(frozen=True)
class Verdict:
    """One line of the summary: a target and its measurement."""

    what: str
    target: Target
    measured: Spread

    @property
    def met(self) -> bool:
        return self.target.met(self.measured.median)


def number(value: float) -> str:
    """Such measurements have fewer than three significant digits."""
    size = abs(value)
    if size >= 999_500:
        return f"{value / 1e6:.2f} M"
    if size >= 9_995:
        return f"{value / 1e3:.0f} k"
    if size >= 100:
        return f"{value:.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 0.01 or size == 0:
        return f"{value:.2f}"
    return f"{value:.4f}" if size >= 0.00005 else "0.00"


def figure(values: Sequence[float]) -> str:
    """The median and, in brackets, the minimum and maximum of the rounds."""
    if not values:
        return NOTHING
    all_rounds = spread(values)
    return f"{number(all_rounds.median)} [{number(all_rounds.low)} – {number(all_rounds.high)}]"


def median(values: Sequence[float]) -> str:
    return number(spread(values).median) if values else NOTHING


def times(ratio: Spread | None) -> str:
    if ratio is None:
        return NOTHING
    return f"**{_ratio(ratio.median)}×** [{_ratio(ratio.low)} – {_ratio(ratio.high)}]"


def _ratio(value: float) -> str:
    return f"{value:.3f}" if value < 0.1 else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def paragraph(text: str) -> str:
    """Wraps text into lines, for readable diffs."""
    return textwrap.fill(text, width=120, break_long_words=False, break_on_hyphens=False)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table: the first column is text, the others are figures."""
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *rows)] + [""]


def summary(verdicts: Sequence[tuple[Verdict, str]]) -> list[str]:
    """Each verdict with a note on its rounds, if there is one."""
    return table(
        ("benchmark", "target", "result", "verdict"),
        [
            (
                verdict.what,
                str(verdict.target),
                verdict.target.shown(verdict.measured),
                ("met" if verdict.met else "**not met**") + (f" ({note})" if note else ""),
            )
            for verdict, note in verdicts
        ],
    )
