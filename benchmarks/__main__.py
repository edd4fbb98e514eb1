"""Measures Holdfast and Apache Kafka, stores the rounds and renders docs/performance.md."""

from __future__ import annotations

import argparse
import datetime
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks import machine, quiet
from benchmarks.cases import CASES, Case
from benchmarks.measure import Failure, Plan, Result, Unavailable
from benchmarks.progress import CaseProgress, minutes
from benchmarks.render import MIN_ROUNDS, PAGE, write_page
from benchmarks.results import QUICK, REPOSITORY, RESULTS, load, store
from benchmarks.tables import Verdict
from tests.support.kafka_distribution import KafkaUnavailable

QUICK_ROUNDS: Final = 2
NOT_QUIET: Final = 3
"""Exit status if the machine did not become quiet. 1 is that of a run in which a case or a round failed."""
_NOISY_SPREAD: Final = 0.5
"""A target whose rounds differ by more than this part of their median is named in the summary."""


@dataclass(frozen=True)
class Outcome:
    """The result of one case."""

    case: str
    seconds: float
    error: str = ""
    failures: Sequence[Failure] = ()
    noise: Sequence[str] = ()
    verdicts: Sequence[Verdict] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return bool(self.error or self.failures)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else MIN_ROUNDS)
    results = QUICK if options.quick else RESULTS
    if options.quick:
        shutil.rmtree(results, ignore_errors=True)  # from a version that stored other figures
    page = results / PAGE.name if options.quick else PAGE
    is_loaded = options.quick or options.allow_load
    described = machine.describe()
    try:
        described["load_before"] = quiet.load_average() if is_loaded else quiet.await_quiet(_say)
    except quiet.Busy as reason:
        _say(f"{reason}. End other processes, or measure with --allow-load")
        return NOT_QUIET
    described["commit"] = machine.commit()
    chosen = [case for case in CASES if not options.only or case.name in options.only]
    if options.skip_fresh:
        chosen = [case for case in chosen if not _is_fresh(case, rounds, results)]
    _say(f"{len(chosen)} cases, rounds of each: {rounds}{_expected(chosen, results)}")
    outcomes: list[Outcome] = []
    is_written = True
    for position, case in enumerate(chosen):
        left = _expected(chosen[position:], results)
        _say(f"[{position + 1}/{len(chosen)}] {case.name} …{left}")
        outcomes.append(_run(case, Plan(rounds, options.quick), described, results, check_idle=not is_loaded))
        is_written = _write_page(results, page)
    _summarize(outcomes)
    _say(f"the page is {page.relative_to(REPOSITORY)}")
    return int(any(outcome.failed for outcome in outcomes) or not is_written)


def _write_page(results: Path, page: Path) -> bool:
    """Called after every case, so that an interrupted run leaves a page that matches the stored rounds."""
    try:
        write_page(results, page)
    except Exception as reason:  # noqa: BLE001 - the rounds are stored, and the other cases can be measured
        _say(f"{page.relative_to(REPOSITORY)} could not be rendered: {type(reason).__name__}: {reason}")
        return False
    return True


def _run(case: Case, plan: Plan, described: dict[str, Any], results: Path, *, check_idle: bool) -> Outcome:
    """A missed target is not a failure. If nothing could be measured, the stored rounds are kept."""
    began = time.monotonic()
    previous = load(case.name, results)
    busy_before: dict[str, float] = {}
    try:
        if check_idle:
            busy_before["others_before"] = quiet.await_idle(_say)
        others = quiet.OtherProcesses()
        with CaseProgress(case.name, plan.rounds, previous.seconds if previous else 0.0) as progress:
            result = case.run(plan.watched_by(progress.attempt))
    except (Unavailable, KafkaUnavailable, quiet.Busy) as reason:
        return _failed(case, began, plan, f"was not measured: {reason}")
    except Exception as reason:  # noqa: BLE001 - the other cases must not pay for this one
        return _failed(case, began, plan, f"failed: {type(reason).__name__}: {reason}")
    if not result.rows:
        return _failed(case, began, plan, "failed in every round")
    result.machine = {**described, **busy_before, "others_during": others.cores()}
    result.taken = datetime.datetime.now(datetime.UTC).date().isoformat()
    result.failures, result.seconds = plan.failures, round(time.monotonic() - began, 1)
    store(result, results)
    verdicts = case.verdicts(result)
    _say(f"{case.name} took {minutes(result.seconds)}")
    for failure in result.failures:
        _say(f"  {_shown(failure)}")
    for verdict in verdicts:
        met = "met" if verdict.met else "not met"
        _say(f"  {verdict.what}: {verdict.measured.median:.2f} (target {verdict.target}): {met}")
    return Outcome(case.name, result.seconds, "", result.failures, _noise(result, verdicts), verdicts)


def _failed(case: Case, began: float, plan: Plan, error: str) -> Outcome:
    _say(f"{case.name} {error}")
    return Outcome(case.name, time.monotonic() - began, error, plan.failures)


def _noise(result: Result, verdicts: Sequence[Verdict]) -> list[str]:
    """Why the figures of a case may be unreliable."""
    others = result.machine["others_during"]
    found = [f"other processes used {others} cores"] if others >= quiet.QUIET_CORES else []
    for verdict in verdicts:
        measured = verdict.measured
        if measured.count > 1 and measured.high - measured.low > _NOISY_SPREAD * abs(measured.median):
            found.append(f"{verdict.what}: from {measured.low:.2f} to {measured.high:.2f}")
    return found


def _summarize(outcomes: Sequence[Outcome]) -> None:
    verdicts = [verdict for outcome in outcomes for verdict in outcome.verdicts]
    met = sum(verdict.met for verdict in verdicts)
    total = sum(outcome.seconds for outcome in outcomes)
    _say(f"{len(outcomes)} cases in {minutes(total)}; {met} of {len(verdicts)} targets are met")
    for outcome in outcomes:
        if outcome.error:
            _say(f"{outcome.case} {outcome.error}")
        for failure in outcome.failures:
            _say(f"{outcome.case}, {_shown(failure)}")
        for noise in outcome.noise:
            _say(f"{outcome.case} is noisy: {noise}")
    for verdict in verdicts:
        if not verdict.met:
            _say(f"not met: {verdict.what}: {verdict.measured.median:.2f} (target {verdict.target})")


def _shown(failure: Failure) -> str:
    return f"{failure.series}: {failure.server} failed in round {failure.round}: {failure.reason}"


def _is_fresh(case: Case, rounds: int, results: Path) -> bool:
    """Whether the stored rounds need no repetition: enough rounds, a quiet machine, no failures, the same source."""
    stored = load(case.name, results)
    if stored is None or stored.failures or stored.rounds < rounds:
        return False
    is_quiet = stored.machine.get("load_before", quiet.QUIET_LOAD) < quiet.QUIET_LOAD
    return is_quiet and machine.has_same_source(stored.machine.get("commit", ""))


def _expected(cases: Sequence[Case], results: Path) -> str:
    """The expected duration of the cases, from the stored runs."""
    stored = [load(case.name, results) for case in cases]
    known = [result.seconds for result in stored if result is not None and result.seconds]
    if not known:
        return ""
    unknown = f", and {len(cases) - len(known)} of unknown length" if len(known) < len(cases) else ""
    return f" (about {minutes(sum(known))} left{unknown})"


def _say(what: str) -> None:
    print(f"benchmarks: {what}", flush=True)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog="Exit status: 0 if every round of every case was measured, 1 if a round or a case failed, "
        f"{NOT_QUIET} if the machine did not become quiet.",
    )
    parser.add_argument(
        "--quick", action="store_true", help="check that every case runs, in some minutes; stores no results"
    )
    parser.add_argument("--rounds", type=int, help=f"number of rounds of every case (default: {MIN_ROUNDS})")
    parser.add_argument(
        "--skip-fresh",
        action="store_true",
        help="skip cases whose stored rounds are of the same source, quiet, complete and without a failure",
    )
    parser.add_argument(
        "--allow-load",
        action="store_true",
        help=f"measure although the load average is {quiet.QUIET_LOAD} or more; the page marks such results",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=[case.name for case in CASES],
        metavar="CASE",
        help="run only this case; may be repeated. Cases: " + ", ".join(case.name for case in CASES),
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
