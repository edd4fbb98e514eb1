"""A leader that cannot assign says so."""

from __future__ import annotations

from holdfast.coordinator.failures import LONGEST_BACKOFF_MS
from holdfast.coordinator.ledger import EventKind
from holdfast.wire.apis.sync_group import AssignmentFailure
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.bench import Bench
from tests.unit.coordinator.extension_scene import REBALANCE, partitions, worker
from tests.unit.coordinator.scene import Consumer, joined, synced

FAILURE = AssignmentFailure(1, "the assignor raised ValueError: no")


def two(bench: Bench) -> tuple[Consumer, Consumer]:
    leader, follower = worker(bench, "L", 0), worker(bench, "F", 1)
    joined(leader, follower)
    assert leader.leads
    return leader, follower


def test_all_are_sent_back_to_join_and_another_leads() -> None:
    bench = Bench()
    leader, follower = two(bench)
    plain = follower.sync()

    reported = leader.sync_with(failure=FAILURE)

    assert plain.code is REBALANCE
    assert plain.reply.failure is None
    assert (reported.code, reported.reply.failure) == (REBALANCE, FAILURE)
    assert bench.told(EventKind.ASSIGNMENT_FAILED)[0].cause == "code 1: the assignor raised ValueError: no"
    assert leader.join().parked
    assert follower.join().parked
    bench.advance(100)
    leader.take()
    follower.take()
    assert follower.leads
    synced(leader, follower)
    assert partitions(leader.sync_with()) == {0}


def test_whoever_can_read_it_is_told_what_went_wrong() -> None:
    bench = Bench()
    leader, follower = two(bench)
    asked = follower.sync_with(wants_epoch=True)

    leader.sync_with(failure=FAILURE)

    assert (asked.code, asked.reply.failure) == (REBALANCE, FAILURE)


def test_the_rounds_back_off_as_long_as_they_go_wrong() -> None:
    bench = Bench()
    only = worker(bench, "L", 0)
    joined(only)
    waits = []
    for _ in range(12):
        only.sync_with(failure=FAILURE)
        began = bench.now
        handle = only.join()
        while handle.parked:
            bench.advance(50)
        only.take()
        waits.append(bench.now - began)
    # The last ones end with the join phase, whose time is up before.
    assert waits[:4] == [100, 200, 400, 800]
    assert max(waits) <= LONGEST_BACKOFF_MS

    only.sync()
    only.join()
    only.take()
    assert only.sync_with(failure=FAILURE).code is REBALANCE
    again = only.join()
    bench.advance(100)
    assert again.code is ErrorCode.NONE


def test_a_follower_has_nothing_to_report() -> None:
    bench = Bench()
    leader, follower = two(bench)

    waiting = follower.sync_with(failure=FAILURE)
    assert waiting.parked
    leader.sync(follower)

    assert waiting.code is ErrorCode.NONE
    assert not bench.told(EventKind.ASSIGNMENT_FAILED)


def test_whoever_failed_is_remembered_as_long_as_it_is_there() -> None:
    """One that fails, goes and comes back under another id, in a loop, must not fill the memory."""
    bench = Bench()
    stays = worker(bench, "S", 0, session_ms=600_000, rebalance_ms=600_000)
    joined(stays)
    stays.sync_with(failure=FAILURE)

    for _ in range(20):
        fails = worker(bench, None, 1, session_ms=600_000, rebalance_ms=600_000)
        fails.join()
        stays.join()
        bench.advance(LONGEST_BACKOFF_MS)
        fails.take()
        stays.take()
        assert fails.leads, "one that has not failed yet is preferred"
        fails.sync_with(failure=FAILURE)
        assert bench.group().failed_leaders == {stays.id, fails.id}
        fails.leave()
    assert bench.group().failed_leaders == {stays.id}

    again = stays.restarted()
    again.join()
    assert not bench.group().failed_leaders
