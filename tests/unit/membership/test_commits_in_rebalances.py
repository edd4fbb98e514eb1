"""A cooperative member goes on with what it keeps while the group rebalances, and commits in between.

The coordinator refuses that once everybody has joined (27). The control, in which such an answer does mean that a
member has to join, is `test_280_a_commit_into_a_rebalance_fails_for_now_and_the_seat_is_kept`.
"""

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


def refuse(scene: Scene) -> None:
    scene.answer(OFFSET_COMMIT, commit_answer(ErrorCode.REBALANCE_IN_PROGRESS))
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
