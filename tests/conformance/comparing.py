"""Playing a scenario on both servers, and what is left when the listed differences are taken away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from difflib import ndiff

from tests.conformance.recorder import Recorder
from tests.conformance.restart_barrier import RestartBarrier
from tests.conformance.scenario import Environment, Listed, Scenario
from tests.conformance.server import Server
from tests.conformance.versions import Row

MAX_RETRIES = {Environment.PERMANENT: 10, Environment.RESTARTED: 3, Environment.SHORT_RETENTION: 1}
"""Differences in more rows than this are not run again: it would take too long."""


@dataclass(slots=True)
class Outcome:
    scenario: Scenario
    row: Row
    seen: set[Listed]
    """The listed differences that showed."""
    unlisted: list[str]
    """Both transcripts, line by line, if something else differed."""
    again: bool = False
    """Played a second time, with nothing beside it."""

    @property
    def title(self) -> str:
        return f"{self.scenario.name} (JoinGroup v{self.row.number} and its contemporaries)"


@dataclass(frozen=True, slots=True)
class ServerPair:
    """Both servers."""

    kafka: Server
    holdfast: Server
    workers: ThreadPoolExecutor

    def outcomes(self, scenario: Scenario) -> list[Outcome]:
        """One outcome per row of versions, all rows at once."""
        return self.outcomes_of([scenario])[scenario.name]

    def outcomes_of(self, scenarios: Iterable[Scenario]) -> dict[str, list[Outcome]]:
        """All scenarios at once, by their names."""
        with ExitStack() as restart_barriers:
            begun = {one.name: (one, self._begin(one, one.rows, restart_barriers)) for one in scenarios}
            first = {
                name: [compare(one, row, *results(both)) for row, both in zip(one.rows, runs, strict=True)]
                for name, (one, runs) in begun.items()
            }
        return {name: self._retry_differences(outcomes) for name, outcomes in first.items()}

    def _begin(
        self, scenario: Scenario, rows: Sequence[Row], restart_barriers: ExitStack, suffix: str = ""
    ) -> list[list[Future[list[str]]]]:
        """The runs of each row: on Kafka and on Holdfast."""
        meetings: dict[Server, RestartBarrier | None] = {self.kafka: None, self.holdfast: None}
        if scenario.environment is Environment.RESTARTED:
            for server in meetings:
                meetings[server] = restart_barriers.enter_context(RestartBarrier(server.restart, len(rows)))
        return [
            [
                self.workers.submit(
                    transcript_of, scenario, server, row, f"{scenario.name}-{row.number}{suffix}", meeting
                )
                for server, meeting in meetings.items()
            ]
            for row in rows
        ]

    def _retry_differences(self, outcomes: list[Outcome]) -> list[Outcome]:
        different = [outcome for outcome in outcomes if outcome.unlisted]
        if different and len(different) > MAX_RETRIES[different[0].scenario.environment]:
            return outcomes
        return [self._retry(outcome) if outcome.unlisted else outcome for outcome in outcomes]

    def _retry(self, first: Outcome) -> Outcome:
        """Timeouts of some 100 ms do not always hold while twenty runs share the machine: this one runs alone."""
        with ExitStack() as restart_barriers:
            (runs,) = self._begin(first.scenario, [first.row], restart_barriers, "-again")
            outcome = compare(first.scenario, first.row, *results(runs))
        outcome.again = True
        return outcome


def results(runs: Iterable[Future[list[str]]]) -> list[list[str]]:
    return [run.result() for run in runs]


def transcript_of(
    scenario: Scenario, server: Server, row: Row, group: str, restart_barrier: RestartBarrier | None = None
) -> list[str]:
    try:
        with Recorder(server, row, group) as recorder:
            recorder.transcript.counts_generations = scenario.after_deletions
            recorder.restart_barrier = restart_barrier
            scenario.script(recorder)
    except BaseException:
        if restart_barrier is not None:
            restart_barrier.abort()
        raise
    return [line.replace(group, "GROUP") for line in recorder.transcript.lines]


def compare(scenario: Scenario, row: Row, kafka: list[str], holdfast: list[str]) -> Outcome:
    """A line of Kafka's that becomes Holdfast's by one listed difference is that difference, and no other."""
    seen: set[Listed] = set()
    explained = list(kafka)
    for number, (line, other) in enumerate(zip(kafka, holdfast, strict=False)):
        if line != other and (by := next((one for one in scenario.listed if one.explains(line, other)), None)):
            seen.add(by)
            explained[number] = other
    unlisted = [] if explained == holdfast else [line for line in ndiff(kafka, holdfast) if not line.startswith("?")]
    return Outcome(scenario, row, seen, unlisted)
