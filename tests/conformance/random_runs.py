"""Random differential runs: the same seed on Apache Kafka and on Holdfast, answers compared step by step.

    python -m tests.conformance.random_runs --minutes 10

A seed whose run differs is repeated, calmly and alone on its group, shrunk, and printed as a scenario.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tests.conformance.generating import generated
from tests.conformance.paired_run import Result, run_paired
from tests.conformance.server import Server
from tests.conformance.servers import SETTINGS, pair_of_servers
from tests.conformance.shrinking import as_scenario, shrunk
from tests.conformance.side import CALM, HASTE, Pace
from tests.conformance.steps import Run

AT_ONCE = 12
"""Runs at the same time: each waits most of the time."""
TRIES_OF_CHANCE = 3
MAX_SHRUNK = 3
"""Of one session's differences; of the others only the seeds are printed."""
WARMING_UP = 3
"""Runs that do not count: the first joins of a young Java process are slow."""
RANDOM_SETTINGS = SETTINGS | {
    "group.initial.rebalance.delay.ms": "700",  # longer than a burst of joins
    "offsets.retention.check.interval.ms": "86400000",  # no group is forgotten meanwhile (difference 22)
}


@dataclass(slots=True)
class Tally:
    runs: int = 0
    steps: int = 0
    equal: int = 0
    by_chance: int = 0
    again: int = 0
    """Differed once, and not again."""
    listed: dict[int, int] = field(default_factory=dict)
    unlisted: list[Result] = field(default_factory=list)

    def add(self, result: Result) -> None:
        self.runs += 1
        self.steps += result.steps
        self.by_chance += result.by_chance
        for number in result.listed:
            self.listed[number] = self.listed.get(number, 0) + 1
        if result.difference:
            self.unlisted.append(result)
        elif not result.listed:
            self.equal += 1

    def __str__(self) -> str:
        listed = sum(self.listed.values())
        numbers = ", ".join(f"{number}: {times}" for number, times in sorted(self.listed.items()))
        return (
            f"random runs: {self.runs} runs, {self.steps} steps, {self.equal} equal "
            f"({self.by_chance} until Kafka chose another leader), {listed} listed differences {{{numbers}}}, "
            f"unlisted = {len(self.unlisted)} ({self.again} run twice)"
        )


class RandomRuns:
    """Two servers, on which any number of runs can take place at once."""

    def __init__(self, kafka: Server, holdfast: Server, haste: Pace = HASTE, calm: Pace = CALM) -> None:
        self.kafka = kafka
        self.holdfast = holdfast
        self.tally = Tally()
        self._haste = haste
        self._calm = calm
        self._numbers = itertools.count(1)

    def once(self, run: Run, pace: Pace | None = None) -> Result:
        return run_paired(
            run, self.kafka, self.holdfast, f"random-{run.seed}-{next(self._numbers)}", pace or self._haste
        )

    def run(self, run: Run) -> Result:
        """A difference must show again when there is more time for everything."""
        result = self._past_chance(run, self._haste)
        if not result.difference:
            return result
        for _ in range(2):
            calm = self.once(run, self._calm)
            if not calm.difference:
                self.tally.again += 1
                return calm
            result = calm
        return result

    def differs(self, run: Run) -> bool:
        """For the shrinking: twice, for what shows only sometimes cannot be shrunk."""
        return bool(self._past_chance(run, self._haste).difference) and bool(
            self._past_chance(run, self._calm).difference
        )

    def _past_chance(self, run: Run, pace: Pace) -> Result:
        """Where Kafka's choice of a leader was not Holdfast's, the run is repeated, to see what comes after."""
        for _ in range(TRIES_OF_CHANCE):
            result = self.once(run, pace)
            if not result.by_chance:
                break
        return result

    def run_all(self, runs: Iterable[Run], seconds: float) -> Tally:
        """As many as this time allows, one after another on each of some threads."""
        deadline = time.monotonic() + seconds
        waiting = iter(runs)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            under_way: set[Future[Result]] = set()
            while True:
                while len(under_way) < AT_ONCE and time.monotonic() < deadline and (run := next(waiting, None)):
                    under_way.add(pool.submit(self.run, run))
                if not under_way:
                    return self.tally
                done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                for future in done:
                    self.tally.add(future.result())

    def shrink(self, result: Result) -> Run:
        """What came after the difference goes first."""
        until_then = replace(result.run, steps=result.run.steps[: result.steps + 1])
        return shrunk(until_then if self.differs(until_then) else result.run, self.differs)

    def scenario_of(self, run: Run) -> str:
        """As text that can be put among the scenarios."""
        return as_scenario(run, self._past_chance(run, self._calm))


@contextmanager
def beside_kafka() -> Iterator[RandomRuns]:
    with pair_of_servers(RANDOM_SETTINGS) as server_pair:
        both = RandomRuns(server_pair.kafka, server_pair.holdfast)
        for seed in range(WARMING_UP):
            both.once(generated(seed))
        yield both


def main() -> int:
    parser = argparse.ArgumentParser(description="Random differential runs of groups beside Apache Kafka.")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long runs are begun")
    parser.add_argument("--seed", type=int, default=1, help="the first of the seeds, which count up from here")
    parser.add_argument("--runs", type=int, help="at most so many")
    options = parser.parse_args()
    seeds = itertools.count(options.seed) if options.runs is None else range(options.seed, options.seed + options.runs)
    with beside_kafka() as both:
        tally = both.run_all(map(generated, seeds), options.minutes * 60)
        for result in tally.unlisted:
            print(f"seed {result.run.seed}:", *result.difference, sep="\n", flush=True)
        if tally.unlisted:
            print(f"{tally}; shrinking:", flush=True)
        for result in tally.unlisted[:MAX_SHRUNK]:
            print(both.scenario_of(both.shrink(result)), flush=True)
    print(tally)
    return 1 if tally.unlisted else 0


if __name__ == "__main__":
    sys.exit(main())
