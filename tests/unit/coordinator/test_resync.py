"""The leader adds to the assignments of a group that stays as it is, and the targeted rejoin by which the others learn
of it."""

from __future__ import annotations

import pytest

from holdfast.coordinator.classic.state_machine import STABLE
from holdfast.coordinator.events.causes import Cause, CauseCode, ResyncRejection
from holdfast.coordinator.events.group_event import EventKind
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.extension_members import REBALANCE, assignment, partitions, reads, rebalances, worker
from tests.unit.coordinator.harness import REBALANCE_MS, CoordinatorHarness
from tests.unit.coordinator.members import Consumer, keep_alive, stable

EPOCH = 1_000_000


@pytest.fixture
def harness() -> CoordinatorHarness:
    return CoordinatorHarness()


def settled(harness: CoordinatorHarness, **about: object) -> tuple[Consumer, Consumer, Consumer]:
    leader, grows, stays = (worker(harness, name, number, **about) for number, name in enumerate("LGS"))
    stable(leader, grows, stays)
    assert leader.leads
    return leader, grows, stays


def test_members_whose_assignment_grew_are_asked_to_rejoin_and_no_other(harness: CoordinatorHarness) -> None:
    leader, grows, stays = settled(harness)
    before = rebalances(harness)

    answer = leader.sync_with({grows.id: assignment(1, 3, 4)}, resync_from_epoch=EPOCH)

    assert partitions(answer) == {0}
    assert answer.reply.assignment_epoch == EPOCH + 1
    assert stays.heartbeat() is leader.heartbeat() is ErrorCode.NONE
    assert grows.heartbeat() is grows.heartbeat() is REBALANCE
    grows.metadata = reads("t", owns=[1], generation=1)
    assert not grows.join().is_pending
    assert grows.heartbeat() is ErrorCode.NONE
    assert partitions(grows.sync()) == {1, 3, 4}
    assert rebalances(harness) == before
    assert harness.generation() == 1
    event = harness.events_of(EventKind.RESYNCED)[0]
    assert (event.previous_epoch, event.epoch, event.moved_partitions) == (EPOCH, EPOCH + 1, 0)
    assert event.cause == Cause(CauseCode.RESYNC_APPLIED, count=1, total=3, detail="2")


def test_a_leader_whose_own_assignment_grew_learns_it_at_once(harness: CoordinatorHarness) -> None:
    leader, *_ = settled(harness)

    assert partitions(leader.sync_with({leader.id: assignment(0, 9)}, resync_from_epoch=EPOCH)) == {0, 9}
    assert leader.heartbeat() is ErrorCode.NONE


def test_asked_again_because_the_answer_was_lost_the_answer_is_the_same(harness: CoordinatorHarness) -> None:
    leader, grows, _ = settled(harness)
    leader.sync_with({grows.id: assignment(1, 3)}, resync_from_epoch=EPOCH)

    grows.join()
    assert not grows.join().is_pending
    assert partitions(grows.sync()) == {1, 3}
    assert harness.group().state is STABLE


def test_a_member_that_was_not_asked_to_rejoin_is_held_to_kafkas_rule(harness: CoordinatorHarness) -> None:
    """The control: other bytes are another subscription."""
    _, _, stays = settled(harness)
    before = rebalances(harness)
    stays.metadata = reads("t", owns=[2], generation=1)

    assert stays.join().is_pending

    assert rebalances(harness) == before + 1


@pytest.mark.parametrize("changed", ["topics", "protocols"])
def test_a_member_asked_to_rejoin_that_changes_its_subscription_causes_a_rebalance(
    harness: CoordinatorHarness, changed: str
) -> None:
    leader, grows, _ = settled(harness)
    leader.sync_with({grows.id: assignment(1, 3)}, resync_from_epoch=EPOCH)
    before = rebalances(harness)
    if changed == "topics":
        grows.metadata = reads("t", "u")
    else:
        grows.protocols = ("roundrobin", "range")

    assert grows.join().is_pending

    assert rebalances(harness) == before + 1


def test_a_member_asked_to_rejoin_that_misses_the_deadline_causes_a_rebalance(harness: CoordinatorHarness) -> None:
    leader, grows, stays = settled(harness)
    leader.sync_with({grows.id: assignment(1, 3)}, resync_from_epoch=EPOCH)
    before = rebalances(harness)

    keep_alive(REBALANCE_MS - 50, leader, grows, stays)
    assert rebalances(harness) == before
    keep_alive(100, leader, grows, stays)

    assert rebalances(harness) == before + 1
    assert harness.events_of(EventKind.REBALANCE_STARTED)[-1].cause.code is CauseCode.REJOIN_TIMED_OUT


def test_a_member_asked_to_rejoin_that_restarts_has_rejoined(harness: CoordinatorHarness) -> None:
    """Its new process joins and syncs anyway; it was asked to do so once more, and all rejoined if it took its time."""
    # given a member whose assignment grew, and which was asked to rejoin
    leader, grows, stays = settled(harness)
    leader.sync_with({grows.id: assignment(1, 3)}, resync_from_epoch=EPOCH)
    before = rebalances(harness)
    harness.advance(REBALANCE_MS - 200)

    # when it restarts
    again = grows.restarted()
    assert not again.join().is_pending
    harness.advance(300)
    assert again.heartbeat() is ErrorCode.NONE
    assert partitions(again.sync()) == {1, 3}

    # then it has its new assignment, and no member is asked to rejoin any more
    keep_alive(2 * REBALANCE_MS, leader, again, stays)
    assert again.heartbeat() is ErrorCode.NONE
    assert rebalances(harness) == before


def test_a_member_asked_to_rejoin_that_restarts_and_does_not_sync_causes_a_rebalance(
    harness: CoordinatorHarness,
) -> None:
    leader, grows, stays = settled(harness)
    leader.sync_with({grows.id: assignment(1, 3)}, resync_from_epoch=EPOCH)
    before = rebalances(harness)

    again = grows.restarted()
    again.join()
    keep_alive(REBALANCE_MS, leader, again, stays)

    assert rebalances(harness) == before + 1


def test_commits_are_accepted_throughout(harness: CoordinatorHarness) -> None:
    leader, grows, _ = settled(harness)
    leader.sync_with({grows.id: assignment(1, 3)}, resync_from_epoch=EPOCH)

    assert grows.commit(5).codes == [ErrorCode.NONE]
    grows.join()
    assert grows.commit(6).codes == [ErrorCode.NONE]


def test_after_a_crash_members_whose_assignment_grew_are_asked_again(harness: CoordinatorHarness) -> None:
    leader, grows, stays = settled(harness)
    leader.sync_with({grows.id: assignment(1, 3), leader.id: assignment(0, 4)}, resync_from_epoch=EPOCH)
    grows.join()
    grows.sync()

    harness.restart()

    before = rebalances(harness)
    assert stays.heartbeat() is ErrorCode.NONE
    assert grows.heartbeat() is leader.heartbeat() is REBALANCE
    grows.join()
    assert partitions(grows.sync()) == {1, 3}
    assert not leader.join().is_pending
    assert leader.leads
    assert {member.member_id for member in leader.members} == {leader.id, grows.id, stays.id}
    assert partitions(leader.sync_with()) == {0, 4}
    assert harness.extensions().assignment_epoch == EPOCH + 1
    assert rebalances(harness) == before


def refused(
    harness: CoordinatorHarness,
    member: Consumer,
    given: dict[str, bytes],
    reason: ResyncRejection,
    sentence: str,
    *,
    epoch: int = EPOCH,
) -> None:
    assert member.sync_with(given, resync_from_epoch=epoch).code is REBALANCE
    cause = harness.events_of(EventKind.RESYNCED)[-1].cause
    assert cause.code is CauseCode.RESYNC_REJECTED
    assert cause.reason is reason
    assert sentence in (cause.detail or "")
    assert cause.sentence == f"the leader must rejoin: {cause.detail}"
    assert harness.extensions().assignment_epoch == EPOCH


def test_what_could_go_wrong_is_refused(harness: CoordinatorHarness) -> None:
    leader, grows, stays = settled(harness)

    refused(harness, grows, {grows.id: assignment(1, 3)}, ResyncRejection.NOT_LEADER, "it does not lead")
    refused(
        harness, leader, {grows.id: assignment(1, 3)}, ResyncRejection.OTHER_EPOCH, "it worked from epoch 7", epoch=7
    )
    refused(harness, leader, {"somebody": assignment(3)}, ResyncRejection.OTHER_MEMBERS, "the group has other members")
    refused(harness, leader, {grows.id: assignment(3)}, ResyncRejection.PARTITIONS_LOST, "would lose partitions")
    refused(harness, leader, {grows.id: assignment(1, 2)}, ResyncRejection.PARTITIONS_OWNED, "have another owner")
    refused(
        harness,
        leader,
        {grows.id: assignment(1, 3), stays.id: assignment(2, 3)},
        ResyncRejection.PARTITIONS_OWNED,
        "have another owner",
    )
    refused(harness, leader, {grows.id: b"\xff"}, ResyncRejection.UNREADABLE_ASSIGNMENT, "cannot be read")
    other = assignment(5, topic="other")
    refused(harness, leader, {grows.id: other}, ResyncRejection.PARTITIONS_LOST, "would lose partitions")
    assert rebalances(harness) == 1


def test_a_partition_that_is_on_its_way_to_another_member_is_not_given_away() -> None:
    """KIP-429: L had partition 3 and was asked to give it up; until it has joined again it may work on it."""
    harness = CoordinatorHarness()
    leader = worker(harness, "L", 0, metadata=reads("t", owns=[0, 3], generation=0))
    grows = worker(harness, "G", 1)
    stable(leader, grows)

    refused(harness, leader, {grows.id: assignment(1, 3)}, ResyncRejection.GROUP_NOT_SETTLED, "not settled")


def test_a_resync_that_cannot_be_stored_has_not_happened(harness: CoordinatorHarness) -> None:
    leader, grows, _ = settled(harness)
    harness.fail_appends(ErrorCode.NOT_COORDINATOR)

    assert leader.sync_with({grows.id: assignment(1, 3)}, resync_from_epoch=EPOCH).code is ErrorCode.NOT_COORDINATOR

    assert grows.heartbeat() is ErrorCode.NONE
    assert harness.extensions().assignment_epoch == EPOCH


def test_the_epoch_is_returned_only_to_members_that_ask_for_it(harness: CoordinatorHarness) -> None:
    leader, grows, _ = settled(harness)

    assert leader.sync_with(wants_epoch=True).reply.assignment_epoch == EPOCH
    assert grows.sync().reply.assignment_epoch == -1


def test_the_epoch_rises_with_every_rebalance_and_never_falls(harness: CoordinatorHarness) -> None:
    member = worker(harness, None, 0)
    stable(member)
    epochs = [harness.extensions().assignment_epoch]
    for _ in range(3):
        member.sync_with({member.id: assignment(0, epochs[-1] % 97)}, resync_from_epoch=epochs[-1])
        epochs.append(harness.extensions().assignment_epoch)
        member.join()
        member.take()
        member.sync()
        epochs.append(harness.extensions().assignment_epoch)
        harness.restart()
        assert harness.extensions().assignment_epoch == epochs[-1]
    assert epochs == sorted(set(epochs))


def test_an_assignment_that_moves_within_its_instance_id_keeps_its_epoch(harness: CoordinatorHarness) -> None:
    """KIP-345: no other member notices. So it is no fencing token between the two processes (see docs/client.md)."""
    _, follower, _ = settled(harness)
    old_id, assignment_before = follower.id, partitions(follower.sync())

    again = follower.restarted()
    again.join()
    answer = again.sync_with(wants_epoch=True)

    assert answer.reply.assignment_epoch == EPOCH
    assert partitions(answer) == assignment_before
    assert again.id != old_id
    assert follower.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert follower.commit(5).codes == [ErrorCode.FENCED_INSTANCE_ID]
