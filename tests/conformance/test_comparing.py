"""The comparison itself: what it must notice, and what it must let pass."""

from __future__ import annotations

from tests.conformance.comparing import compare
from tests.conformance.scenario import Listed, Scenario
from tests.conformance.transcript import Transcript
from tests.conformance.versions import ROWS

ANSWER = "A receives Heartbeat: {error_code=27}"
OTHER = "A receives Heartbeat: {error_code=0}"
SILENCE = "A receives nothing"
MEMBER_ID = "cid-0b0ccd2a-2b71-4c3a-9d6e-1f2a3b4c5d6e"


def scenario(*listed: Listed) -> Scenario:
    return Scenario("any", (), lambda recorder: None, ROWS, listed, after_deletions=False)


def test_equal_transcripts_are_equal() -> None:
    outcome = compare(scenario(), ROWS[0], [ANSWER, SILENCE], [ANSWER, SILENCE])

    assert not outcome.unlisted
    assert not outcome.seen


def test_another_answer_another_order_and_one_more_are_noticed() -> None:
    for holdfast in ([OTHER, SILENCE], [SILENCE, ANSWER], [ANSWER], [ANSWER, SILENCE, SILENCE]):
        assert compare(scenario(), ROWS[0], [ANSWER, SILENCE], holdfast).unlisted


def test_listed_difference_passes_and_is_counted() -> None:
    listed = Listed(18, "{error_code=27}", "{error_code=0}")

    outcome = compare(scenario(listed), ROWS[0], [ANSWER, SILENCE], [OTHER, SILENCE])

    assert not outcome.unlisted
    assert outcome.seen == {listed}


def test_listed_difference_does_not_excuse_another() -> None:
    listed = Listed(18, "{error_code=27}", "{error_code=0}")

    assert compare(scenario(listed), ROWS[0], [ANSWER, SILENCE], [OTHER, ANSWER]).unlisted
    assert compare(scenario(listed), ROWS[0], [OTHER], [ANSWER]).unlisted, "the other way round"
    assert compare(scenario(listed), ROWS[0], [ANSWER], [SILENCE]).unlisted


def test_whole_lines_are_listed_with_an_ellipsis() -> None:
    listed = Listed(20, SILENCE, "A receives SyncGroup: {error_code=25, …")

    assert not compare(scenario(listed), ROWS[0], [SILENCE], ["A receives SyncGroup: {error_code=25, x}"]).unlisted
    assert compare(scenario(listed), ROWS[0], [SILENCE], ["A receives SyncGroup: {error_code=27, x}"]).unlisted


def test_member_ids_are_named_after_their_members() -> None:
    transcript = Transcript(9092, {})
    assert transcript.rendered(MEMBER_ID) == "an unknown member"

    transcript.name_member(MEMBER_ID, "A", "cid")

    assert transcript.rendered(MEMBER_ID) == "A.1"


def test_wrong_prefix_of_a_member_id_shows() -> None:
    transcript = Transcript(9092, {})

    transcript.name_member(MEMBER_ID, "A", "other")

    assert "instead of 'other'" in transcript.rendered(MEMBER_ID)
