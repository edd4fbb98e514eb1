"""What a query holds, between Spark's thread and the group's."""

from __future__ import annotations

import threading
import time

from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.partition_state import PartitionState, Restart
from tests.support.eventually import eventually

P0, P1, P2 = ("t", 0), ("t", 1), ("t", 2)


def ranges(*of: tuple[tuple[str, int], int, int]) -> list[OffsetRange]:
    return [OffsetRange(*where, start, end) for where, start, end in of]


def soon() -> float:
    return time.monotonic() + 30


def test_a_partition_begins_where_the_group_is() -> None:
    holdings = PartitionState()
    holdings.assigned(0, {P0: 10})

    assert holdings.positions() == {P0: 10}
    assert holdings.uncommitted() == {}  # the group knows that


def test_the_further_of_group_and_checkpoint_wins() -> None:
    holdings = PartitionState()
    holdings.mark_processed({P0: 20, P1: 5})
    holdings.assigned(0, {P0: 10, P1: 10})

    assert holdings.positions() == {P0: 20, P1: 10}
    assert holdings.uncommitted() == {0: {P0: 20}}


def test_a_beginning_that_the_group_does_not_know_is_stored_once() -> None:
    holdings = PartitionState()
    holdings.assigned(0, {P0: 0, P1: 7}, uncommitted_starts={P0})

    assert holdings.uncommitted() == {0: {P0: 0}}
    holdings.committed({P0: 0})
    assert holdings.uncommitted() == {}


def test_each_member_commits_its_own() -> None:
    holdings = PartitionState()
    holdings.assigned(0, {P0: 0})
    holdings.assigned(1, {P1: 0})
    holdings.mark_processed({P0: 3, P1: 4, P2: 5})  # P2 is somebody else's by now

    assert holdings.uncommitted() == {0: {P0: 3}, 1: {P1: 4}}


def test_nothing_is_stored_backwards() -> None:
    holdings = PartitionState()
    holdings.assigned(0, {P0: 50})
    holdings.mark_processed({P0: 40})
    assert holdings.uncommitted() == {}

    holdings.mark_processed({P0: 60})
    holdings.committed({P0: 60})
    holdings.committed({P0: 55})  # an answer that was late
    holdings.mark_processed({P0: 58})
    assert holdings.uncommitted() == {}


def test_what_was_lost_is_not_stored_and_what_comes_back_is() -> None:
    holdings = PartitionState()
    holdings.assigned(0, {P0: 0})
    holdings.plan_batch(ranges((P0, 0, 10)))
    holdings.revoked(0, [P0])
    holdings.mark_processed({P0: 10})
    assert holdings.uncommitted() == {}

    holdings.assigned(1, {P0: 4})  # another had read to 4 meanwhile

    assert holdings.positions() == {P0: 10}
    assert holdings.uncommitted() == {1: {P0: 10}}


def test_a_partition_that_moved_between_two_members_is_not_lost_by_the_first() -> None:
    holdings = PartitionState()
    holdings.assigned(0, {P0: 0})
    holdings.assigned(1, {P0: 0})
    holdings.revoked(0, [P0])
    assert holdings.positions() == {P0: 0}

    holdings.revoked(1)
    assert holdings.positions() == {}


def test_a_batch_has_only_what_is_still_held() -> None:
    holdings = PartitionState()
    holdings.assigned(0, {P0: 0, P1: 0, P2: 0})
    wanted = ranges((P0, 0, 5), (P1, 0, 5), (P2, 0, 0))
    holdings.revoked(0, [P1])

    assert holdings.plan_batch(wanted) == ranges((P0, 0, 5), (P2, 0, 0))


def test_a_batch_does_not_read_again_what_came_back_further_on() -> None:
    # given a batch that is being planned
    holdings = PartitionState()
    holdings.assigned(0, {P0: 0, P1: 0})
    assert holdings.positions() == {P0: 0, P1: 0}
    # when a partition goes meanwhile, another reads some of it, and it comes back
    holdings.revoked(0, [P0])
    holdings.assigned(0, {P0: 50})
    # then the batch is planned without it
    assert holdings.plan_batch(ranges((P0, 0, 100), (P1, 0, 5))) == ranges((P1, 0, 5))
    # and one that begins later on, because the log does, is not hindered
    assert holdings.plan_batch(ranges((P0, 60, 100))) == ranges((P0, 60, 100))


def test_a_revocation_waits_for_the_batch_that_reads_the_partition() -> None:
    # given a batch that reads P0 and not P1
    holdings = PartitionState()
    holdings.assigned(0, {P0: 0, P1: 0})
    holdings.plan_batch(ranges((P0, 0, 5), (P1, 0, 0)))
    assert holdings.wait_until_idle([P1], soon())
    # when P0 is to go
    outcome: list[bool] = []
    waiter = threading.Thread(target=lambda: outcome.append(holdings.wait_until_idle([P0], soon())))
    waiter.start()
    eventually(lambda: P0 not in holdings.positions(), "P0 is marked")
    # then no batch is planned with it, and it goes when the batch is done
    assert outcome == []
    assert holdings.plan_batch(ranges((P0, 5, 9), (P1, 0, 2))) == []
    holdings.batch_done()
    waiter.join(30)
    assert outcome == [True]


def test_a_revocation_waits_no_longer_than_its_timeout() -> None:
    holdings = PartitionState()
    holdings.assigned(0, {P0: 0})
    holdings.plan_batch(ranges((P0, 0, 5)))

    assert not holdings.wait_until_idle([P0], time.monotonic() + 0.01)
    assert not holdings.wait_until_idle([P0], time.monotonic() - 1)


def test_what_came_again_can_be_planned_again() -> None:
    holdings = PartitionState()
    holdings.assigned(0, {P0: 0})
    assert holdings.wait_until_idle([P0], soon())
    assert holdings.positions() == {}
    holdings.revoked(0, [P0])

    holdings.assigned(0, {P0: 3})

    assert holdings.positions() == {P0: 3}


def test_a_batch_of_before_a_restart_is_waited_for() -> None:
    holdings = PartitionState()
    holdings.assigned(0, {P0: 0})
    holdings.replan_batch([P0])

    assert not holdings.wait_until_idle([P0], time.monotonic() + 0.01)


def test_a_partition_created_again_is_rewound() -> None:
    holdings = PartitionState()
    holdings.assigned(0, {P0: 100})
    holdings.mark_processed({P0: 120})

    holdings.rewind(P0, 7)

    assert holdings.positions() == {P0: 7}
    assert holdings.uncommitted() == {0: {P0: 7}}  # backwards, this once

    holdings.committed({P0: 120})  # an answer that was under way
    holdings.committed({P0: 7})
    holdings.mark_processed({P0: 9})
    assert holdings.uncommitted() == {0: {P0: 9}}


# -- partitions that begin before the offset of the group --------------------------------------------------------------


def test_a_restart_is_planned_only_after_its_start_is_committed() -> None:
    holdings = PartitionState()
    holdings.restart_at({P0: Restart(3), P1: Restart(3)})
    holdings.assigned(0, {P0: 10, P2: 10})

    assert holdings.has_partitions() and holdings.positions() == {P2: 10}
    assert holdings.uncommitted_restarts() == {P0}
    assert holdings.uncommitted() == {0: {P0: 3}}

    holdings.committed({P0: 3})

    assert holdings.positions() == {P0: 3, P2: 10}
    assert holdings.uncommitted_restarts() == set() and holdings.uncommitted() == {}


def test_a_restart_never_skips_records_of_the_group() -> None:
    holdings = PartitionState()
    holdings.restart_at({P0: Restart(30), P1: Restart(10)})
    holdings.assigned(0, {P0: 10, P1: 10})

    assert holdings.positions() == {P0: 10, P1: 10}
    assert holdings.uncommitted_restarts() == set()


def test_a_restarted_partition_is_restarted_once() -> None:
    holdings = PartitionState()
    holdings.restart_at({P0: Restart(3), P1: Restart(3)})
    holdings.assigned(0, {P0: 10})
    holdings.committed({P0: 3})

    holdings.plan_batch(ranges((P0, 3, 5)))
    holdings.revoked(0, [P0])
    holdings.assigned(0, {P0: 8})

    assert holdings.positions() == {P0: 8}
    assert holdings.restarts() == {P1: Restart(3)}


def test_partitions_that_come_after_the_first_batch_restart_if_the_group_stands_still() -> None:
    holdings = PartitionState()
    holdings.restart_at({P0: Restart(3), P1: Restart(3), P2: Restart(3), ("t", 3): Restart(3)})

    holdings.restart_only_after({P0: 10, P1: 10, P2: 2})
    holdings.assigned(0, {P0: 10, P1: 11, P2: 10, ("t", 3): 10})

    assert holdings.uncommitted_restarts() == {P0}  # the others have an owner that goes on
    assert holdings.positions() == {P1: 11, P2: 10, ("t", 3): 10}


def test_a_restart_that_was_revoked_before_its_commit_is_tried_again() -> None:
    holdings = PartitionState()
    holdings.restart_at({P0: Restart(3)})
    holdings.assigned(0, {P0: 10})
    assert holdings.uncommitted_restarts() == {P0}

    holdings.revoked(0)
    assert holdings.uncommitted_restarts() == set() and not holdings.has_partitions()
    holdings.assigned(1, {P0: 10})

    assert holdings.uncommitted() == {1: {P0: 3}}


def test_a_restart_beyond_the_end_of_the_log_continues_there_as_every_other_partition() -> None:
    holdings = PartitionState()
    holdings.restart_at({P0: Restart(3)})
    holdings.assigned(0, {P0: 10})
    holdings.committed({P0: 3})

    holdings.rewind(P0, 2)

    assert holdings.positions() == {P0: 2} and holdings.uncommitted() == {0: {P0: 2}}
