"""KIP-469: members that are announced before they come."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.coordinator.ledger import EventKind
from holdfast.coordinator.registration import LONGEST_ID, LONGEST_WAIT_MS, MOST_PATIENCE_MS
from holdfast.coordinator.states import EMPTY
from holdfast.wire.apis.add_members_to_group import Registration
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.bench import GROUP, REBALANCE_MS, SESSION_MS, Bench
from tests.unit.coordinator.extension_scene import (
    UNKNOWN,
    all_rejoin,
    connection,
    partitions,
    rebalances,
    seated,
    worker,
)
from tests.unit.coordinator.scene import Consumer, keep_alive, stable


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    assert not bench.held


# -- announcing --------------------------------------------------------------------------------------------------------


def test_each_id_has_a_result_of_its_own(bench: Bench) -> None:
    member = worker(bench, "here", 0)
    stable(member)
    assert bench.add_members("expected").code is ErrorCode.NONE

    answer = bench.add_members("new", "here", "expected", "", "x" * (LONGEST_ID + 1), "new").reply

    assert [(result.error_code, result.outcome) for result in answer.results] == [
        (ErrorCode.NONE, Registration.REGISTERED),
        (ErrorCode.NONE, Registration.ALREADY_MEMBER),
        (ErrorCode.NONE, Registration.RENEWED),
        (ErrorCode.INVALID_REQUEST, Registration.REGISTERED),
        (ErrorCode.INVALID_REQUEST, Registration.REGISTERED),
        (ErrorCode.INVALID_REQUEST, Registration.REGISTERED),
    ]
    assert answer.results[-1].error_message == "it is named twice"
    assert [(one.group_instance_id, one.arrived) for one in bench.extensions().expected] == [
        ("expected", False),
        ("new", False),
    ]
    assert [event.instance_ids for event in bench.told(EventKind.REGISTERED)] == [["expected"], ["new", "expected"]]


@pytest.mark.parametrize(
    ("ids", "wait_ms", "group", "code"),
    [
        ((), 1, GROUP, ErrorCode.INVALID_REQUEST),
        (("a",), 0, GROUP, ErrorCode.INVALID_REQUEST),
        (("a",), LONGEST_WAIT_MS + 1, GROUP, ErrorCode.INVALID_REQUEST),
        (("a",), 1, "", ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_an_announcement_that_makes_no_sense(
    bench: Bench, ids: tuple[str, ...], wait_ms: int, group: str, code: ErrorCode
) -> None:
    assert bench.add_members(*ids, wait_ms=wait_ms, group=group).code is code
    assert not list(bench.groups())


def test_a_group_of_another_type_expects_nobody(bench: Bench) -> None:
    member = bench.join(protocol_type="connect", instance="w")
    bench.advance(1_000)
    assert member.code is ErrorCode.NONE

    assert bench.add_members("a").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_more_than_the_group_may_have_are_refused() -> None:
    bench = Bench(max_size=2)

    answer = bench.add_members("a", "b", "c").reply

    assert [ErrorCode(result.error_code) for result in answer.results] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]


def test_an_announcement_that_cannot_be_stored_has_not_happened(bench: Bench) -> None:
    bench.fail_appends(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    assert bench.add_members("a").code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.add_members("a").reply.results[0].outcome == Registration.REGISTERED


# -- arriving ----------------------------------------------------------------------------------------------------------


def test_one_rebalance_takes_in_all_who_were_announced(bench: Bench) -> None:
    one, two = worker(bench, "1", 0), worker(bench, "2", 1)
    stable(one, two)
    began = rebalances(bench)
    three, four = worker(bench, "3", 2), worker(bench, "4", 3)
    bench.add_members("3", "4")

    seated(three)
    keep_alive(SESSION_MS * 2, one, two, three)

    assert rebalances(bench) == began
    assert one.heartbeat() is two.heartbeat() is three.heartbeat() is ErrorCode.NONE
    assert [(e.group_instance_id, e.arrived) for e in bench.extensions().expected] == [("3", True), ("4", False)]

    assert four.join().parked
    assert rebalances(bench) == began + 1
    all_rejoin(one, two, three, also=[four])

    assert rebalances(bench) == began + 1
    assert bench.generation() == 2
    assert not bench.extensions().expected
    assert [partitions(member.sync()) for member in (one, two, three, four)] == [{0}, {1}, {2}, {3}]


def test_without_an_announcement_each_newcomer_is_a_rebalance(bench: Bench) -> None:
    """The control."""
    one = worker(bench, "1", 0)
    stable(one)
    for number in ("2", "3"):
        before = rebalances(bench)
        worker(bench, number).join()
        assert rebalances(bench) == before + 1
        one.join()
        bench.advance(REBALANCE_MS)
        one.take()
        one.sync()
        bench.advance(REBALANCE_MS)


def test_a_rebalance_for_another_reason_takes_along_who_has_arrived(bench: Bench) -> None:
    one, early = worker(bench, "1", 0), worker(bench, "early", 1)
    stable(one)
    bench.add_members("early", "late")
    seated(early)

    stranger = worker(bench, "stranger", 2)
    stranger.join()
    all_rejoin(one, early, also=[stranger])

    assert [expected.group_instance_id for expected in bench.extensions().expected] == ["late"]
    late, before = worker(bench, "late", 3), rebalances(bench)
    late.join()
    assert rebalances(bench) == before + 1


def test_one_that_dies_while_it_waits_is_expected_again(bench: Bench) -> None:
    one, early = worker(bench, "1", 0), worker(bench, "early", 1)
    stable(one)
    bench.add_members("early", "late", wait_ms=60_000)
    seated(early)
    before = rebalances(bench)

    keep_alive(SESSION_MS + 100, one)

    assert bench.told(EventKind.SESSION_EXPIRED)[-1].instance_id == "early"
    assert early.heartbeat() is UNKNOWN
    late = worker(bench, "late", 2)
    seated(late)
    assert [(e.group_instance_id, e.arrived) for e in bench.extensions().expected] == [("early", False), ("late", True)]
    assert rebalances(bench) == before

    early.restarted().join()
    assert rebalances(bench) == before + 1


def test_one_that_hangs_up_while_it_waits_has_not_arrived_until_it_is_heard_again(bench: Bench) -> None:
    one, early, late = worker(bench, "1", 0), worker(bench, "early", 1), worker(bench, "late", 2)
    stable(one)
    bench.add_members("early", "late")
    seated(early)
    before = rebalances(bench)

    bench.hang_up(early.client)
    seated(late)
    assert rebalances(bench) == before

    early.client = connection()
    assert early.heartbeat() is ErrorCode.NONE
    assert rebalances(bench) == before + 1


def about_to_be_taken_in(bench: Bench) -> tuple[Consumer, Consumer, Consumer]:
    """Given: a member, one that was announced and waited, and the last one, whose join has begun the rebalance."""
    one, early, late = (worker(bench, name, at, rebalance_ms=30_000) for at, name in enumerate(("1", "early", "late")))
    stable(one)
    bench.add_members("early", "late")
    seated(early)
    assert late.join().parked
    assert bench.state() == "PreparingRebalance"
    return one, early, late


def test_one_that_dies_when_the_rebalance_has_begun_is_expected_again_and_not_waited_for(bench: Bench) -> None:
    # given
    one, early, late = about_to_be_taken_in(bench)

    # when the one that waited dies before it hears of it
    bench.hang_up(early.client)
    one.join()

    # then the others have their generation at once, and it is expected
    late.take()
    one.take()
    assert {member.group_instance_id for member in one.members} == {"1", "late"}
    assert [(e.group_instance_id, e.arrived) for e in bench.extensions().expected] == [("early", False)]


def test_one_that_was_the_last_to_be_waited_for_when_it_died_ends_the_join_phase(bench: Bench) -> None:
    one, early, late = about_to_be_taken_in(bench)
    one.join()
    assert bench.state() == "PreparingRebalance"

    bench.hang_up(early.client)

    one.take()
    late.take()
    assert one.generation == late.generation == 2


def test_one_that_only_reconnects_when_the_rebalance_has_begun_is_taken_in_by_it(bench: Bench) -> None:
    """The control."""
    one, early, late = about_to_be_taken_in(bench)
    began = rebalances(bench)

    bench.hang_up(early.client)
    early.client = connection()
    early.heartbeat()

    all_rejoin(one, early, also=[late])
    assert rebalances(bench) == began
    assert not bench.extensions().expected


def test_a_waiting_member_that_restarts_keeps_its_seat_under_a_new_id(bench: Bench) -> None:
    one, early = worker(bench, "1", 0), worker(bench, "early", 1)
    stable(one)
    bench.add_members("early", "late")
    seated(early)
    before = rebalances(bench)

    again = early.restarted(metadata=b"\x00\x00 other bytes")
    assert not again.join().parked

    assert again.id != early.id
    assert early.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert again.heartbeat() is ErrorCode.NONE
    assert rebalances(bench) == before


def test_leaving_a_seat_disturbs_nobody(bench: Bench) -> None:
    one, early = worker(bench, "1", 0), worker(bench, "early", 1)
    stable(one)
    bench.add_members("early", "late")
    seated(early)
    before = rebalances(bench)

    assert early.leave() is ErrorCode.NONE

    assert rebalances(bench) == before
    assert one.heartbeat() is ErrorCode.NONE


# -- the end of the wait -----------------------------------------------------------------------------------------------


def test_when_the_wait_is_over_one_rebalance_takes_in_those_who_came(bench: Bench) -> None:
    one, early = worker(bench, "1", 0), worker(bench, "early", 1)
    stable(one)
    bench.add_members("early", "late", "later", wait_ms=5_000)
    seated(early)
    before = rebalances(bench)
    keep_alive(4_900, one, early)
    assert rebalances(bench) == before

    bench.advance(100)

    (expired,) = bench.told(EventKind.REGISTRATION_EXPIRED)
    assert expired.instance_ids == ["late", "later"]
    assert expired.cause == "1 of 3 announced members came in time"
    assert rebalances(bench) == before + 1
    all_rejoin(one, early)
    assert not bench.extensions().expected


def test_when_nobody_came_nothing_happens(bench: Bench) -> None:
    one = worker(bench, "1", 0)
    stable(one)
    bench.add_members("a", wait_ms=2_000)
    before = rebalances(bench)

    keep_alive(5_000, one)

    assert rebalances(bench) == before
    assert bench.told(EventKind.REGISTRATION_EXPIRED)[0].instance_ids == ["a"]


def test_a_second_announcement_prolongs_the_wait(bench: Bench) -> None:
    one = worker(bench, "1", 0)
    stable(one)
    bench.add_members("a", wait_ms=2_000)
    keep_alive(1_500, one)
    bench.add_members("a", "b", wait_ms=2_000)
    keep_alive(1_500, one)
    assert len(bench.extensions().expected) == 2

    keep_alive(600, one)
    assert not bench.extensions().expected


def test_cancelling_the_rest_takes_in_those_who_came(bench: Bench) -> None:
    one, early = worker(bench, "1", 0), worker(bench, "early", 1)
    stable(one)
    bench.add_members("early", "late")
    seated(early)
    before = rebalances(bench)

    answer = bench.cancel("late", "never heard of").reply

    assert [ErrorCode(result.error_code) for result in answer.results] == [ErrorCode.NONE, UNKNOWN]
    assert rebalances(bench) == before + 1
    all_rejoin(one, early)


def test_cancelling_all_when_nobody_came(bench: Bench) -> None:
    bench.add_members("a", "b")

    assert len(bench.cancel().reply.results) == 2
    assert bench.cancel().code is ErrorCode.GROUP_ID_NOT_FOUND
    assert [event.instance_ids for event in bench.told(EventKind.REGISTRATION_CANCELLED)] == [["a", "b"]]


# -- an empty group ----------------------------------------------------------------------------------------------------


def test_an_empty_group_forms_the_moment_the_last_one_is_there(bench: Bench) -> None:
    bench.add_members("a", "b", "c")
    a, b, c = (worker(bench, name, number) for number, name in enumerate("abc"))
    assert a.join().parked
    bench.advance(REBALANCE_MS // 2)
    assert b.join().parked
    now = bench.now

    c.join()

    assert bench.now == now
    for member in (a, b, c):
        member.take()
        assert member.generation == 1
    assert not bench.extensions().expected


def test_its_parked_joins_are_sent_round_before_their_patience_ends(bench: Bench) -> None:
    bench.add_members("a", "b", wait_ms=3_600_000)
    a = worker(bench, "a", 0)
    first = a.join()

    bench.advance(REBALANCE_MS * 3 // 4)
    assert first.code is ErrorCode.MEMBER_ID_REQUIRED
    a.id = first.member_id
    again = a.join()
    assert again.parked

    for _ in range(100):
        bench.advance(REBALANCE_MS * 3 // 4)
        assert again.code is ErrorCode.MEMBER_ID_REQUIRED
        again = a.join()
    b = worker(bench, "b", 1)
    b.join()
    a.take()
    assert a.generation == b.generation == 1


def test_no_client_is_kept_longer_than_its_first_join_may_take(bench: Bench) -> None:
    bench.add_members("a", "b", wait_ms=3_600_000)
    a = worker(bench, "a", 0, rebalance_ms=1_000_000)
    first = a.join()

    bench.advance(MOST_PATIENCE_MS)

    assert first.code is ErrorCode.MEMBER_ID_REQUIRED


def test_one_that_hangs_up_while_its_join_is_parked_is_expected_again(bench: Bench) -> None:
    bench.add_members("a", "b")
    a, b = worker(bench, "a", 0), worker(bench, "b", 1)
    a.join()

    bench.hang_up(a.client)
    assert b.join().parked
    assert [(e.group_instance_id, e.arrived) for e in bench.extensions().expected] == [("a", False), ("b", True)]

    again = a.restarted(client=connection())
    again.join()
    b.take()
    assert again.generation == b.generation == 1


def test_a_join_that_waited_for_the_disk_while_its_connection_closed_is_no_arrival(bench: Bench) -> None:
    bench.hold()
    bench.add_members("a", "b")
    a, b = worker(bench, "a", 0), worker(bench, "b", 1)
    a.join()
    bench.hang_up(a.client)
    bench.release()

    assert b.join().parked
    assert [(e.group_instance_id, e.arrived) for e in bench.extensions().expected] == [("a", False), ("b", True)]


def test_an_unannounced_member_begins_the_ordinary_delay_and_the_others_go_along(bench: Bench) -> None:
    bench.add_members("a", "b")
    a, stranger = worker(bench, "a", 0), worker(bench, None, 1)
    a.join()
    stranger.join()

    bench.advance(1_000)

    for member in (a, stranger):
        member.take()
        assert member.generation == 1
    assert [expected.group_instance_id for expected in bench.extensions().expected] == ["b"]


def test_an_empty_group_forms_of_those_who_came_when_the_wait_is_over(bench: Bench) -> None:
    bench.add_members("a", "b", wait_ms=1_000)
    a = worker(bench, "a", 0)
    a.join()

    bench.advance(1_000)

    a.take()
    assert a.generation == 1


def test_an_empty_group_stays_when_nobody_came(bench: Bench) -> None:
    bench.add_members("a", wait_ms=1_000)
    assert bench.group().state is EMPTY

    bench.advance(2_000)

    assert bench.told(EventKind.REGISTRATION_EXPIRED)
    assert bench.describe(version=6).error_code == ErrorCode.GROUP_ID_NOT_FOUND


# -- kill -9 -----------------------------------------------------------------------------------------------------------


def test_whoever_is_expected_is_expected_after_a_crash(bench: Bench) -> None:
    one, early = worker(bench, "1", 0), worker(bench, "early", 1)
    stable(one)
    bench.add_members("early", "late", wait_ms=60_000)
    seated(early)
    until = [expected.deadline_ms for expected in bench.extensions().expected]

    bench.restart()

    assert [(e.group_instance_id, e.arrived) for e in bench.extensions().expected] == [
        ("early", False),
        ("late", False),
    ]
    assert [expected.deadline_ms for expected in bench.extensions().expected] == until
    assert one.heartbeat() is ErrorCode.NONE
    before = rebalances(bench)
    assert early.heartbeat() is UNKNOWN
    again = early.restarted()
    seated(again)
    assert rebalances(bench) == before
    late = worker(bench, "late", 2)
    late.join()
    all_rejoin(one, again, also=[late])
    assert rebalances(bench) == before + 1


def test_one_that_had_gone_and_is_a_member_again_after_a_crash_has_arrived(bench: Bench) -> None:
    """Its place was open, so it was announced; nobody had taken it, so it is a member with a fresh session."""
    # given a group that expects two, one of whom has just left it
    one, two, standby = worker(bench, "1", 0), worker(bench, "2", 1), worker(bench, "S")
    stable(one, two)
    bench.configure(target_size=2)
    seated(standby)
    two.leave()
    bench.add_members("2", "late", wait_ms=60_000)

    # when the broker is killed, and the other one arrives
    bench.restart()
    bench.configure(target_size=5)
    before = rebalances(bench)
    late = worker(bench, "late", 2)
    assert late.join().parked

    # then nobody else is waited for
    assert rebalances(bench) == before + 1
    assert bench.told(EventKind.REBALANCE_STARTED)[-1].cause == "the announced members are all there"
    all_rejoin(one, two, also=[late])
    assert not bench.extensions().expected


def test_one_that_had_gone_and_goes_again_after_a_crash_is_waited_for(bench: Bench) -> None:
    """The control."""
    one, two, standby = worker(bench, "1", 0), worker(bench, "2", 1), worker(bench, "S")
    stable(one, two)
    bench.configure(target_size=2)
    seated(standby)
    two.leave()
    bench.add_members("2", "late", wait_ms=60_000)
    bench.restart()
    bench.configure(target_size=5)
    two.leave()
    all_rejoin(one)
    before = rebalances(bench)

    seated(worker(bench, "late", 2))

    assert rebalances(bench) == before


def test_a_wait_that_ended_while_the_broker_was_down_is_over(bench: Bench) -> None:
    bench.add_members("a", wait_ms=1_000)
    bench.restart(only_load=True)
    bench.now += 5_000
    bench.finish_loading()

    bench.advance(1)

    assert bench.told(EventKind.REGISTRATION_EXPIRED)


def test_a_crash_after_the_generation_leaves_nobody_expected(bench: Bench) -> None:
    bench.add_members("a", "b")
    a, b = worker(bench, "a", 0), worker(bench, "b", 1)
    a.join()
    b.join()

    bench.restart()

    assert not bench.extensions().expected
    assert bench.generation() == 1


def test_the_sweep_does_not_forget_who_is_expected(bench: Bench) -> None:
    bench.add_members("a", wait_ms=60_000)

    bench.sweep()
    bench.restart()

    assert [expected.group_instance_id for expected in bench.extensions().expected] == ["a"]


def test_deleting_the_group_ends_what_was_announced_for_it(bench: Bench) -> None:
    bench.add_members("a")

    assert bench.delete() is ErrorCode.NONE

    bench.restart()
    assert bench.describe(version=6).error_code == ErrorCode.GROUP_ID_NOT_FOUND
