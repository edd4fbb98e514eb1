"""Playing a scenario on both servers, and what is left when the listed differences are taken away."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from difflib import ndiff

from tests.conformance.scenario import Listed, Scenario
from tests.conformance.scene import Scene, Server
from tests.conformance.versions import Row

MOST_BY_CHANCE = 3
"""Differences in more rows than this are no accident of timing, and are not played again."""


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
        rows = [(row, self._begin(scenario, row)) for row in scenario.rows]
        outcomes = [compare(scenario, row, *(play.result() for play in plays)) for row, plays in rows]
        different = [outcome for outcome in outcomes if outcome.unlisted]
        if len(different) > MOST_BY_CHANCE:
            return outcomes
        return [self._once_more(outcome) if outcome.unlisted else outcome for outcome in outcomes]

    def _begin(self, scenario: Scenario, row: Row, suffix: str = "") -> list[Future[list[str]]]:
        group = f"{scenario.name}-{row.number}{suffix}"
        return [self.workers.submit(played, scenario, server, row, group) for server in (self.kafka, self.holdfast)]

    def _once_more(self, first: Outcome) -> Outcome:
        """Time-outs of some 100 ms do not always hold while twenty plays share the machine: this one plays alone."""
        plays = [play.result() for play in self._begin(first.scenario, first.row, "-again")]
        outcome = compare(first.scenario, first.row, *plays)
        outcome.again = True
        return outcome


def played(scenario: Scenario, server: Server, row: Row, group: str) -> list[str]:
    with Scene(server, row, group) as scene:
        scene.transcript.counts_generations = scenario.after_deletions
        scenario.play(scene)
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
