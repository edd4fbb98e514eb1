"""The longest pause of Holdfast's event loop under load, beside what the machine does to a process that only waits."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from bench.cases import throughput
from bench.measure import HOLDFAST, Plan, Result, Row
from bench.results import REPOSITORY
from bench.servers import longest_pause_ms, settle
from bench.tables import figure, paragraph, table
from tests.support.holdfast_broker import HoldfastBroker

NAME: Final = "pauses"
RULE_MS: Final = 5
"""Nothing runs longer than this on the event loop."""

_STOP_TIMEOUT_S: Final = 10


def run(plan: Plan) -> Result:
    wide = [shape for shape in throughput.shapes(plan) if shape.partitions > 1]
    rows = [Row(shape.label, HOLDFAST, number, _round(shape)) for number in range(1, plan.rounds + 1) for shape in wide]
    return Result(NAME, {"records": {shape.label: shape.records for shape in wide}}, rows)


def _round(shape: throughput.Shape) -> dict[str, float]:
    """A broker of its own: the pause that it logs at its end is that of this load."""
    broker = HoldfastBroker()
    try:
        broker.start()
        settle()
        bystander = subprocess.Popen(
            [sys.executable, str(REPOSITORY / "bench" / "bystander.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        throughput.measure(broker, HOLDFAST, shape, 1)
        said, _ = bystander.communicate(timeout=_STOP_TIMEOUT_S)
        broker.stop()
        return {"pause_ms": longest_pause_ms(broker.log_text()), "bystander_ms": float(said)}
    finally:
        broker.__exit__(None, None, None)


def section(result: Result) -> list[str]:
    records = "; ".join(f"{series}: {count:,}" for series, count in result.settings["records"].items())
    text = (
        "A fresh broker for every round takes and gives back the records of the section on produce and consume"
        f" ({records}). Its loop ticks every 50 ms, and when it stops it logs by how much the latest of all ticks was"
        " late. Beside it, during the same load, a process that does nothing but such ticks: what the machine and its"
        f" scheduler take away by themselves. The house rule is that nothing runs longer than {RULE_MS} ms on the loop;"
        " a figure near the bystander's is the machine's, not the broker's."
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
        *table(("longest pause, ms", "Holdfast's event loop", "a process that only waits"), rows),
    ]
