"""Committing, fetching and deleting offsets. The numbers are those of the behaviours in `tests/conformance`.

Not here: 174, 175, 183, 184 (transactions); 182 (another broker's group); 169 and 181 (topics that do not exist, and
the layout of v7) are the handlers'.
"""

from __future__ import annotations

import pytest

from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.harness import CoordinatorHarness
from tests.unit.coordinator.members import Consumer, dynamic, joined, lone_member, pair, subscription

T0, T1 = ("t", 0), ("t", 1)

# -- committing --------------------------------------------------------------------------------------------------------


def test_a_commit_without_a_group_makes_a_simple_one() -> None:
    harness = CoordinatorHarness()

    assert harness.commit({T0: 5}).codes == [ErrorCode.NONE]
    described = harness.describe()
    assert (described.group_state, described.protocol_type) == ("Empty", "")
    assert harness.fetch() == {T0: 5}


@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_generation_of_a_group_that_does_not_exist(version: int, code: ErrorCode) -> None:
    harness = CoordinatorHarness()

    assert harness.commit({T0: 5}, member_id="x", generation=1, version=version).codes == [code]
    assert harness.state() == "Dead"


def test_a_group_that_dies_while_the_commit_waits() -> None:
    harness = CoordinatorHarness()
    harness.commit({T0: 1})
    harness.pause_appends()
    harness.delete_later()
    waiting = harness.commit({T0: 2})
    harness.resume_appends()

    assert waiting.codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert harness.fetch() == {}


def test_the_group_with_the_empty_name() -> None:
    harness = CoordinatorHarness()

    assert harness.commit({T0: 5}, group="").codes == [ErrorCode.NONE]
    assert harness.fetch("") == {T0: 5}
    assert harness.state("") == "Empty"
    assert harness.delete("") == ErrorCode.NONE


def test_a_tool_may_commit_for_a_group_whose_members_left() -> None:
    harness = CoordinatorHarness()
    lone_member(harness).leave()

    assert harness.commit({T0: 5}, member_id="ignored").codes == [ErrorCode.NONE]
    assert harness.fetch() == {T0: 5}


def test_a_commit_without_a_generation_is_refused_in_a_group_with_members() -> None:
    harness = CoordinatorHarness()
    lone_member(harness)

    assert harness.commit({T0: 5}).codes == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_commits_are_refused_while_the_assignment_is_awaited() -> None:
    harness = CoordinatorHarness()
    member = dynamic(harness)
    joined(member)

    assert member.commit(5).codes == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert harness.fetch() == {}


def test_during_the_join_phase_the_old_generation_may_commit() -> None:
    harness = CoordinatorHarness()
    leader, follower = pair(harness)
    leader.join()

    assert follower.commit(5).codes == [ErrorCode.NONE]
    assert harness.fetch() == {T0: 5}


def test_a_commit_in_the_join_phase_extends_the_session() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness)
    for offset in range(5):
        harness.advance(2_000)
        assert member.commit(offset).codes == [ErrorCode.NONE]

    assert harness.state() == "Stable"


def test_wrong_generation_unknown_member_unknown_instance_fenced() -> None:
    harness = CoordinatorHarness()
    leader, _ = pair(harness)

    def commit(member_id: str, generation: int, instance: str | None) -> list[ErrorCode]:
        return harness.commit({T0: 5}, member_id=member_id, generation=generation, instance=instance).codes

    assert commit(leader.id, 2, "L") == [ErrorCode.ILLEGAL_GENERATION]
    assert commit(leader.id, -1, "L") == [ErrorCode.ILLEGAL_GENERATION]
    assert commit("unknown", 1, None) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit(leader.id, 1, "unknown") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit("unknown", 1, "L") == [ErrorCode.FENCED_INSTANCE_ID]
    assert commit("unknown", 9, "L") == [ErrorCode.FENCED_INSTANCE_ID]
    assert harness.fetch() == {}


def test_metadata_that_is_too_long_fails_its_partition_only() -> None:
    harness = CoordinatorHarness(metadata_max_chars=10)

    handle = harness.commit({T0: harness.offset(1, "x" * 11), T1: harness.offset(2, "é" * 10)})

    assert handle.reply == {T0: ErrorCode.OFFSET_METADATA_TOO_LARGE, T1: ErrorCode.NONE}
    assert harness.fetch() == {T1: 2}


def test_offset_epoch_and_metadata_come_back_also_after_a_restart() -> None:
    harness = CoordinatorHarness()
    harness.commit({T0: harness.offset(97, "m", leader_epoch=15)})

    for _ in range(2):
        _, offsets = harness.fetch_later().reply
        assert (offsets[T0].offset, offsets[T0].leader_epoch, offsets[T0].metadata) == (97, 15, "m")
        harness.restart()


def test_an_explicit_retention_counts_once_the_group_is_empty() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness, metadata=subscription("t"), session_ms=60_000)
    value = harness.offset(5, expires_ms=harness.now + 1_000)
    harness.commit({T0: value}, member_id=member.id, generation=1)

    harness.advance(2_000)
    harness.sweep()
    assert harness.fetch() == {T0: 5}, "the group reads the topic"
    member.leave()
    harness.sweep()

    assert harness.fetch() == {}


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR])
def test_what_could_not_be_stored_is_not_committed(code: ErrorCode) -> None:
    harness = CoordinatorHarness(metadata_max_chars=10)
    harness.commit({T0: 1})
    harness.fail_appends(code)

    refused = harness.commit({T0: 2, T1: harness.offset(3, "x" * 11)})

    assert refused.reply == {T0: code, T1: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert harness.fetch() == {T0: 1}


# -- fetching ----------------------------------------------------------------------------------------------------------


def test_an_unknown_group_has_committed_nothing() -> None:
    harness = CoordinatorHarness()

    assert harness.fetch() == {}
    assert harness.state() == "Dead", "asking makes no group"


def test_exactly_what_was_committed() -> None:
    harness = CoordinatorHarness()
    harness.commit({T0: 1, T1: 2})
    harness.commit({T1: 3})

    assert harness.fetch() == {T0: 1, T1: 3}


def test_a_fetch_sees_a_commit_when_it_is_stored_and_does_not_wait_for_it() -> None:
    harness = CoordinatorHarness()
    harness.commit({T0: 1})
    harness.pause_appends()
    harness.commit({T0: 2})

    assert harness.fetch() == {T0: 1}
    harness.resume_appends()
    assert harness.fetch() == {T0: 2}


# -- deleting offsets --------------------------------------------------------------------------------------------------


def test_an_unknown_group() -> None:
    assert CoordinatorHarness().delete_offsets(T0).code == ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_group_id() -> None:
    assert CoordinatorHarness().delete_offsets(T0, group="").code == ErrorCode.INVALID_GROUP_ID


def test_a_live_group_of_another_protocol_type() -> None:
    harness = CoordinatorHarness()
    harness.join(version=3, protocol_type="My Protocol")

    assert harness.delete_offsets(T0).code == ErrorCode.NON_EMPTY_GROUP


def test_topics_that_the_members_read_are_kept() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness, metadata=subscription("t"))
    harness.commit({T0: 1, ("other", 0): 2}, member_id=member.id, generation=1)

    deleted = harness.delete_offsets(T0, ("other", 0))

    assert deleted.reply.partitions == {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ("other", 0): ErrorCode.NONE}
    assert harness.fetch() == {T0: 1}


def test_of_an_empty_group_all_may_go() -> None:
    harness = CoordinatorHarness()
    harness.commit({T0: 1, T1: 2})

    assert harness.delete_offsets(T0).reply.partitions == {T0: ErrorCode.NONE}
    assert harness.fetch() == {T1: 2}
    harness.restart()
    assert harness.fetch() == {T1: 2}


def test_metadata_that_cannot_be_read_means_any_topic() -> None:
    harness = CoordinatorHarness()
    member = lone_member(harness, metadata=b"?")
    member.commit(1)

    assert harness.delete_offsets(T0).reply.partitions == {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


def test_a_partition_that_was_never_committed() -> None:
    harness = CoordinatorHarness()
    harness.commit({T0: 1})

    assert harness.delete_offsets(("never", 3)).reply.partitions == {("never", 3): ErrorCode.NONE}


def test_a_deletion_that_could_not_be_stored() -> None:
    harness = CoordinatorHarness()
    harness.commit({T0: 1})
    harness.fail_appends()

    assert harness.delete_offsets(T0).reply.partitions == {T0: ErrorCode.NOT_COORDINATOR}
    assert harness.fetch() == {T0: 1}


def test_a_deleted_topic_takes_its_offsets_along_in_every_group() -> None:
    harness = CoordinatorHarness()
    harness.commit({T0: 1, ("other", 0): 2}, group="a")
    harness.commit({T1: 3}, group="b")

    harness.topics_deleted("t")

    assert (harness.fetch("a"), harness.fetch("b")) == ({("other", 0): 2}, {})
    harness.restart()
    assert (harness.fetch("a"), harness.fetch("b")) == ({("other", 0): 2}, {})


def test_a_static_member_that_was_replaced_cannot_commit_any_more() -> None:
    harness = CoordinatorHarness()
    leader, _ = pair(harness)
    restarted: Consumer = leader.restarted()
    restarted.join()

    assert leader.commit(1).codes == [ErrorCode.FENCED_INSTANCE_ID]
    assert restarted.commit(2).codes == [ErrorCode.NONE]
    assert harness.fetch() == {T0: 2}
