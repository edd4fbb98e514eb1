"""Playing a scenario on both servers, and what is left when the listed differences are taken away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from difflib import ndiff

from tests.conformance.intermission import Intermission
from tests.conformance.scenario import Listed, Scenario, Theatre
from tests.conformance.scene import Scene
from tests.conformance.server import Server
from tests.conformance.versions import Row

MOST_BY_CHANCE = {Theatre.LASTING: 10, Theatre.MORTAL: 3, Theatre.FORGETFUL: 1}
"""Differences in more rows than this are not played again: it would take too long."""


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
class Stage:
    """Both servers."""

    kafka: Server
    holdfast: Server
    workers: ThreadPoolExecutor

    def outcomes(self, scenario: Scenario) -> list[Outcome]:
        """One outcome per row of versions, all rows at once."""
        return self.outcomes_of([scenario])[scenario.name]

    def outcomes_of(self, scenarios: Iterable[Scenario]) -> dict[str, list[Outcome]]:
        """All scenarios at once, by their names."""
        with ExitStack() as intermissions:
            begun = {one.name: (one, self._begin(one, one.rows, intermissions)) for one in scenarios}
            first = {
                name: [compare(one, row, *results(both)) for row, both in zip(one.rows, plays, strict=True)]
                for name, (one, plays) in begun.items()
            }
        return {name: self._without_chance(outcomes) for name, outcomes in first.items()}

    def _begin(
        self, scenario: Scenario, rows: Sequence[Row], intermissions: ExitStack, suffix: str = ""
    ) -> list[list[Future[list[str]]]]:
        """The plays of each row: on Kafka and on Holdfast."""
        meetings: dict[Server, Intermission | None] = {self.kafka: None, self.holdfast: None}
        if scenario.theatre is Theatre.MORTAL:
            for server in meetings:
                meetings[server] = intermissions.enter_context(Intermission(server.restart, len(rows)))
        return [
            [
                self.workers.submit(played, scenario, server, row, f"{scenario.name}-{row.number}{suffix}", meeting)
                for server, meeting in meetings.items()
            ]
            for row in rows
        ]

    def _without_chance(self, outcomes: list[Outcome]) -> list[Outcome]:
        different = [outcome for outcome in outcomes if outcome.unlisted]
        if different and len(different) > MOST_BY_CHANCE[different[0].scenario.theatre]:
            return outcomes
        return [self._once_more(outcome) if outcome.unlisted else outcome for outcome in outcomes]

    def _once_more(self, first: Outcome) -> Outcome:
        """Time-outs of some 100 ms do not always hold while twenty plays share the machine: this one plays alone."""
        with ExitStack() as intermissions:
            (plays,) = self._begin(first.scenario, [first.row], intermissions, "-again")
            outcome = compare(first.scenario, first.row, *results(plays))
        outcome.again = True
        return outcome


def results(plays: Iterable[Future[list[str]]]) -> list[list[str]]:
    return [play.result() for play in plays]


def played(
    scenario: Scenario, server: Server, row: Row, group: str, intermission: Intermission | None = None
) -> list[str]:
    try:
        with Scene(server, row, group) as scene:
            scene.transcript.counts_generations = scenario.after_deletions
            scene.intermission = intermission
            scenario.play(scene)
    except BaseException:
        if intermission is not None:
            intermission.spoil()
        raise
    return [line.replace(group, "GROUP") for line in scene.transcript.lines]


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
