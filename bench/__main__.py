"""`python -m bench`: take the rounds, store them, render the page."""

from __future__ import annotations

import argparse
import datetime
import sys
import time
from pathlib import Path
from typing import Any, Final

from bench import machine
from bench.cases import CASES, Case
from bench.load import NoCompiler
from bench.measure import Plan
from bench.render import PAGE, render_page
from bench.results import CACHE, REPOSITORY, RESULTS, store
from tests.support.kafka_distribution import KafkaUnavailable

ROUNDS: Final = 5
QUICK_ROUNDS: Final = 2


def main() -> int:
    options = _options()
    plan = Plan(rounds=options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS), quick=options.quick)
    results = CACHE / "quick" if plan.quick else RESULTS
    page = results / PAGE.name if plan.quick else PAGE
    if machine.is_busy() and not plan.quick:
        print(
            "bench: this machine is busy; its figures will say more about that than about the servers", file=sys.stderr
        )
    described = machine.describe()  # before the first case: its load is not the machine's
    failed = False
    for case in CASES:
        if options.only and case.name not in options.only:
            continue
        failed |= not _run(case, plan, described, results)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(render_page(results))
    print(f"bench: wrote {page.relative_to(REPOSITORY)}")
    return int(failed)


def _run(case: Case, plan: Plan, described: dict[str, Any], results: Path) -> bool:
    """Whether the case could be measured at all; a missed target is no failure."""
    print(f"bench: {case.name} …", flush=True)
    began = time.monotonic()
    try:
        result = case.run(plan)
    except (NoCompiler, KafkaUnavailable) as reason:
        print(f"bench: {case.name} was not measured: {reason}", file=sys.stderr)
        return False
    result.machine = described
    result.taken = datetime.datetime.now(datetime.UTC).date().isoformat()
    store(result, results)
    print(f"bench: {case.name} took {time.monotonic() - began:.0f} s")
    for verdict in case.verdicts(result):
        met = "met" if verdict.met else "not met"
        print(f"bench:   {verdict.what}: {verdict.measured.median:.2f} (target {verdict.target}): {met}")
    return True


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="see that it works, in two minutes; stores no results")
    parser.add_argument("--rounds", type=int, help=f"rounds of every measurement (default: {ROUNDS})")
    parser.add_argument("--only", action="append", choices=[case.name for case in CASES], help="may be repeated")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
