"""Spark applications in one group that are restarted one after the other, and the effects on the others."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.spark_application import SparkApplication
from benchmarks.steady import records, until
from tests.holdfast_client.group_history import Generation, read_history

PATIENCE_S: Final = 600
TRIGGER_MS: Final = 200
SESSION_MS: Final = 180_000
"""A restart must not exceed this, however busy the machine is."""
SETTLED_S: Final = 4.0
"""Longer than the heartbeat interval, in which members learn of a rebalance."""


class App(SparkApplication):
    """The effects of its own restart are not counted."""

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
        super().__init__("benchmarks.spark_member", settings, directory)

    def has_rows(self) -> bool:
        """Since it was started."""
        self.check()
        return bool(self.events)

    def batches(self, began_s: float, ended_s: float) -> list[dict[str, float]]:
        """The batches that ended in this window, if it ran all the time, and the one before them."""
        inside = [number for number, one in enumerate(self.events) if began_s <= one["ended_s"] <= ended_s]
        return self.events[max(0, inside[0] - 1) : inside[-1] + 1] if inside else []


def rolling(bootstrap: str, topic: str, partitions: int, group: str, apps: int, static: bool) -> dict[str, float]:
    """Restarts each of the applications, then, as the control, an unrelated one."""
    with tempfile.TemporaryDirectory(prefix="rolling-") as directory, records(bootstrap, topic, partitions, PATIENCE_S):
        instance_ids = [f"query-{number}" if static else None for number in range(1, apps + 1)]
        everybody = [
            App(bootstrap, topic, group, instance_id, Path(directory) / f"{number}")
            for number, instance_id in enumerate(instance_ids)
        ]
        with _running(everybody):
            before = _settled_generation(bootstrap, group)
            windows = []
            for app in everybody:
                others = [other for other in everybody if other is not app]
                windows.append(_window(others, partial(_restart, app)))
            after = _settled_generation(bootstrap, group)
            unrelated = App(bootstrap, topic, f"{group}-other", None, Path(directory) / "unrelated")
            control = _window(everybody, lambda: _start_and_stop(unrelated))
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
    """The observations of the others while the action ran, and until a rebalance would have been noticed."""
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
        # An application that has stopped reading also has a gap.
        gaps += [later - earlier for earlier, later in zip(ends, [*ends[1:], ended_s], strict=True)] or [
            ended_s - began_s
        ]
        waits += [one["latest_offset_s"] for one in batches]
    return {"took_s": took_s, "gap_s": max(gaps), "latest_offset_s": max(waits, default=0.0)}


def _settled_generation(bootstrap: str, group: str) -> int:
    """The group's generation, after it has been unchanged for longer than it takes to notice a rebalance."""
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
    """The generation in the coordinator's records."""
    numbers = [one.number for one in read_history(bootstrap, group) if isinstance(one, Generation)]
    return max(numbers, default=0)


@contextmanager
def _running(apps: Sequence[App]) -> Iterator[None]:
    """One after the other, because Spark fails a query whose Python process needs more than ten seconds to start."""
    with ExitStack() as stack:
        for app in apps:
            stack.callback(app.stop)
            app.start()
            until(app.has_rows, "a query that was started has rows", PATIENCE_S)
        yield
