"""A cooperative member goes on with what it keeps while the group rebalances, and commits in between.

The coordinator refuses that once everybody has joined: with 27 in the new generation, with 22 in the old one. The
controls, in which such an answer does mean that a member has to join or has lost its generation, are in
`test_committing.py`: `test_a_commit_during_a_rebalance_fails_retriably_and_the_membership_is_kept` and
`test_a_commit_of_an_unknown_member_fails_for_good_and_the_membership_is_lost`.
"""

import pytest

from holdfast.membership.effects import CommitCompleted, JoinComplete
from holdfast.membership.failures import FailureKind
from holdfast.membership.phases import Phase
from holdfast.wire.apis.sync_group import SyncGroupResponse
from holdfast.wire.error_codes import ErrorCode
from tests.unit.membership.member_harness import (
    JOIN_GROUP,
    OFFSET_COMMIT,
    SYNC_GROUP,
    MemberHarness,
    commit_answer,
    joined,
    refused,
)


def syncing_with_a_commit() -> MemberHarness:
    """In the new generation, without an assignment yet; a commit is on its way."""
    harness = MemberHarness()
    harness.stable(generation=5)
    harness.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    harness.prepare()
    harness.answer(JOIN_GROUP, joined(6, leader="somebody-else"))
    harness.do("commit", {("t", 0): (42, None, -1)}, harness.now, 60_000)
    return harness


def refuse(harness: MemberHarness, code: ErrorCode = ErrorCode.REBALANCE_IN_PROGRESS) -> None:
    harness.answer(OFFSET_COMMIT, commit_answer(code))
    failure = harness.event(CommitCompleted).failure
    assert failure is not None
    assert (failure.kind, failure.retriable) == (FailureKind.REBALANCING, True)


def test_a_commit_refused_between_join_and_sync_asks_for_no_further_rebalance() -> None:
    harness = syncing_with_a_commit()

    refuse(harness)
    harness.answer(SYNC_GROUP, SyncGroupResponse(assignment=b"\x00\x01"))

    assert harness.event(JoinComplete).generation_id == 6
    assert (harness.phase, harness.events) == (Phase.STABLE, [])


def test_nor_does_one_whose_refusal_comes_after_the_assignment() -> None:
    """The two answers come on connections of their own."""
    harness = syncing_with_a_commit()

    harness.answer(SYNC_GROUP, SyncGroupResponse(assignment=b"\x00\x01"))
    assert harness.event(JoinComplete).generation_id == 6
    refuse(harness)

    assert (harness.phase, harness.events) == (Phase.STABLE, [])


def test_nor_one_of_the_generation_before() -> None:
    harness = MemberHarness()
    harness.stable(generation=5)
    harness.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    harness.prepare()
    harness.do("commit", {("t", 0): (42, None, -1)}, harness.now, 60_000)
    harness.follow(generation=6)

    refuse(harness)

    assert (harness.phase, harness.events) == (Phase.STABLE, [])


# -- the refusal overtakes the answer to the join ----------------------------------------------------------------------

OVERTAKING = pytest.mark.parametrize(
    "code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID]
)


def joining_with_a_commit() -> MemberHarness:
    """A join and a commit of the old generation are on their way, each on its connection."""
    harness = MemberHarness(group_instance_id="instance-1")
    harness.stable(generation=5)
    harness.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    harness.prepare()
    harness.do("commit", {("t", 0): (42, None, -1)}, harness.now, 60_000)
    return harness


@OVERTAKING
def test_a_refusal_that_overtakes_the_answer_to_the_join_costs_nothing(code: ErrorCode) -> None:
    # given
    harness = joining_with_a_commit()

    # when the group has gone on, and the error of the old generation's commit arrives first
    refuse(harness, code)
    assert (harness.phase, harness.events) == (Phase.JOINING, [])
    harness.follow(generation=6)

    # then what was processed is still there to be committed, in the new generation
    harness.do("commit", {("t", 0): (42, None, -1)}, harness.now, 60_000)
    assert harness.request(OFFSET_COMMIT).generation_id_or_member_epoch == 6
    assert (harness.phase, harness.events) == (Phase.STABLE, [])


def test_if_the_membership_is_gone_the_join_response_says_so() -> None:
    # given
    harness = joining_with_a_commit()
    refuse(harness, ErrorCode.UNKNOWN_MEMBER_ID)

    # when
    harness.answer(JOIN_GROUP, refused(ErrorCode.UNKNOWN_MEMBER_ID))

    # then
    harness.prepare(lost=True)
    assert harness.request(JOIN_GROUP).member_id == ""
