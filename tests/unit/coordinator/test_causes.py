"""Causes: every code renders as a sentence, and events carry both."""

from __future__ import annotations

import json
import re
from string import Formatter

import pytest

from holdfast.coordinator.events.causes import (
    COUNTS,
    SENTENCES,
    Cause,
    CauseCode,
    ResyncRejection,
    resync_rejected,
    summary,
)
from holdfast.coordinator.events.group_event import EventKind, GroupEvent


@pytest.mark.parametrize("code", CauseCode)
@pytest.mark.parametrize("count", [0, 1, 2])
def test_every_code_renders_as_a_sentence_with_its_details(code: CauseCode, count: int) -> None:
    sentence = Cause(code, member="m-1", count=count, total=7, detail="d-1").sentence

    assert sentence
    assert "{" not in sentence
    assert "None" not in sentence
    used = {field for _, field, _, _ in Formatter().parse(SENTENCES[code]) if field}
    assert used <= {"member", "count", "total", "detail"}
    assert ("m-1" in sentence) == ("member" in used)
    assert ("d-1" in sentence) == ("detail" in used)


def test_what_is_counted_is_defined_for_every_code_with_a_count() -> None:
    counted = {code for code, sentence in SENTENCES.items() if "{count}" in sentence or "{total}" in sentence}
    assert set(COUNTS) == counted | {CauseCode.MEMBER_LEFT}


@pytest.mark.parametrize("reason", ResyncRejection)
def test_every_rejection_of_a_resync_has_a_sentence_and_is_stored_as_a_code(reason: ResyncRejection) -> None:
    cause = resync_rejected(reason, member_id="m-1", resync_epoch=3, group_epoch=4, error="truncated")

    reported = json.loads(event(cause).to_json())

    assert cause.detail and "{" not in cause.detail
    assert reported["cause"] == f"the leader must rejoin: {cause.detail}"
    assert (reported["cause_code"], reported["cause_reason"]) == ("resync_rejected", reason.name.lower())


def test_codes_are_snake_case_names_of_their_members() -> None:
    assert [code.value for code in CauseCode] == [code.name.lower() for code in CauseCode]
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", code) for code in CauseCode)


def test_every_code_has_one_sentence_of_its_own() -> None:
    assert set(SENTENCES) == set(CauseCode)
    assert len(set(SENTENCES.values())) == len(CauseCode)


@pytest.mark.parametrize(
    ("cause", "sentence"),
    [
        (Cause(CauseCode.MEMBER_LEFT, count=1), "a member left"),
        (Cause(CauseCode.MEMBER_LEFT, count=3), "3 members left"),
        (Cause(CauseCode.MEMBER_LEFT), "a member left"),
        (
            Cause(CauseCode.MEMBERS_BECAME_STANDBYS, count=2, total=3),
            "target.group.size is 3: 2 members became standbys",
        ),
        (Cause(CauseCode.VACANCY_TIMED_OUT, member="orders-1"), "no standby took over from orders-1 in time"),
        (
            Cause(CauseCode.RESYNC_APPLIED, count=1, total=3, detail="2"),
            "2 partitions were added to 1 of 3 assignments",
        ),
        (Cause(CauseCode.CONFIG_CHANGED, detail="a {brace} stays"), "a {brace} stays"),
    ],
)
def test_sentences(cause: Cause, sentence: str) -> None:
    assert cause.sentence == sentence


@pytest.mark.parametrize("code", CauseCode)
def test_summaries_have_no_details(code: CauseCode) -> None:
    assert summary(code)
    assert "{" not in summary(code)


def test_a_code_of_a_newer_broker_is_its_own_summary() -> None:
    assert summary("moon_was_full") == "moon_was_full"


def event(cause: Cause) -> GroupEvent:
    return GroupEvent(kind=EventKind.REBALANCE_STARTED, group_id="g", at_ms=1, generation=2, epoch=3, cause=cause)


def test_an_event_has_the_sentence_the_code_and_the_details_that_are_set() -> None:
    reported = json.loads(event(Cause(CauseCode.MEMBER_LEFT, count=2)).to_json())

    assert reported == {
        "kind": "rebalance started",
        "group_id": "g",
        "at_ms": 1,
        "generation": 2,
        "epoch": 3,
        "cause": "2 members left",
        "cause_code": "member_left",
        "cause_count": 2,
    }


def test_long_details_are_shortened_in_the_sentence_and_beside_it() -> None:
    reported = json.loads(event(Cause(CauseCode.ASSIGNOR_ERROR, count=1, detail="x" * 40_000)).to_json())

    assert len(reported["cause"]) == len(reported["cause_detail"]) == 1_001
