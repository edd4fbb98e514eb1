"""The coordinator answer for answer beside Apache Kafka (see `scenario` and `comparing`)."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

import tests.conformance.scenarios as _  # noqa: F401  # fills SCENARIOS
from holdfast.wire.apis.api_versions import ApiVersionsRequest
from holdfast.wire.apis.offset_delete import OFFSET_DELETE
from tests.broker.wire_client import WireClient
from tests.conformance.behaviours import BEHAVIOURS
from tests.conformance.comparing import Outcome, ServerPair
from tests.conformance.coverage import NOT_COVERED, NOT_SHOWN
from tests.conformance.scenario import SCENARIOS, Scenario
from tests.conformance.server import Server
from tests.conformance.versions import APIS, ROWS

DOCS = Path(__file__).parents[2] / "docs"
DIFFERENCES = DOCS / "differences.md"
FACTS = DOCS / "protocol.md"


@pytest.mark.real
@pytest.mark.timeout(600)  # the first scenario with a short retention waits for all of them
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_holdfast_answers_as_apache_kafka(
    scenario_outcomes: list[Outcome], outcomes: list[Outcome], scenario: Scenario
) -> None:
    outcomes += scenario_outcomes

    different = [outcome for outcome in scenario_outcomes if outcome.unlisted]
    assert not different, described(different)
    never_seen = set(scenario.listed) - {difference for outcome in scenario_outcomes for difference in outcome.seen}
    assert not never_seen, f"listed, but in no version seen: {never_seen}"


def described(different: list[Outcome]) -> str:
    """The last and newest in full: what differs in one version mostly differs the same way in the others."""
    rows = ", ".join(str(outcome.row.number) for outcome in different)
    return "\n".join([f"-Kafka +Holdfast, different in rows {rows}; {different[-1].title}:", *different[-1].unlisted])


def test_every_difference_has_a_scenario_or_a_reason() -> None:
    documented = {int(number) for number in re.findall(r"^### (\d+)\. ", DIFFERENCES.read_text(), re.MULTILINE)}
    listed = {difference.number for scenario in SCENARIOS.values() for difference in scenario.listed}

    assert listed | NOT_SHOWN.keys() == documented
    assert not listed & NOT_SHOWN.keys()


def test_scenarios_named_in_the_docs_exist() -> None:
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+){2,})`", FACTS.read_text()))

    assert named, "the document names none"
    assert named <= SCENARIOS.keys()


def test_every_behaviour_has_a_scenario_or_a_reason() -> None:
    covered = {number for scenario in SCENARIOS.values() for number in scenario.behaviours}

    assert covered | NOT_COVERED.keys() == BEHAVIOURS.keys()
    assert not covered & NOT_COVERED.keys()


@pytest.mark.real
def test_every_version_that_both_speak_is_in_a_row(server_pair: ServerPair) -> None:
    kafka, holdfast = covered(server_pair.kafka), covered(server_pair.holdfast)

    for api in (*APIS, OFFSET_DELETE):
        assert {row.of(api.key) for row in ROWS} == kafka[api.key] & holdfast[api.key], api.name


def covered(server: Server) -> dict[int, set[int]]:
    """API key to versions."""
    with WireClient(server.address) as client:
        versions = client.ask(ApiVersionsRequest("conformance", "1"), 3)
    return {api.api_key: set(range(api.min_version, api.max_version + 1)) for api in versions.api_keys}


def test_rows_grow_with_each_other() -> None:
    """A row with a later JoinGroup has no earlier version of another API."""
    for older, younger in pairwise(ROWS):
        assert all(older.of(api.key) <= younger.of(api.key) for api in APIS)
