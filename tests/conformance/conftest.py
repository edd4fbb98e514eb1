"""The pairs of servers for the scenarios, and the summary line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from tests.conformance.comparing import Outcome, ServerPair
from tests.conformance.scenario import SCENARIOS, Environment, Scenario
from tests.conformance.servers import RESTARTED, SETTINGS, SHORT_RETENTION, pair_of_servers
from tests.support.kafka_distribution import KafkaDistribution

OUTCOMES = pytest.StashKey[list[Outcome]]()


@pytest.fixture(scope="session")
def server_pair(apache_kafka_distribution: KafkaDistribution) -> Iterator[ServerPair]:
    with pair_of_servers(SETTINGS) as server_pair:
        yield server_pair


@pytest.fixture(scope="session")
def restarted_pair(apache_kafka_distribution: KafkaDistribution) -> Iterator[ServerPair]:
    with pair_of_servers(RESTARTED) as server_pair:
        yield server_pair


@pytest.fixture(scope="session")
def short_retention_outcomes(apache_kafka_distribution: KafkaDistribution) -> Mapping[str, list[Outcome]]:
    scenarios = [scenario for scenario in SCENARIOS.values() if scenario.environment is Environment.SHORT_RETENTION]
    plays_at_once = sum(2 * len(scenario.rows) for scenario in scenarios)
    with pair_of_servers(SHORT_RETENTION, plays_at_once) as server_pair:
        return server_pair.outcomes_of(scenarios)


@pytest.fixture
def scenario_outcomes(scenario: Scenario, request: pytest.FixtureRequest) -> list[Outcome]:
    """The outcomes of the scenario in the environment that it needs; only that one is started."""
    match scenario.environment:
        case Environment.PERMANENT:
            server_pair: ServerPair = request.getfixturevalue("server_pair")
            return server_pair.outcomes(scenario)
        case Environment.RESTARTED:
            server_pair = request.getfixturevalue("restarted_pair")
            return server_pair.outcomes(scenario)
        case Environment.SHORT_RETENTION:
            known: Mapping[str, list[Outcome]] = request.getfixturevalue("short_retention_outcomes")
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
        f"conformance: {len(names)} scenarios run in {len(outcomes)} runs, {equal} equal, "
        f"{listed} listed differences {numbers}, unlisted = {unlisted} "
        f"({sum(outcome.again for outcome in outcomes)} run twice)"
    )
