"""The longest pause of Holdfast's event loop under load, compared with that of a process that only waits."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from benchmarks.cases import throughput
from benchmarks.measure import HOLDFAST, Plan, Result, Row
from benchmarks.results import REPOSITORY
from benchmarks.servers import longest_pause_ms, settle
from benchmarks.tables import figure, paragraph, table
from tests.support.holdfast_broker import HoldfastBroker

NAME: Final = "pauses"
RULE_MS: Final = 5
"""Nothing should block the event loop for longer than this."""

_STOP_TIMEOUT_S: Final = 10


def run(plan: Plan) -> Result:
    wide = [shape for shape in throughput.shapes(plan) if shape.partitions > 1]
    rows: list[Row] = []
    for number in range(1, plan.rounds + 1):
        for shape in wide:
            with plan.attempt(shape.label, HOLDFAST, number):
                rows.append(Row(shape.label, HOLDFAST, number, _round(shape)))
    return Result(NAME, {"records": {shape.label: shape.records for shape in wide}}, rows)


def _round(shape: throughput.Shape) -> dict[str, float]:
    """A separate broker, so that the pause that it logs at shutdown is that of this load."""
    broker = HoldfastBroker()
    try:
        broker.start()
        settle()
        probe = subprocess.Popen(
            [sys.executable, str(REPOSITORY / "benchmarks" / "wakeup_probe.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        throughput.measure(broker, HOLDFAST, shape, 1)
        printed, _ = probe.communicate(timeout=_STOP_TIMEOUT_S)
        broker.stop()
        return {"pause_ms": longest_pause_ms(broker.log_text()), "bystander_ms": float(printed)}
    finally:
        broker.__exit__(None, None, None)


def section(result: Result) -> list[str]:
    records = "; ".join(f"{series}: {count:,}" for series, count in result.settings["records"].items())
    text = (
        f"In every round, a new broker serves the load of the section “Produce and consume” (records: {records}). The"
        " event loop of the broker ticks every 50 ms. When the broker stops, it logs the longest delay of a tick."
        " During the same load, another process does nothing but tick. The delays of this process show the effect of"
        f" the machine and of its scheduler. No task may run on the event loop for longer than {RULE_MS} ms. If the two"
        " figures of a row are close to each other, the machine causes the delay, not the broker."
    )
    rows = [
        (
            series,
            figure(result.values(series, HOLDFAST, "pause_ms")),
            figure(result.values(series, HOLDFAST, "bystander_ms")),
        )
        for series in result.settings["records"]
    ]
    return [
        paragraph(text),
        "",
        *table(("longest pause, ms", "Holdfast's event loop", "a process that does nothing but tick"), rows),
    ]
