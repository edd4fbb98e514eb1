"""The leader adds to the shares of a group that stays as it is, and the quiet call by which the others hear of it."""

from __future__ import annotations

import pytest

from holdfast.coordinator.ledger import EventKind
from holdfast.coordinator.states import STABLE
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.bench import REBALANCE_MS, Bench
from tests.unit.coordinator.extension_scene import REBALANCE, partitions, reads, rebalances, share, worker
from tests.unit.coordinator.scene import Consumer, keep_alive, stable

EPOCH = 1_000_000


@pytest.fixture
def bench() -> Bench:
    return Bench()


def settled(bench: Bench, **about: object) -> tuple[Consumer, Consumer, Consumer]:
    leader, grows, stays = (worker(bench, name, number, **about) for number, name in enumerate("LGS"))
    stable(leader, grows, stays)
    assert leader.leads
    return leader, grows, stays


def test_those_whose_share_grew_are_called_and_nobody_else_notices(bench: Bench) -> None:
    leader, grows, stays = settled(bench)
    before = rebalances(bench)

    answer = leader.sync_with({grows.id: share(1, 3, 4)}, resync_from_epoch=EPOCH)

    assert partitions(answer) == {0}
    assert answer.reply.assignment_epoch == EPOCH + 1
    assert stays.heartbeat() is leader.heartbeat() is ErrorCode.NONE
    assert grows.heartbeat() is grows.heartbeat() is REBALANCE
    grows.metadata = reads("t", owns=[1], generation=1)
    assert not grows.join().parked
    assert grows.heartbeat() is ErrorCode.NONE
    assert partitions(grows.sync()) == {1, 3, 4}
    assert rebalances(bench) == before
    assert bench.generation() == 1
    event = bench.told(EventKind.RESYNCED)[0]
    assert (event.previous_epoch, event.epoch, event.moved_partitions) == (EPOCH, EPOCH + 1, 0)
    assert event.cause == "2 partitions were added to 1 of 3 shares"


def test_a_leader_whose_own_share_grew_learns_it_at_once(bench: Bench) -> None:
    leader, *_ = settled(bench)

    assert partitions(leader.sync_with({leader.id: share(0, 9)}, resync_from_epoch=EPOCH)) == {0, 9}
    assert leader.heartbeat() is ErrorCode.NONE


def test_asked_again_because_the_answer_was_lost_the_answer_is_the_same(bench: Bench) -> None:
    leader, grows, _ = settled(bench)
    leader.sync_with({grows.id: share(1, 3)}, resync_from_epoch=EPOCH)

    grows.join()
    assert not grows.join().parked
    assert partitions(grows.sync()) == {1, 3}
    assert bench.group().state is STABLE


def test_a_member_that_was_not_called_is_held_to_kafkas_rule(bench: Bench) -> None:
    """The control: other bytes are another subscription."""
    _, _, stays = settled(bench)
    before = rebalances(bench)
    stays.metadata = reads("t", owns=[2], generation=1)

    assert stays.join().parked

    assert rebalances(bench) == before + 1


@pytest.mark.parametrize("changed", ["topics", "protocols"])
def test_a_called_member_that_wants_something_else_is_a_rebalance(bench: Bench, changed: str) -> None:
    leader, grows, _ = settled(bench)
    leader.sync_with({grows.id: share(1, 3)}, resync_from_epoch=EPOCH)
    before = rebalances(bench)
    if changed == "topics":
        grows.metadata = reads("t", "u")
    else:
        grows.protocols = ("roundrobin", "range")

    assert grows.join().parked

    assert rebalances(bench) == before + 1


def test_a_called_member_that_does_not_come_in_time_is_a_rebalance(bench: Bench) -> None:
    leader, grows, stays = settled(bench)
    leader.sync_with({grows.id: share(1, 3)}, resync_from_epoch=EPOCH)
    before = rebalances(bench)

    keep_alive(REBALANCE_MS - 50, leader, grows, stays)
    assert rebalances(bench) == before
    keep_alive(100, leader, grows, stays)

    assert rebalances(bench) == before + 1
    assert bench.told(EventKind.REBALANCE_STARTED)[-1].cause == "a member that was called did not come"


def test_a_called_member_that_restarts_has_come(bench: Bench) -> None:
    """Its new process joins and syncs anyway; it was told to do so once more, and all rejoined if it took its time."""
    # given a member whose share grew, and which was called
    leader, grows, stays = settled(bench)
    leader.sync_with({grows.id: share(1, 3)}, resync_from_epoch=EPOCH)
    before = rebalances(bench)
    bench.advance(REBALANCE_MS - 200)

    # when it restarts
    again = grows.restarted()
    assert not again.join().parked
    bench.advance(300)
    assert again.heartbeat() is ErrorCode.NONE
    assert partitions(again.sync()) == {1, 3}

    # then it has its new share, and nobody is called or disturbed any more
    keep_alive(2 * REBALANCE_MS, leader, again, stays)
    assert again.heartbeat() is ErrorCode.NONE
    assert rebalances(bench) == before


def test_a_called_member_that_restarts_and_does_not_sync_is_a_rebalance(bench: Bench) -> None:
    leader, grows, stays = settled(bench)
    leader.sync_with({grows.id: share(1, 3)}, resync_from_epoch=EPOCH)
    before = rebalances(bench)

    again = grows.restarted()
    again.join()
    keep_alive(REBALANCE_MS, leader, again, stays)

    assert rebalances(bench) == before + 1


def test_commits_are_accepted_throughout(bench: Bench) -> None:
    leader, grows, _ = settled(bench)
    leader.sync_with({grows.id: share(1, 3)}, resync_from_epoch=EPOCH)

    assert grows.commit(5).codes == [ErrorCode.NONE]
    grows.join()
    assert grows.commit(6).codes == [ErrorCode.NONE]


def test_after_a_crash_those_whose_share_grew_are_called_again(bench: Bench) -> None:
    leader, grows, stays = settled(bench)
    leader.sync_with({grows.id: share(1, 3), leader.id: share(0, 4)}, resync_from_epoch=EPOCH)
    grows.join()
    grows.sync()

    bench.restart()

    before = rebalances(bench)
    assert stays.heartbeat() is ErrorCode.NONE
    assert grows.heartbeat() is leader.heartbeat() is REBALANCE
    grows.join()
    assert partitions(grows.sync()) == {1, 3}
    assert not leader.join().parked
    assert leader.leads
    assert {member.member_id for member in leader.members} == {leader.id, grows.id, stays.id}
    assert partitions(leader.sync_with()) == {0, 4}
    assert bench.extensions().assignment_epoch == EPOCH + 1
    assert rebalances(bench) == before


def refused(bench: Bench, member: Consumer, given: dict[str, bytes], why: str, *, epoch: int = EPOCH) -> None:
    assert member.sync_with(given, resync_from_epoch=epoch).code is REBALANCE
    assert why in bench.told(EventKind.RESYNCED)[-1].cause
    assert bench.extensions().assignment_epoch == EPOCH


def test_what_could_go_wrong_is_refused(bench: Bench) -> None:
    leader, grows, stays = settled(bench)

    refused(bench, grows, {grows.id: share(1, 3)}, "it does not lead")
    refused(bench, leader, {grows.id: share(1, 3)}, "it worked from epoch 7", epoch=7)
    refused(bench, leader, {"somebody": share(3)}, "the members are others")
    refused(bench, leader, {grows.id: share(3)}, "would lose partitions")
    refused(bench, leader, {grows.id: share(1, 2)}, "are somebody's")
    refused(bench, leader, {grows.id: share(1, 3), stays.id: share(2, 3)}, "are somebody's")
    refused(bench, leader, {grows.id: b"\xff"}, "cannot be read")
    other = share(5, topic="other")
    refused(bench, leader, {grows.id: other}, "would lose partitions")
    assert rebalances(bench) == 1


def test_a_partition_that_is_on_its_way_to_another_member_is_not_given_away() -> None:
    """KIP-429: L had partition 3 and was told to give it up; until it has joined again it may work on it."""
    bench = Bench()
    leader = worker(bench, "L", 0, metadata=reads("t", owns=[0, 3], generation=0))
    grows = worker(bench, "G", 1)
    stable(leader, grows)

    refused(bench, leader, {grows.id: share(1, 3)}, "not settled")


def test_a_resync_that_cannot_be_stored_has_not_happened(bench: Bench) -> None:
    leader, grows, _ = settled(bench)
    bench.fail_appends(ErrorCode.NOT_COORDINATOR)

    assert leader.sync_with({grows.id: share(1, 3)}, resync_from_epoch=EPOCH).code is ErrorCode.NOT_COORDINATOR

    assert grows.heartbeat() is ErrorCode.NONE
    assert bench.extensions().assignment_epoch == EPOCH


def test_the_epoch_is_told_to_those_who_ask_and_to_nobody_else(bench: Bench) -> None:
    leader, grows, _ = settled(bench)

    assert leader.sync_with(wants_epoch=True).reply.assignment_epoch == EPOCH
    assert grows.sync().reply.assignment_epoch == -1


def test_the_epoch_rises_with_every_rebalance_and_never_falls(bench: Bench) -> None:
    member = worker(bench, None, 0)
    stable(member)
    epochs = [bench.extensions().assignment_epoch]
    for _ in range(3):
        member.sync_with({member.id: share(0, epochs[-1] % 97)}, resync_from_epoch=epochs[-1])
        epochs.append(bench.extensions().assignment_epoch)
        member.join()
        member.take()
        member.sync()
        epochs.append(bench.extensions().assignment_epoch)
        bench.restart()
        assert bench.extensions().assignment_epoch == epochs[-1]
    assert epochs == sorted(set(epochs))


def test_a_seat_that_changes_hands_within_its_instance_id_keeps_its_epoch(bench: Bench) -> None:
    """KIP-345: nobody notices; so it is no token between the two processes, and the docs say what is."""
    _, follower, _ = settled(bench)
    old_id, share_before = follower.id, partitions(follower.sync())

    again = follower.restarted()
    again.join()
    answer = again.sync_with(wants_epoch=True)

    assert answer.reply.assignment_epoch == EPOCH
    assert partitions(answer) == share_before
    assert again.id != old_id
    assert follower.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert follower.commit(5).codes == [ErrorCode.FENCED_INSTANCE_ID]
