"""Spark applications in one group that are restarted one after the other, and what the others notice of it."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from bench.spark_application import SparkApplication
from bench.steady import records, until
from tests.client.group_history import Generation, read_history

PATIENCE_S: Final = 600
TRIGGER_MS: Final = 200
SESSION_MS: Final = 180_000
"""Which a restart must not exceed, however busy the machine is."""
SETTLED_S: Final = 4.0
"""Longer than the interval of heartbeats, in which members hear of a rebalance."""


class App(SparkApplication):
    """What its own restart does to it is not counted."""

    def __init__(self, bootstrap: str, topic: str, group: str, instance: str | None, directory: Path) -> None:
        directory.mkdir()
        settings = {
            "bootstrap": bootstrap,
            "topic": topic,
            "group": group,
            "instance": instance,
            "checkpoint": str(directory / "checkpoint"),
            "trigger_ms": TRIGGER_MS,
            "session_ms": SESSION_MS,
        }
        super().__init__("bench.spark_member", settings, directory)

    def has_rows(self) -> bool:
        """Since it was started."""
        self.check()
        return bool(self.told)

    def batches(self, began_s: float, ended_s: float) -> list[dict[str, float]]:
        """Those that ended in this window, if it ran all the time, and the one before them."""
        inside = [number for number, one in enumerate(self.told) if began_s <= one["ended_s"] <= ended_s]
        return self.told[max(0, inside[0] - 1) : inside[-1] + 1] if inside else []


def rolling(bootstrap: str, topic: str, partitions: int, group: str, apps: int, static: bool) -> dict[str, float]:
    """Restarts each of the applications, then, as the control, one that has nothing to do with them."""
    with tempfile.TemporaryDirectory(prefix="rolling-") as directory, records(bootstrap, topic, partitions, PATIENCE_S):
        seats = [f"query-{number}" if static else None for number in range(1, apps + 1)]
        everybody = [
            App(bootstrap, topic, group, seat, Path(directory) / f"{number}") for number, seat in enumerate(seats)
        ]
        with _running(everybody):
            before = _settled_generation(bootstrap, group)
            windows = []
            for app in everybody:
                others = [other for other in everybody if other is not app]
                windows.append(_window(others, partial(_restart, app)))
            after = _settled_generation(bootstrap, group)
            stranger = App(bootstrap, topic, f"{group}-other", None, Path(directory) / "stranger")
            control = _window(everybody, lambda: _start_and_stop(stranger))
            undisturbed = _settled_generation(bootstrap, group) - after
    return {
        "rebalances": after - before,
        "control_rebalances": undisturbed,
        "gap_s": max(window["gap_s"] for window in windows),
        "control_gap_s": control["gap_s"],
        "latest_offset_s": max(window["latest_offset_s"] for window in windows),
        "control_latest_offset_s": control["latest_offset_s"],
        "away_s": statistics.median(window["took_s"] for window in windows),
    }


def _restart(app: App) -> None:
    app.stop()
    app.start()
    until(app.has_rows, "a restarted query has rows", PATIENCE_S)


def _start_and_stop(app: App) -> None:
    with _running([app]):
        pass


def _window(others: Sequence[App], action: Callable[[], None]) -> dict[str, float]:
    """What the others saw while the action ran, and for as long after it as a rebalance takes to be heard of."""
    began_s = time.time()
    action()
    took_s = time.time() - began_s
    time.sleep(SETTLED_S)
    ended_s = time.time()
    gaps: list[float] = []
    waits: list[float] = []
    for app in others:
        batches = app.batches(began_s, ended_s)
        ends = [one["ended_s"] for one in batches]
        # Who reads nothing any more has a gap, too.
        gaps += [later - earlier for earlier, later in zip(ends, [*ends[1:], ended_s], strict=True)] or [
            ended_s - began_s
        ]
        waits += [one["latest_offset_s"] for one in batches]
    return {"took_s": took_s, "gap_s": max(gaps), "latest_offset_s": max(waits, default=0.0)}


def _settled_generation(bootstrap: str, group: str) -> int:
    """The group's generation, when it has been the same for longer than a rebalance goes unnoticed."""
    deadline = time.monotonic() + PATIENCE_S
    seen, since = _generation(bootstrap, group), time.monotonic()
    while time.monotonic() - since < SETTLED_S:
        time.sleep(SETTLED_S / 4)
        if (now := _generation(bootstrap, group)) != seen:
            seen, since = now, time.monotonic()
        if time.monotonic() > deadline:
            raise RuntimeError("the group does not come to rest")
    return seen


def _generation(bootstrap: str, group: str) -> int:
    """As the coordinator has stored it."""
    numbers = [one.number for one in read_history(bootstrap, group) if isinstance(one, Generation)]
    return max(numbers, default=0)


@contextmanager
def _running(apps: Sequence[App]) -> Iterator[None]:
    """One after the other: Spark gives up a query whose Python needs more than ten seconds to come up."""
    with ExitStack() as stack:
        for app in apps:
            stack.callback(app.stop)
            app.start()
            until(app.has_rows, "a query that was started has rows", PATIENCE_S)
        yield
