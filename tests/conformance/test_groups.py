"""The coordinator answer for answer beside Apache Kafka (see `scenario` and `comparing`)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tests.conformance.scenarios as _  # noqa: F401  # fills SCENARIOS
from holdfast.wire.apis.offset_commit import OFFSET_COMMIT
from holdfast.wire.apis.offset_fetch import OFFSET_FETCH
from tests.conformance.comparing import Outcome, Stage
from tests.conformance.coverage import CATALOGUE, NOT_PLAYED
from tests.conformance.scenario import SCENARIOS, Scenario
from tests.conformance.versions import APIS, ROWS

LOWEST_OF_BOTH = {OFFSET_COMMIT.key: 2, OFFSET_FETCH.key: 1}
"""Where Holdfast goes lower than Kafka, for librdkafka."""
DIFFERENCES = Path(__file__).parents[2] / "docs" / "differences.md"


@pytest.mark.real
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_holdfast_answers_as_apache_kafka(stage: Stage, outcomes: list[Outcome], scenario: Scenario) -> None:
    played = stage.outcomes(scenario)
    outcomes += played

    different = [outcome for outcome in played if outcome.unlisted]
    assert not different, told(different)
    never_seen = set(scenario.listed) - {difference for outcome in played for difference in outcome.seen}
    assert not never_seen, f"listed, but in no version seen: {never_seen}"


def told(different: list[Outcome]) -> str:
    """The last and newest in full: what differs in one version mostly differs the same way in the others."""
    rows = ", ".join(str(outcome.row.number) for outcome in different)
    return "\n".join([f"-Kafka +Holdfast, different in rows {rows}; {different[-1].title}:", *different[-1].unlisted])


def test_listed_differences_are_in_the_document() -> None:
    documented = {int(number) for number in re.findall(r"^(\d+)\. ", DIFFERENCES.read_text(), re.MULTILINE)}

    used = {listed.number for scenario in SCENARIOS.values() for listed in scenario.listed}

    assert used <= documented


def test_every_behaviour_has_a_scenario_or_a_reason() -> None:
    played = {number for scenario in SCENARIOS.values() for number in scenario.behaviours}
    catalogue = {number for numbers in CATALOGUE.values() for number in numbers}

    assert played | NOT_PLAYED.keys() == catalogue
    assert not played & NOT_PLAYED.keys()


def test_every_version_is_in_a_row() -> None:
    """Of the versions that both servers speak."""
    for api in APIS:
        lowest = LOWEST_OF_BOTH.get(api.key, 0)
        assert {row.of(api.key) for row in ROWS} == set(range(lowest, api.versions[1] + 1)), api.name
