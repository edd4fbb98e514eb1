"""A cooperative member goes on with what it keeps while the group rebalances, and commits in between.

The coordinator refuses that once everybody has joined: with 27 in the new generation, with 22 in the old one. The
controls, in which such an answer does mean that a member has to join or has lost its seat, are
`test_280_a_commit_into_a_rebalance_fails_for_now_and_the_seat_is_kept` and
`test_280_a_commit_of_a_stranger_fails_for_good_and_the_seat_is_lost`.
"""

import pytest

from holdfast.membership.effects import Adopt, CommitEnded
from holdfast.membership.failures import FailureKind
from holdfast.membership.phases import Phase
from holdfast.wire.apis.sync_group import SyncGroupResponse
from holdfast.wire.error_codes import ErrorCode
from tests.unit.membership.scene import (
    JOIN_GROUP,
    OFFSET_COMMIT,
    SYNC_GROUP,
    Scene,
    commit_answer,
    joined,
    refused,
)


def syncing_with_a_commit() -> Scene:
    """In the new generation, without an assignment yet; a commit is on its way."""
    scene = Scene()
    scene.stable(generation=5)
    scene.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    scene.prepare()
    scene.answer(JOIN_GROUP, joined(6, leader="somebody-else"))
    scene.do("commit", {("t", 0): (42, None, -1)}, scene.now, 60_000)
    return scene


def refuse(scene: Scene, code: ErrorCode = ErrorCode.REBALANCE_IN_PROGRESS) -> None:
    scene.answer(OFFSET_COMMIT, commit_answer(code))
    failure = scene.event(CommitEnded).failure
    assert failure is not None
    assert (failure.kind, failure.retriable) == (FailureKind.REBALANCED, True)


def test_a_commit_refused_between_join_and_sync_asks_for_no_further_rebalance() -> None:
    scene = syncing_with_a_commit()

    refuse(scene)
    scene.answer(SYNC_GROUP, SyncGroupResponse(assignment=b"\x00\x01"))

    assert scene.event(Adopt).generation == 6
    assert (scene.phase, scene.events) == (Phase.STABLE, [])


def test_nor_does_one_whose_refusal_comes_after_the_assignment() -> None:
    """The two answers come on connections of their own."""
    scene = syncing_with_a_commit()

    scene.answer(SYNC_GROUP, SyncGroupResponse(assignment=b"\x00\x01"))
    assert scene.event(Adopt).generation == 6
    refuse(scene)

    assert (scene.phase, scene.events) == (Phase.STABLE, [])


def test_nor_one_of_the_generation_before() -> None:
    scene = Scene()
    scene.stable(generation=5)
    scene.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    scene.prepare()
    scene.do("commit", {("t", 0): (42, None, -1)}, scene.now, 60_000)
    scene.follow(generation=6)

    refuse(scene)

    assert (scene.phase, scene.events) == (Phase.STABLE, [])


# -- the refusal overtakes the answer to the join ----------------------------------------------------------------------

OVERTAKING = pytest.mark.parametrize(
    "code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID]
)


def joining_with_a_commit() -> Scene:
    """A join and a commit of the old generation are on their way, each on its connection."""
    scene = Scene(group_instance_id="seat-1")
    scene.stable(generation=5)
    scene.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    scene.prepare()
    scene.do("commit", {("t", 0): (42, None, -1)}, scene.now, 60_000)
    return scene


@OVERTAKING
def test_a_refusal_that_overtakes_the_answer_to_the_join_costs_nothing(code: ErrorCode) -> None:
    # given
    scene = joining_with_a_commit()

    # when the group has gone on, and the refusal of the old generation's commit is heard of first
    refuse(scene, code)
    assert (scene.phase, scene.events) == (Phase.JOINING, [])
    scene.follow(generation=6)

    # then what was processed is still there to be committed, in the new generation
    scene.do("commit", {("t", 0): (42, None, -1)}, scene.now, 60_000)
    assert scene.request(OFFSET_COMMIT).generation_id_or_member_epoch == 6
    assert (scene.phase, scene.events) == (Phase.STABLE, [])


def test_and_if_the_seat_is_gone_the_answer_to_the_join_says_so() -> None:
    # given
    scene = joining_with_a_commit()
    refuse(scene, ErrorCode.UNKNOWN_MEMBER_ID)

    # when
    scene.answer(JOIN_GROUP, refused(ErrorCode.UNKNOWN_MEMBER_ID))

    # then
    scene.prepare(lost=True)
    assert scene.request(JOIN_GROUP).member_id == ""
