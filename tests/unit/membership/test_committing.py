"""Commits: in order, in the generation in which they were made, and what each error means."""

from collections.abc import Mapping

import pytest

from holdfast.membership.effects import Channel, CommitCompleted, Failed
from holdfast.membership.failures import FailureKind
from holdfast.membership.pending_commits import UNKNOWN_TOPIC_GRACE_MS
from holdfast.membership.phases import Phase
from holdfast.membership.requests import OffsetAndMetadata
from holdfast.wire.error_codes import ErrorCode
from tests.unit.membership.member_harness import JOIN_GROUP, MINE, OFFSET_COMMIT, MemberHarness, commit_answer, joined

OFFSETS = {("t", 0): (42, None, -1)}
PATIENCE_MS = 60_000


def committed(harness: MemberHarness, offsets: Mapping[tuple[str, int], OffsetAndMetadata] = OFFSETS) -> int:
    number: int = harness.do("commit", offsets, harness.now, PATIENCE_MS)
    return number


def test_a_commit_carries_the_generation_and_ends_when_it_is_stored() -> None:
    harness = MemberHarness(group_instance_id="instance-1")
    harness.stable(generation=5)

    number = committed(harness, {("t", 0): (42, "note", 3), ("u", 1): (7, None, -1)})
    request = harness.request(OFFSET_COMMIT)
    harness.answer(OFFSET_COMMIT, commit_answer())

    assert (request.generation_id_or_member_epoch, request.member_id) == (5, MINE)
    assert request.group_instance_id == "instance-1"
    entries = {
        (topic.name, one.partition_index): (one.committed_offset, one.committed_metadata, one.committed_leader_epoch)
        for topic in request.topics
        for one in topic.partitions
    }
    assert entries == {("t", 0): (42, "note", 3), ("u", 1): (7, "", -1)}
    assert harness.event(CommitCompleted) == CommitCompleted(number, None, {})


def test_a_commit_without_a_subscription_has_no_member_or_instance_id() -> None:
    harness = MemberHarness(group_instance_id="instance-1")

    committed(harness)
    harness.find_coordinator()

    request = harness.request(OFFSET_COMMIT)
    assert (request.generation_id_or_member_epoch, request.member_id, request.group_instance_id) == (-1, "", None)


def test_one_commit_at_a_time_and_the_newest_offset_wins() -> None:
    harness = MemberHarness()
    harness.stable()

    numbers = [committed(harness, {("t", 0): (offset, None, -1)}) for offset in (1, 2, 3)]
    first = harness.request(OFFSET_COMMIT).topics[0].partitions[0].committed_offset
    harness.answer(OFFSET_COMMIT, commit_answer())
    second = harness.request(OFFSET_COMMIT).topics[0].partitions[0].committed_offset
    harness.answer(OFFSET_COMMIT, commit_answer())

    assert (first, second) == (1, 3)
    assert [harness.event(CommitCompleted).commit_id for _ in numbers] == numbers


def test_a_commit_during_a_rebalance_fails_retriably_and_the_membership_is_kept() -> None:
    harness = MemberHarness()
    harness.stable(generation=5)
    committed(harness)

    harness.answer(OFFSET_COMMIT, commit_answer(ErrorCode.REBALANCE_IN_PROGRESS))

    failure = harness.event(CommitCompleted).failure
    assert failure is not None
    assert (failure.kind, failure.retriable) == (FailureKind.REBALANCING, True)
    assert harness.member.generation.generation_id == 5
    harness.prepare()
    assert harness.request(JOIN_GROUP).member_id == MINE


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.ILLEGAL_GENERATION, MINE), (ErrorCode.UNKNOWN_MEMBER_ID, "")]
)
def test_a_commit_of_an_unknown_member_fails_for_good_and_the_membership_is_lost(
    code: ErrorCode, member_id: str
) -> None:
    harness = MemberHarness()
    harness.stable()
    committed(harness)

    harness.answer(OFFSET_COMMIT, commit_answer(code))

    failure = harness.event(CommitCompleted).failure
    assert failure is not None
    assert (failure.kind, failure.code, failure.retriable) == (FailureKind.NO_LONGER_MEMBER, code, False)
    harness.prepare(lost=True)
    assert harness.request(JOIN_GROUP).member_id == member_id


def test_a_fenced_commit_is_the_end() -> None:
    harness = MemberHarness(group_instance_id="instance-1")
    harness.stable()
    committed(harness)

    harness.answer(OFFSET_COMMIT, commit_answer(ErrorCode.FENCED_INSTANCE_ID))

    failure = harness.event(CommitCompleted).failure
    assert failure is not None
    assert failure.kind is FailureKind.FENCED
    assert harness.event(Failed).failure.kind is FailureKind.FENCED
    assert harness.phase is Phase.CLOSED


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION]
)
def test_a_fenced_commit_of_an_older_generation_is_not_fatal(code: ErrorCode) -> None:
    harness = MemberHarness(group_instance_id="instance-1")
    harness.stable(generation=5)
    committed(harness)
    harness.do("rejoin", "because", harness.now)
    harness.prepare()
    harness.follow(generation=6)

    harness.answer(OFFSET_COMMIT, commit_answer(code))

    failure = harness.event(CommitCompleted).failure
    assert failure is not None
    assert (failure.kind, failure.retriable) == (FailureKind.REBALANCING, True)
    assert harness.phase is Phase.STABLE
    assert not harness.events


def test_a_commit_that_waited_through_a_rebalance_is_not_sent() -> None:
    harness = MemberHarness()
    harness.stable(generation=5)
    committed(harness)
    late = committed(harness, {("t", 0): (43, None, -1)})
    harness.do("rejoin", "because", harness.now)
    harness.prepare()
    harness.follow(generation=6)

    harness.answer(OFFSET_COMMIT, commit_answer())

    assert harness.event(CommitCompleted).failure is None
    ended = harness.event(CommitCompleted)
    assert ended.commit_id == late
    assert ended.failure is not None
    assert ended.failure.kind is FailureKind.REBALANCING
    assert harness.history.count("OffsetCommit") == 1


def test_a_member_without_a_generation_commits_nothing() -> None:
    harness = MemberHarness()
    harness.start()

    committed(harness)

    failure = harness.event(CommitCompleted).failure
    assert failure is not None
    assert failure.kind is FailureKind.NO_LONGER_MEMBER
    assert "OffsetCommit" not in harness.history


def test_what_may_pass_is_tried_again_until_the_time_is_over() -> None:
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    harness = MemberHarness(retry_backoff_ms=100, max_poll_interval_ms=10**6, session_timeout_ms=10**6)
    harness.stable()
    began = harness.now
    committed(harness)

    harness.answer(OFFSET_COMMIT, commit_answer(code))
    assert harness.pending(OFFSET_COMMIT) is None
    harness.pass_time(100)
    assert harness.request(OFFSET_COMMIT).topics[0].partitions[0].committed_offset == 42
    asked_until = harness.now
    while not harness.events:
        asked_until = harness.now
        harness.answer(OFFSET_COMMIT, commit_answer(code))
        harness.pass_time(1_000)

    assert asked_until - began >= PATIENCE_MS - 1_000
    failure = harness.event(CommitCompleted).failure
    assert failure is not None
    assert (failure.kind, failure.code) == (FailureKind.TIMED_OUT, code)


def test_a_commit_for_an_unknown_topic_is_retried_and_then_fails_alone() -> None:
    """It may be new. If it was deleted, any member that gives its partitions up must not be held up by the last
    commit."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    harness = MemberHarness(retry_backoff_ms=100)
    harness.stable()
    began = harness.now
    first = committed(harness, {("t", 0): (42, None, -1), ("u", 0): (1, None, -1)})

    asked_until = began
    while not harness.events:
        asked_until = harness.now
        harness.answer(OFFSET_COMMIT, commit_answer(unknown))
        harness.pass_time(1_000)

    ended = harness.event(CommitCompleted)
    assert UNKNOWN_TOPIC_GRACE_MS <= asked_until - began <= UNKNOWN_TOPIC_GRACE_MS + 1_000 < PATIENCE_MS
    assert (ended.commit_id, ended.failure) == (first, None)
    assert {where: failure.code for where, failure in ended.errors.items()} == {("t", 0): unknown}
    assert harness.phase is Phase.STABLE

    committed(harness, {("u", 0): (2, None, -1)})
    harness.answer(OFFSET_COMMIT, commit_answer(topic="u"))
    assert harness.event(CommitCompleted).errors == {}


def test_a_topic_that_becomes_known_is_committed() -> None:
    harness = MemberHarness(retry_backoff_ms=100)
    harness.stable()
    number = committed(harness)

    harness.answer(OFFSET_COMMIT, commit_answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    harness.pass_time(100)
    harness.answer(OFFSET_COMMIT, commit_answer())

    assert harness.event(CommitCompleted) == CommitCompleted(number, None, {})


def test_a_coordinator_that_loads_is_waited_for_whatever_it_said_of_the_topic_before() -> None:
    harness = MemberHarness(retry_backoff_ms=100)
    harness.stable()
    number = committed(harness)

    harness.answer(OFFSET_COMMIT, commit_answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    harness.pass_time(UNKNOWN_TOPIC_GRACE_MS)
    harness.answer(OFFSET_COMMIT, commit_answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    harness.pass_time(1_000)
    harness.answer(OFFSET_COMMIT, commit_answer())

    assert harness.event(CommitCompleted) == CommitCompleted(number, None, {})


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_commit_follows_the_coordinator(code: ErrorCode) -> None:
    harness = MemberHarness()
    harness.stable()
    number = committed(harness)

    harness.answer(OFFSET_COMMIT, commit_answer(code))
    harness.pass_time(200)
    harness.find_coordinator()
    harness.answer(OFFSET_COMMIT, commit_answer())

    assert harness.event(CommitCompleted) == CommitCompleted(number, None, {})


def test_a_commit_whose_connection_broke_is_sent_again() -> None:
    harness = MemberHarness()
    harness.stable()
    number = committed(harness)

    harness.disconnect(Channel.COORDINATOR)
    harness.pass_time(200)
    harness.find_coordinator()
    harness.answer(OFFSET_COMMIT, commit_answer())

    assert harness.event(CommitCompleted) == CommitCompleted(number, None, {})
    assert harness.history.count("OffsetCommit") == 2


@pytest.mark.parametrize(
    "code",
    [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE],
)
def test_what_concerns_one_partition_fails_for_it_alone(code: ErrorCode) -> None:
    harness = MemberHarness()
    harness.stable()
    committed(harness, {("t", 0): (42, None, -1), ("u", 0): (1, None, -1)})

    harness.answer(OFFSET_COMMIT, commit_answer(code))

    ended = harness.event(CommitCompleted)
    assert ended.failure is None
    assert {where: failure.code for where, failure in ended.errors.items()} == {("t", 0): code}


def test_during_the_next_join_the_old_generation_may_still_commit() -> None:
    harness = MemberHarness()
    harness.stable(generation=5)
    harness.do("rejoin", "because", harness.now)
    harness.prepare()
    assert harness.pending(JOIN_GROUP) is not None

    committed(harness)

    assert harness.request(OFFSET_COMMIT).generation_id_or_member_epoch == 5
    harness.answer(JOIN_GROUP, joined(6, leader="other"))
    assert harness.pending(OFFSET_COMMIT) is not None
