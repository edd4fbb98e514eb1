"""Commits: in order, with the seat they were made with, and what each refusal means (6.S)."""

from collections.abc import Mapping

import pytest

from holdfast.membership.commits import UNKNOWN_TOPIC_FOR_MS
from holdfast.membership.effects import CommitEnded, Failed, Lane
from holdfast.membership.failures import FailureKind
from holdfast.membership.phases import Phase
from holdfast.membership.requests import Offset
from holdfast.wire.error_codes import ErrorCode
from tests.unit.membership.scene import JOIN_GROUP, MINE, OFFSET_COMMIT, Scene, commit_answer, joined

OFFSETS = {("t", 0): (42, None, -1)}
PATIENCE_MS = 60_000


def committed(scene: Scene, offsets: Mapping[tuple[str, int], Offset] = OFFSETS) -> int:
    number: int = scene.do("commit", offsets, scene.now, PATIENCE_MS)
    return number


def test_a_commit_carries_the_seat_and_ends_when_it_is_stored() -> None:
    scene = Scene(group_instance_id="seat-1")
    scene.stable(generation=5)

    number = committed(scene, {("t", 0): (42, "note", 3), ("u", 1): (7, None, -1)})
    request = scene.request(OFFSET_COMMIT)
    scene.answer(OFFSET_COMMIT, commit_answer())

    assert (request.generation_id_or_member_epoch, request.member_id) == (5, MINE)
    assert request.group_instance_id == "seat-1"
    entries = {
        (topic.name, one.partition_index): (one.committed_offset, one.committed_metadata, one.committed_leader_epoch)
        for topic in request.topics
        for one in topic.partitions
    }
    assert entries == {("t", 0): (42, "note", 3), ("u", 1): (7, "", -1)}
    assert scene.event(CommitEnded) == CommitEnded(number, None, {})


def test_282_a_commit_without_a_subscription_names_nobody_even_if_an_instance_id_is_set() -> None:
    scene = Scene(group_instance_id="seat-1")

    committed(scene)
    scene.find_coordinator()

    request = scene.request(OFFSET_COMMIT)
    assert (request.generation_id_or_member_epoch, request.member_id, request.group_instance_id) == (-1, "", None)


def test_one_request_at_a_time_and_what_comes_meanwhile_goes_together_the_newest_offset_winning() -> None:
    scene = Scene()
    scene.stable()

    numbers = [committed(scene, {("t", 0): (offset, None, -1)}) for offset in (1, 2, 3)]
    first = scene.request(OFFSET_COMMIT).topics[0].partitions[0].committed_offset
    scene.answer(OFFSET_COMMIT, commit_answer())
    second = scene.request(OFFSET_COMMIT).topics[0].partitions[0].committed_offset
    scene.answer(OFFSET_COMMIT, commit_answer())

    assert (first, second) == (1, 3)
    assert [scene.event(CommitEnded).commit for _ in numbers] == numbers


def test_280_a_commit_into_a_rebalance_fails_for_now_and_the_seat_is_kept() -> None:
    scene = Scene()
    scene.stable(generation=5)
    committed(scene)

    scene.answer(OFFSET_COMMIT, commit_answer(ErrorCode.REBALANCE_IN_PROGRESS))

    failure = scene.event(CommitEnded).failure
    assert failure is not None
    assert (failure.kind, failure.retriable) == (FailureKind.REBALANCED, True)
    assert scene.member.seat.generation == 5
    scene.prepare()
    assert scene.request(JOIN_GROUP).member_id == MINE


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.ILLEGAL_GENERATION, MINE), (ErrorCode.UNKNOWN_MEMBER_ID, "")]
)
def test_280_a_commit_of_a_stranger_fails_for_good_and_the_seat_is_lost(code: ErrorCode, member_id: str) -> None:
    scene = Scene()
    scene.stable()
    committed(scene)

    scene.answer(OFFSET_COMMIT, commit_answer(code))

    failure = scene.event(CommitEnded).failure
    assert failure is not None
    assert (failure.kind, failure.code, failure.retriable) == (FailureKind.NO_LONGER_MEMBER, code, False)
    scene.prepare(lost=True)
    assert scene.request(JOIN_GROUP).member_id == member_id


def test_281_a_fenced_commit_is_the_end() -> None:
    scene = Scene(group_instance_id="seat-1")
    scene.stable()
    committed(scene)

    scene.answer(OFFSET_COMMIT, commit_answer(ErrorCode.FENCED_INSTANCE_ID))

    failure = scene.event(CommitEnded).failure
    assert failure is not None
    assert failure.kind is FailureKind.FENCED
    assert scene.event(Failed).failure.kind is FailureKind.FENCED
    assert scene.phase is Phase.OVER


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION]
)
def test_281_unless_a_newer_generation_was_joined_meanwhile(code: ErrorCode) -> None:
    scene = Scene(group_instance_id="seat-1")
    scene.stable(generation=5)
    committed(scene)
    scene.do("rejoin", "because", scene.now)
    scene.prepare()
    scene.follow(generation=6)

    scene.answer(OFFSET_COMMIT, commit_answer(code))

    failure = scene.event(CommitEnded).failure
    assert failure is not None
    assert (failure.kind, failure.retriable) == (FailureKind.REBALANCED, True)
    assert scene.phase is Phase.STABLE
    assert not scene.events


def test_a_commit_that_waited_through_a_rebalance_is_not_sent() -> None:
    scene = Scene()
    scene.stable(generation=5)
    committed(scene)
    late = committed(scene, {("t", 0): (43, None, -1)})
    scene.do("rejoin", "because", scene.now)
    scene.prepare()
    scene.follow(generation=6)

    scene.answer(OFFSET_COMMIT, commit_answer())

    assert scene.event(CommitEnded).failure is None
    ended = scene.event(CommitEnded)
    assert ended.commit == late
    assert ended.failure is not None
    assert ended.failure.kind is FailureKind.REBALANCED
    assert scene.history.count("OffsetCommit") == 1


def test_a_member_without_a_seat_commits_nothing() -> None:
    scene = Scene()
    scene.start()

    committed(scene)

    failure = scene.event(CommitEnded).failure
    assert failure is not None
    assert failure.kind is FailureKind.NO_LONGER_MEMBER
    assert "OffsetCommit" not in scene.history


def test_what_may_pass_is_tried_again_until_the_time_is_over() -> None:
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    scene = Scene(retry_backoff_ms=100, max_poll_interval_ms=10**6, session_timeout_ms=10**6)
    scene.stable()
    began = scene.now
    committed(scene)

    scene.answer(OFFSET_COMMIT, commit_answer(code))
    assert scene.waiting(OFFSET_COMMIT) is None
    scene.pass_time(100)
    assert scene.request(OFFSET_COMMIT).topics[0].partitions[0].committed_offset == 42
    asked_until = scene.now
    while not scene.events:
        asked_until = scene.now
        scene.answer(OFFSET_COMMIT, commit_answer(code))
        scene.pass_time(1_000)

    assert asked_until - began >= PATIENCE_MS - 1_000
    failure = scene.event(CommitEnded).failure
    assert failure is not None
    assert (failure.kind, failure.code) == (FailureKind.TIMED_OUT, code)


def test_a_topic_that_the_broker_does_not_know_is_tried_for_a_while_and_then_fails_for_itself_alone() -> None:
    """It may be new. If it was deleted, whoever gives its partitions up must not be held up by the last commit."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    scene = Scene(retry_backoff_ms=100)
    scene.stable()
    began = scene.now
    first = committed(scene, {("t", 0): (42, None, -1), ("u", 0): (1, None, -1)})

    asked_until = began
    while not scene.events:
        asked_until = scene.now
        scene.answer(OFFSET_COMMIT, commit_answer(unknown))
        scene.pass_time(1_000)

    ended = scene.event(CommitEnded)
    assert UNKNOWN_TOPIC_FOR_MS <= asked_until - began <= UNKNOWN_TOPIC_FOR_MS + 1_000 < PATIENCE_MS
    assert (ended.commit, ended.failure) == (first, None)
    assert {where: failure.code for where, failure in ended.errors.items()} == {("t", 0): unknown}
    assert scene.phase is Phase.STABLE

    committed(scene, {("u", 0): (2, None, -1)})
    scene.answer(OFFSET_COMMIT, commit_answer(topic="u"))
    assert scene.event(CommitEnded).errors == {}


def test_a_topic_that_becomes_known_is_committed() -> None:
    scene = Scene(retry_backoff_ms=100)
    scene.stable()
    number = committed(scene)

    scene.answer(OFFSET_COMMIT, commit_answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    scene.pass_time(100)
    scene.answer(OFFSET_COMMIT, commit_answer())

    assert scene.event(CommitEnded) == CommitEnded(number, None, {})


def test_a_coordinator_that_loads_is_waited_for_whatever_it_said_of_the_topic_before() -> None:
    scene = Scene(retry_backoff_ms=100)
    scene.stable()
    number = committed(scene)

    scene.answer(OFFSET_COMMIT, commit_answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    scene.pass_time(UNKNOWN_TOPIC_FOR_MS)
    scene.answer(OFFSET_COMMIT, commit_answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    scene.pass_time(1_000)
    scene.answer(OFFSET_COMMIT, commit_answer())

    assert scene.event(CommitEnded) == CommitEnded(number, None, {})


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_commit_follows_the_coordinator(code: ErrorCode) -> None:
    scene = Scene()
    scene.stable()
    number = committed(scene)

    scene.answer(OFFSET_COMMIT, commit_answer(code))
    scene.pass_time(200)
    scene.find_coordinator()
    scene.answer(OFFSET_COMMIT, commit_answer())

    assert scene.event(CommitEnded) == CommitEnded(number, None, {})


def test_a_commit_whose_connection_broke_is_sent_again() -> None:
    scene = Scene()
    scene.stable()
    number = committed(scene)

    scene.break_off(Lane.SIDE)
    scene.pass_time(200)
    scene.find_coordinator()
    scene.answer(OFFSET_COMMIT, commit_answer())

    assert scene.event(CommitEnded) == CommitEnded(number, None, {})
    assert scene.history.count("OffsetCommit") == 2


@pytest.mark.parametrize(
    "code",
    [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE],
)
def test_what_concerns_one_partition_fails_for_it_alone(code: ErrorCode) -> None:
    scene = Scene()
    scene.stable()
    committed(scene, {("t", 0): (42, None, -1), ("u", 0): (1, None, -1)})

    scene.answer(OFFSET_COMMIT, commit_answer(code))

    ended = scene.event(CommitEnded)
    assert ended.failure is None
    assert {where: failure.code for where, failure in ended.errors.items()} == {("t", 0): code}


def test_during_the_next_join_the_old_generation_may_still_commit() -> None:
    scene = Scene()
    scene.stable(generation=5)
    scene.do("rejoin", "because", scene.now)
    scene.prepare()
    assert scene.waiting(JOIN_GROUP) is not None

    committed(scene)

    assert scene.request(OFFSET_COMMIT).generation_id_or_member_epoch == 5
    scene.answer(JOIN_GROUP, joined(6, leader="other"))
    assert scene.waiting(OFFSET_COMMIT) is not None
