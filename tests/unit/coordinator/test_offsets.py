"""Committing, fetching and deleting offsets: §6.L, §6.M and the offset half of §6.N, by number.

Not here: 174, 175, 183, 184 (transactions); 182 (another broker's group); 169 and 181 (topics that do not exist, and
the layout of v7) are the handlers'.
"""

from __future__ import annotations

import pytest

from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.bench import Bench
from tests.unit.coordinator.scene import Consumer, dynamic, joined, lone_member, pair, subscription

T0, T1 = ("t", 0), ("t", 1)

# -- 6.L committing ----------------------------------------------------------------------------------------------------


def test_l157_a_commit_without_a_group_makes_a_simple_one() -> None:
    bench = Bench()

    assert bench.commit({T0: 5}).codes == [ErrorCode.NONE]
    described = bench.describe()
    assert (described.group_state, described.protocol_type) == ("Empty", "")
    assert bench.fetch() == {T0: 5}


@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_l158_a_generation_of_a_group_that_does_not_exist(version: int, code: ErrorCode) -> None:
    bench = Bench()

    assert bench.commit({T0: 5}, member_id="x", generation=1, version=version).codes == [code]
    assert bench.state() == "Dead"


def test_l159_a_group_that_dies_while_the_commit_waits() -> None:
    bench = Bench()
    bench.commit({T0: 1})
    bench.hold()
    bench.delete_later()
    waiting = bench.commit({T0: 2})
    bench.release()

    assert waiting.codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert bench.fetch() == {}


def test_l160_the_group_with_the_empty_name() -> None:
    bench = Bench()

    assert bench.commit({T0: 5}, group="").codes == [ErrorCode.NONE]
    assert bench.fetch("") == {T0: 5}
    assert bench.state("") == "Empty"
    assert bench.delete("") == ErrorCode.NONE


def test_l162_a_tool_may_commit_for_a_group_whose_members_left() -> None:
    bench = Bench()
    lone_member(bench).leave()

    assert bench.commit({T0: 5}, member_id="ignored").codes == [ErrorCode.NONE]
    assert bench.fetch() == {T0: 5}


def test_l163_but_not_for_a_live_one() -> None:
    bench = Bench()
    lone_member(bench)

    assert bench.commit({T0: 5}).codes == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_l164_nobody_commits_while_the_assignment_is_awaited() -> None:
    bench = Bench()
    member = dynamic(bench)
    joined(member)

    assert member.commit(5).codes == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert bench.fetch() == {}


def test_l166_during_the_join_phase_the_old_generation_may_commit() -> None:
    bench = Bench()
    leader, follower = pair(bench)
    leader.join()

    assert follower.commit(5).codes == [ErrorCode.NONE]
    assert bench.fetch() == {T0: 5}


def test_l166_and_a_commit_keeps_the_member_alive() -> None:
    bench = Bench()
    member = lone_member(bench)
    for offset in range(5):
        bench.advance(2_000)
        assert member.commit(offset).codes == [ErrorCode.NONE]

    assert bench.state() == "Stable"


def test_l167_wrong_generation_unknown_member_unknown_instance_fenced() -> None:
    bench = Bench()
    leader, _ = pair(bench)

    def commit(member_id: str, generation: int, instance: str | None) -> list[ErrorCode]:
        return bench.commit({T0: 5}, member_id=member_id, generation=generation, instance=instance).codes

    assert commit(leader.id, 2, "L") == [ErrorCode.ILLEGAL_GENERATION]
    assert commit(leader.id, -1, "L") == [ErrorCode.ILLEGAL_GENERATION]
    assert commit("unknown", 1, None) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit(leader.id, 1, "unknown") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit("unknown", 1, "L") == [ErrorCode.FENCED_INSTANCE_ID]
    assert commit("unknown", 9, "L") == [ErrorCode.FENCED_INSTANCE_ID]
    assert bench.fetch() == {}


def test_l170_metadata_that_is_too_long_fails_its_partition_only() -> None:
    bench = Bench(metadata_max_chars=10)

    handle = bench.commit({T0: bench.offset(1, "x" * 11), T1: bench.offset(2, "é" * 10)})

    assert handle.reply == {T0: ErrorCode.OFFSET_METADATA_TOO_LARGE, T1: ErrorCode.NONE}
    assert bench.fetch() == {T1: 2}


def test_l171_offset_epoch_and_metadata_come_back_also_after_a_restart() -> None:
    bench = Bench()
    bench.commit({T0: bench.offset(97, "m", leader_epoch=15)})

    for _ in range(2):
        _, offsets = bench.fetch_later().reply
        assert (offsets[T0].offset, offsets[T0].leader_epoch, offsets[T0].metadata) == (97, 15, "m")
        bench.restart()


def test_l172_an_explicit_retention_counts_once_the_group_is_empty() -> None:
    bench = Bench()
    member = lone_member(bench, metadata=subscription("t"), session_ms=60_000)
    value = bench.offset(5, expires_ms=bench.now + 1_000)
    bench.commit({T0: value}, member_id=member.id, generation=1)

    bench.advance(2_000)
    bench.sweep()
    assert bench.fetch() == {T0: 5}, "the group reads the topic"
    member.leave()
    bench.sweep()

    assert bench.fetch() == {}


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR])
def test_l173_what_could_not_be_stored_is_not_committed(code: ErrorCode) -> None:
    bench = Bench(metadata_max_chars=10)
    bench.commit({T0: 1})
    bench.fail_appends(code)

    refused = bench.commit({T0: 2, T1: bench.offset(3, "x" * 11)})

    assert refused.reply == {T0: code, T1: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert bench.fetch() == {T0: 1}


# -- 6.M fetching ------------------------------------------------------------------------------------------------------


def test_m176_an_unknown_group_has_committed_nothing() -> None:
    bench = Bench()

    assert bench.fetch() == {}
    assert bench.state() == "Dead", "asking makes no group"


def test_m178_exactly_what_was_committed() -> None:
    bench = Bench()
    bench.commit({T0: 1, T1: 2})
    bench.commit({T1: 3})

    assert bench.fetch() == {T0: 1, T1: 3}


def test_m179_a_fetch_behind_a_commit_that_is_being_stored_sees_it() -> None:
    bench = Bench()
    bench.commit({T0: 1})
    bench.hold()
    bench.commit({T0: 2})

    fetched = bench.fetch_later()
    assert fetched.parked
    bench.release()

    assert fetched.reply[1][T0].offset == 2


# -- 6.N deleting offsets ----------------------------------------------------------------------------------------------


def test_n197_an_unknown_group() -> None:
    assert Bench().delete_offsets(T0).code == ErrorCode.GROUP_ID_NOT_FOUND


def test_n197_an_empty_group_id() -> None:
    assert Bench().delete_offsets(T0, group="").code == ErrorCode.INVALID_GROUP_ID


def test_n198_a_live_group_of_another_protocol_type() -> None:
    bench = Bench()
    bench.join(version=3, protocol_type="My Protocol")

    assert bench.delete_offsets(T0).code == ErrorCode.NON_EMPTY_GROUP


def test_n199_topics_that_the_members_read_are_kept() -> None:
    bench = Bench()
    member = lone_member(bench, metadata=subscription("t"))
    bench.commit({T0: 1, ("other", 0): 2}, member_id=member.id, generation=1)

    deleted = bench.delete_offsets(T0, ("other", 0))

    assert deleted.reply.partitions == {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ("other", 0): ErrorCode.NONE}
    assert bench.fetch() == {T0: 1}


def test_n200_of_an_empty_group_all_may_go() -> None:
    bench = Bench()
    bench.commit({T0: 1, T1: 2})

    assert bench.delete_offsets(T0).reply.partitions == {T0: ErrorCode.NONE}
    assert bench.fetch() == {T1: 2}
    bench.restart()
    assert bench.fetch() == {T1: 2}


def test_n201_metadata_that_cannot_be_read_means_any_topic() -> None:
    bench = Bench()
    member = lone_member(bench, metadata=b"?")
    member.commit(1)

    assert bench.delete_offsets(T0).reply.partitions == {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


def test_n202_a_partition_that_was_never_committed() -> None:
    bench = Bench()
    bench.commit({T0: 1})

    assert bench.delete_offsets(("never", 3)).reply.partitions == {("never", 3): ErrorCode.NONE}


def test_n203_a_deletion_that_could_not_be_stored() -> None:
    bench = Bench()
    bench.commit({T0: 1})
    bench.fail_appends()

    assert bench.delete_offsets(T0).reply.partitions == {T0: ErrorCode.NOT_COORDINATOR}
    assert bench.fetch() == {T0: 1}


def test_a_deleted_topic_takes_its_offsets_along_in_every_group() -> None:
    bench = Bench()
    bench.commit({T0: 1, ("other", 0): 2}, group="a")
    bench.commit({T1: 3}, group="b")

    bench.topics_deleted("t")

    assert (bench.fetch("a"), bench.fetch("b")) == ({("other", 0): 2}, {})
    bench.restart()
    assert (bench.fetch("a"), bench.fetch("b")) == ({("other", 0): 2}, {})


def test_a_static_member_that_was_replaced_cannot_commit_any_more() -> None:
    bench = Bench()
    leader, _ = pair(bench)
    restarted: Consumer = leader.restarted()
    restarted.join()

    assert leader.commit(1).codes == [ErrorCode.FENCED_INSTANCE_ID]
    assert restarted.commit(2).codes == [ErrorCode.NONE]
    assert bench.fetch() == {T0: 2}
