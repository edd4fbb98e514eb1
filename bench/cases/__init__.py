"""One module per measurement: `run` takes the rounds, `section` shows them, `verdicts` holds them to the targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bench.cases import codec, flush, latency, pauses, requests, start, throughput
from bench.measure import Plan, Result
from bench.tables import Verdict


@dataclass(frozen=True)
class Case:
    name: str
    title: str
    run: Callable[[Plan], Result]
    section: Callable[[Result], list[str]]
    verdicts: Callable[[Result], list[Verdict]]


def _no_target(_: Result) -> list[Verdict]:
    return []


CASES: Final = (
    Case(start.NAME, "Start and idle memory", start.run, start.section, start.verdicts),
    Case(throughput.NAME, "Produce and consume", throughput.run, throughput.section, throughput.verdicts),
    Case(requests.NAME, "Small requests", requests.run, requests.section, requests.verdicts),
    Case(latency.NAME, "Latency of single records", latency.run, latency.section, _no_target),
    Case(pauses.NAME, "Pauses of the event loop", pauses.run, pauses.section, _no_target),
    Case(flush.NAME, "Flushing before every acknowledgement", flush.run, flush.section, _no_target),
    Case(codec.NAME, "Codec", codec.run, codec.section, _no_target),
)
"""In the order of the page."""
