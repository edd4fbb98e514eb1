"""The pairs of servers that plays are played on, and the one line that the run ends with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from tests.conformance.comparing import Outcome, Stage
from tests.conformance.scenario import SCENARIOS, Scenario, Theatre
from tests.conformance.servers import FORGETFUL, MORTAL, SETTINGS, pair_of_servers
from tests.support.kafka_distribution import KafkaDistribution

OUTCOMES = pytest.StashKey[list[Outcome]]()


@pytest.fixture(scope="session")
def stage(apache_kafka_distribution: KafkaDistribution) -> Iterator[Stage]:
    with pair_of_servers(SETTINGS) as stage:
        yield stage


@pytest.fixture(scope="session")
def mortal_stage(apache_kafka_distribution: KafkaDistribution) -> Iterator[Stage]:
    with pair_of_servers(MORTAL) as stage:
        yield stage


@pytest.fixture(scope="session")
def outcomes_of_the_forgetful(apache_kafka_distribution: KafkaDistribution) -> Mapping[str, list[Outcome]]:
    scenarios = [scenario for scenario in SCENARIOS.values() if scenario.theatre is Theatre.FORGETFUL]
    plays_at_once = sum(2 * len(scenario.rows) for scenario in scenarios)
    with pair_of_servers(FORGETFUL, plays_at_once) as stage:
        return stage.outcomes_of(scenarios)


@pytest.fixture
def played(scenario: Scenario, request: pytest.FixtureRequest) -> list[Outcome]:
    """The outcomes of the scenario in the theatre that it needs; only that one is opened."""
    match scenario.theatre:
        case Theatre.LASTING:
            stage: Stage = request.getfixturevalue("stage")
            return stage.outcomes(scenario)
        case Theatre.MORTAL:
            stage = request.getfixturevalue("mortal_stage")
            return stage.outcomes(scenario)
        case Theatre.FORGETFUL:
            known: Mapping[str, list[Outcome]] = request.getfixturevalue("outcomes_of_the_forgetful")
            return known[scenario.name]


@pytest.fixture(scope="session")
def outcomes(request: pytest.FixtureRequest) -> list[Outcome]:
    """Every outcome of the run so far."""
    return request.config.stash.setdefault(OUTCOMES, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    outcomes = config.stash.get(OUTCOMES, [])
    if outcomes:
        terminalreporter.write_line(summary(outcomes))


def summary(outcomes: list[Outcome]) -> str:
    names = {outcome.scenario.name for outcome in outcomes}
    unlisted = sum(bool(outcome.unlisted) for outcome in outcomes)
    listed = sum(bool(outcome.seen) and not outcome.unlisted for outcome in outcomes)
    equal = len(outcomes) - unlisted - listed
    numbers = sorted({difference.number for outcome in outcomes for difference in outcome.seen})
    return (
        f"conformance: {len(names)} scenarios run in {len(outcomes)} plays, {equal} equal, "
        f"{listed} listed differences {numbers}, unlisted = {unlisted} "
        f"({sum(outcome.again for outcome in outcomes)} played twice)"
    )
