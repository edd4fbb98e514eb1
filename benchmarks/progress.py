"""The progress of a case: a bar on a terminal, otherwise one line for every round."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

_STEPS: Final = 1000


def minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


class CaseProgress:
    """The remaining time is estimated from the last run of the case, or else from its rounds so far."""

    def __init__(self, case: str, rounds: int, expected_s: float, console: Console | None = None) -> None:
        self._case, self._rounds, self._expected_s = case, rounds, expected_s
        self._console = console or Console(stderr=True)
        self._began = time.monotonic()
        self._round = 0
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"))
        self._bar = Progress(*columns, console=self._console, transient=True, disable=not self._console.is_terminal)
        self._task = self._bar.add_task(case, total=_STEPS, left="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.stop()

    def attempt(self, series: str, server: str, number: int) -> None:
        """Called before each measurement."""
        left_s = self.left_s(number, time.monotonic() - self._began)
        left = "" if left_s is None else f"about {minutes(left_s)} left"
        what = f"{self._case}, round {number} of {self._rounds}"
        done = (number - 1) / self._rounds if number else 0.0
        self._bar.update(self._task, completed=_STEPS * done, description=f"{what}: {series}, {server}", left=left)
        if number > self._round and not self._console.is_terminal:
            print(f"benchmarks:   {what}{', ' * bool(left)}{left}", flush=True)
        self._round = max(self._round, number)

    def left_s(self, number: int, elapsed_s: float) -> float | None:
        """None if nothing is known yet."""
        if self._expected_s:
            return max(0.0, self._expected_s - elapsed_s)
        if number < 2:
            return None
        return elapsed_s / (number - 1) * (self._rounds - number + 1)
