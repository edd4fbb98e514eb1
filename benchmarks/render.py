"""docs/performance.md from the stored rounds: `python -m benchmarks.render`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.cases import CASES
from benchmarks.measure import HOLDFAST, KAFKA, Failure, Result
from benchmarks.quiet import QUIET_LOAD
from benchmarks.results import REPOSITORY, RESULTS, load
from benchmarks.tables import Verdict, paragraph, summary

PAGE: Final = REPOSITORY / "docs" / "performance.md"
PICTURES: Final = "images"
"""Below the directory of the page."""
MIN_ROUNDS: Final = 5

_OPENING: Final = """\
# Performance

This page compares Holdfast and Apache Kafka on one machine. `python -m benchmarks.render` renders the page from the
stored rounds in `benchmarks/results/`. `make bench` measures new rounds and renders the page again.
"""

_METHOD: Final = f"""\
## How to read this page

Unless a section says otherwise, every round measures each server once. The order of the servers changes from round to
round. A figure is the median of the rounds, followed by the minimum and the maximum in brackets. A ratio is Holdfast's
figure divided by the figure of the other server in the same round. A disturbance that affects both servers in a round
therefore cancels out. The page shows the median, minimum and maximum of the ratios. Trust the ratios more than the
absolute figures. Ignore a difference between two figures if their brackets overlap. In addition to rates, most tables
show the CPU time of the server and of the client per million operations. “CPU s/M” means CPU seconds per million
operations. Load generators and servers run on the cores of one machine and communicate over loopback. The figures do
not apply to a network or to a cluster. A benchmark does not fail if Holdfast misses a target. The page marks the target
instead.

Each section shows the date of its rounds, the number of rounds, and the load average of the machine before the run. A
machine is quiet if its load average is below {QUIET_LOAD}. A result is provisional if the machine was not quiet or if
the result has fewer than {MIN_ROUNDS} rounds. The page marks provisional results and the targets that depend on them.
If a server fails in a round, the section names the server and the reason. In this case, the ratios include only the
rounds that both servers completed.
"""

_MACHINE_WORDS: Final = {
    "cores": "cores",
    "processor": "processor",
    "memory_gib": "memory, GiB",
    "system": "operating system",
    "python": "Python",
    "holdfast": "Holdfast",
    "apache_kafka": "Apache Kafka",
    "java": "Java",
}
_SERVERS: Final = {HOLDFAST: "Holdfast", KAFKA: "Apache Kafka"}
_PER_RUN: Final = frozenset({"load_before", "others_before", "others_during", "commit"})
"""Differs from case to case although the machine is the same."""


def render(results: Sequence[tuple[str, str, Result | None]]) -> str:
    """The page; `results` are (name, title, rounds or None) in the order of the page."""
    lines = [_OPENING, *_summary(results), _METHOD]
    for name, title, result in results:
        lines += [f"## {title}", ""]
        if result is None:
            lines += [f"Not measured yet. Run `python -m benchmarks --only {name}`.", ""]
        else:
            lines += [_taken(result), "", *failure_lines(result), *_section(name, result)]
    lines += _machine([result for _, _, result in results if result is not None])
    return "\n".join(lines).rstrip("\n") + "\n"


def render_page(directory: Path = RESULTS) -> str:
    return render([(case.name, case.title, load(case.name, directory)) for case in CASES])


def _section(name: str, result: Result) -> list[str]:
    return next(case.section(result) for case in CASES if case.name == name)


def _summary(results: Sequence[tuple[str, str, Result | None]]) -> list[str]:
    targeted = {case.name: case.verdicts for case in CASES}
    verdicts: list[tuple[Verdict, str]] = []
    for name, _, result in results:
        if result is not None:
            note = ", ".join(_marks(result))
            verdicts += [(verdict, note) for verdict in targeted[name](result)]
    if not verdicts:
        return []
    met = sum(verdict.met for verdict, _ in verdicts)
    unmarked = [verdict for verdict, note in verdicts if not note]
    said = f"Holdfast meets {met} of {len(verdicts)} targets."
    if len(unmarked) < len(verdicts):
        said += (
            f" For {len(unmarked)} targets, there are at least {MIN_ROUNDS} rounds without failures on a quiet machine."
            f" Holdfast meets {sum(verdict.met for verdict in unmarked)} of these targets. The other targets have a"
            " note in the last column."
        )
    return ["## The targets", "", paragraph(said), "", *summary(verdicts)]


def _marks(result: Result) -> list[str]:
    """Why a result is less reliable than the method implies."""
    load_before, ours = result.machine.get("load_before"), [one for one in result.failures if one.server == HOLDFAST]
    marks = []
    if load_before is None:
        marks.append("load not recorded")
    elif load_before >= QUIET_LOAD:
        marks.append(f"load {load_before:g}")
    if result.rounds < MIN_ROUNDS:
        marks.append(f"{result.rounds} round{'s' if result.rounds != 1 else ''}")
    if ours:
        marks.append(f"failed in {_times(ours, result)}")
    return marks


def _taken(result: Result) -> str:
    """One line above each section."""
    machine = result.machine
    commit = f", commit {machine['commit']}" if "commit" in machine else ""
    during = (
        f"; CPU use of other processes during the run: {machine['others_during']} cores"
        if "others_during" in machine
        else ""
    )
    load_before = machine.get("load_before", "not recorded")
    rounds = f"{result.rounds} round{'s' if result.rounds != 1 else ''}"
    line = f"*{rounds} on {result.taken}{commit}; load average before the run: {load_before}{during}.*"
    below = [] if result.rounds >= MIN_ROUNDS else [f"in fewer than {MIN_ROUNDS} rounds"]
    if "load_before" in machine and machine["load_before"] >= QUIET_LOAD:
        below.append("under load")
    return f"{line} **Provisional: measured {' and '.join(below)}.**" if below else line


def failure_lines(result: Result) -> list[str]:
    """One line for each server and series that failed."""
    failed: dict[tuple[str, str], list[Failure]] = {}
    for failure in result.failures:
        failed.setdefault((failure.server, failure.series), []).append(failure)
    lines = [
        f"- Failed on {_SERVERS.get(server, server)} in {_times(those, result)} ({series}): {those[-1].reason}"
        for (server, series), those in failed.items()
    ]
    return [*lines, ""] if lines else []


def _times(failures: Sequence[Failure], result: Result) -> str:
    """In how many of the rounds that were tried."""
    numbers = {failure.round for failure in failures}
    servers, series = {failure.server for failure in failures}, {failure.series for failure in failures}
    tried = numbers | {row.round for row in result.rows if row.server in servers and row.series in series}
    if numbers == {0}:
        return "the warm-up"
    return f"{len(numbers - {0})} of {len(tried - {0})} rounds"


def _machine(results: Sequence[Result]) -> list[str]:
    """One list if all cases were measured on the same machine, otherwise one for each machine."""
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
        lines += [f"Machine for the cases {', '.join(cases)}:", ""] if len(kinds) > 1 else []
        lines += [*_facts(fixed), ""]
    return lines


def _facts(machine: Mapping[str, Any]) -> list[str]:
    return [f"- {_MACHINE_WORDS.get(name, name)}: {value}" for name, value in machine.items()]


def render_pictures(directory: Path = RESULTS) -> dict[str, str]:
    """The pictures of the page by the names of their files."""
    stored = ((case, load(case.name, directory)) for case in CASES)
    pictures: dict[str, str] = {}
    for case, result in stored:
        pictures |= case.pictures(result) if result is not None else {}
    return pictures


def write_page(directory: Path = RESULTS, page: Path = PAGE) -> None:
    """The page and its pictures."""
    (page.parent / PICTURES).mkdir(parents=True, exist_ok=True)
    page.write_text(render_page(directory))
    for name, picture in render_pictures(directory).items():
        (page.parent / PICTURES / name).write_text(picture)


def main() -> None:
    write_page()
    print(f"wrote {PAGE.relative_to(REPOSITORY)}")


if __name__ == "__main__":
    main()
