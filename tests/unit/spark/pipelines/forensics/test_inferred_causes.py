"""Codes of causes as the report counts them, and the sentences it prints for them."""

from __future__ import annotations

import pytest

from holdfast.coordinator.events.causes import CauseCode
from holdfast.spark.pipelines.forensics.inferred_causes import InferredCause, counted_code, summary
from tests.unit.spark.pipelines.forensics.histories import History


@pytest.mark.parametrize("cause", InferredCause)
def test_every_inferred_cause_has_a_sentence(cause: InferredCause) -> None:
    assert summary(cause) == cause.sentence != ""


def test_no_code_means_two_things() -> None:
    assert not {*InferredCause} & {*CauseCode}


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("member_joined", "a new member joined"),
        ("member_left", "a member left"),
        ("registration_complete", "the registered members are all there"),
        ("of_a_newer_broker", "of_a_newer_broker"),
    ],
)
def test_codes_of_events_are_printed_as_sentences(code: str, sentence: str) -> None:
    assert summary(counted_code(code)) == sentence


def test_events_without_a_code_count_as_unknown_and_keep_their_sentence() -> None:
    history = History()
    history.started(1_000, 0, "by an older broker", "a")
    history.started(2_000, 0, CauseCode.LEADER_REJOINED, "a")

    found = history.followed()

    assert [(row["cause_code"], row["cause"]) for row in found.rebalances] == [
        (InferredCause.UNKNOWN, "by an older broker"),
        (CauseCode.LEADER_REJOINED, "the leader rejoined"),
    ]


def test_a_code_is_not_longer_than_a_line() -> None:
    assert counted_code("x" * 1_000) == "x" * 80
