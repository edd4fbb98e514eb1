"""docs/performance.md from the stored rounds: `python -m bench.render`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.cases import CASES
from bench.measure import Result
from bench.results import REPOSITORY, RESULTS, load
from bench.tables import Verdict, summary

PAGE: Final = REPOSITORY / "docs" / "performance.md"

_OPENING: Final = """\
# Performance

Holdfast and Apache Kafka, side by side on one machine. This page is rendered from the stored rounds in
`bench/results/` by `python -m bench.render`; `make bench` takes new ones.
"""

_METHOD: Final = """\
## How to read this

The servers take turns within every round, and who goes first changes from round to round, unless a section says
otherwise. A figure is the median over the rounds, with the least and the most in brackets. A ratio is formed within
each round, Holdfast divided by the other, and then treated the same way: what disturbs both in one round cancels out,
so trust the ratios more than the absolute figures, and differences within the brackets not at all. Beside every rate
stands the CPU time that a million operations cost the server and the client. Load and servers share the cores of one
machine, over loopback: these are not the figures of a network or of a cluster. A target that is not met is shown as
such and fails nothing.
"""

_MACHINE_WORDS: Final = {
    "cores": "cores",
    "processor": "processor",
    "memory_gib": "memory, GiB",
    "system": "system",
    "load_before": "load average before the run",
    "python": "Python",
    "holdfast": "Holdfast",
    "apache_kafka": "Apache Kafka",
    "java": "Java",
}
_PER_RUN: Final = frozenset({"load_before"})
"""Differs from case to case although the machine is the same."""


def render(results: Sequence[tuple[str, str, Result | None]]) -> str:
    """The page; `results` are (name, title, rounds or None) in the order of the page."""
    lines = [_OPENING, *_summary(results), _METHOD]
    for name, title, result in results:
        lines += [f"## {title}", ""]
        if result is None:
            lines += [f"Not measured yet: `python -m bench --only {name}` does.", ""]
        else:
            lines += [_taken(result), "", *_section(name, result)]
    lines += _machine([result for _, _, result in results if result is not None])
    return "\n".join(lines).rstrip("\n") + "\n"


def render_page(directory: Path = RESULTS) -> str:
    return render([(case.name, case.title, load(case.name, directory)) for case in CASES])


def _section(name: str, result: Result) -> list[str]:
    return next(case.section(result) for case in CASES if case.name == name)


def _summary(results: Sequence[tuple[str, str, Result | None]]) -> list[str]:
    targeted = {case.name: case.verdicts for case in CASES}
    verdicts: list[Verdict] = []
    for name, _, result in results:
        if result is not None:
            verdicts += targeted[name](result)
    if not verdicts:
        return []
    met = sum(verdict.met for verdict in verdicts)
    return ["## The targets", "", f"{met} of {len(verdicts)} are met.", "", *summary(verdicts)]


def _taken(result: Result) -> str:
    rounds = max((row.round for row in result.rows), default=0)
    load_before = result.machine.get("load_before", "unknown")
    return f"*{rounds} rounds on {result.taken}; load average before the run: {load_before}.*"


def _machine(results: Sequence[Result]) -> list[str]:
    """One list where all cases were taken on the same machine, else one for each kind."""
    kinds: list[tuple[dict[str, Any], list[str]]] = []
    for result in results:
        fixed = {name: value for name, value in result.machine.items() if name not in _PER_RUN}
        for known, cases in kinds:
            if known == fixed:
                cases.append(result.case)
                break
        else:
            kinds.append((fixed, [result.case]))
    if not kinds:
        return []
    lines = ["## The machine", ""]
    for fixed, cases in kinds:
        lines += [f"For {', '.join(cases)}:", ""] if len(kinds) > 1 else []
        lines += [*_facts(fixed), ""]
    return lines


def _facts(machine: Mapping[str, Any]) -> list[str]:
    return [f"- {_MACHINE_WORDS.get(name, name)}: {value}" for name, value in machine.items()]


def main() -> None:
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(render_page())
    print(f"wrote {PAGE.relative_to(REPOSITORY)}")


if __name__ == "__main__":
    main()
