"""KIP-469: members that are registered before they join."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.coordinator.classic.state_machine import EMPTY
from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.events.group_event import EventKind
from holdfast.coordinator.extensions.registered_wait import MAX_JOIN_KEEPALIVE_MS
from holdfast.coordinator.extensions.registration import MAX_ID_LENGTH, MAX_WAIT_MS
from holdfast.wire.apis.add_members_to_group import Registration
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.extension_members import (
    UNKNOWN,
    all_rejoin,
    connection,
    is_standby,
    partitions,
    rebalances,
    worker,
)
from tests.unit.coordinator.harness import GROUP, REBALANCE_MS, SESSION_MS, CoordinatorHarness
from tests.unit.coordinator.members import Consumer, keep_alive, stable


@pytest.fixture
def harness() -> Iterator[CoordinatorHarness]:
    harness = CoordinatorHarness()
    yield harness
    assert not harness.paused_appends


# -- registering -------------------------------------------------------------------------------------------------------


def test_each_id_has_a_result_of_its_own(harness: CoordinatorHarness) -> None:
    member = worker(harness, "here", 0)
    stable(member)
    assert harness.add_members("expected").code is ErrorCode.NONE

    answer = harness.add_members("new", "here", "expected", "", "x" * (MAX_ID_LENGTH + 1), "new").reply

    assert [(result.error_code, result.outcome) for result in answer.results] == [
        (ErrorCode.NONE, Registration.REGISTERED),
        (ErrorCode.NONE, Registration.ALREADY_MEMBER),
        (ErrorCode.NONE, Registration.RENEWED),
        (ErrorCode.INVALID_REQUEST, Registration.REGISTERED),
        (ErrorCode.INVALID_REQUEST, Registration.REGISTERED),
        (ErrorCode.INVALID_REQUEST, Registration.REGISTERED),
    ]
    assert answer.results[-1].error_message == "it is named twice"
    assert [(one.group_instance_id, one.arrived) for one in harness.extensions().expected] == [
        ("expected", False),
        ("new", False),
    ]
    assert [event.instance_ids for event in harness.events_of(EventKind.REGISTERED)] == [
        ["expected"],
        ["new", "expected"],
    ]


@pytest.mark.parametrize(
    ("ids", "wait_ms", "group", "code"),
    [
        ((), 1, GROUP, ErrorCode.INVALID_REQUEST),
        (("a",), 0, GROUP, ErrorCode.INVALID_REQUEST),
        (("a",), MAX_WAIT_MS + 1, GROUP, ErrorCode.INVALID_REQUEST),
        (("a",), 1, "", ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_invalid_registrations_are_refused(
    harness: CoordinatorHarness, ids: tuple[str, ...], wait_ms: int, group: str, code: ErrorCode
) -> None:
    assert harness.add_members(*ids, wait_ms=wait_ms, group=group).code is code
    assert not list(harness.groups())


def test_a_group_of_another_type_refuses_registrations(harness: CoordinatorHarness) -> None:
    member = harness.join(protocol_type="connect", instance="w")
    harness.advance(1_000)
    assert member.code is ErrorCode.NONE

    assert harness.add_members("a").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_more_than_the_group_may_have_are_refused() -> None:
    harness = CoordinatorHarness(max_size=2)

    answer = harness.add_members("a", "b", "c").reply

    assert [ErrorCode(result.error_code) for result in answer.results] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]


def test_a_registration_that_cannot_be_stored_has_no_effect(harness: CoordinatorHarness) -> None:
    harness.fail_appends(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    assert harness.add_members("a").code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.add_members("a").reply.results[0].outcome == Registration.REGISTERED


# -- arriving ----------------------------------------------------------------------------------------------------------


def test_one_rebalance_admits_all_registered_members(harness: CoordinatorHarness) -> None:
    one, two = worker(harness, "1", 0), worker(harness, "2", 1)
    stable(one, two)
    began = rebalances(harness)
    three, four = worker(harness, "3", 2), worker(harness, "4", 3)
    harness.add_members("3", "4")

    is_standby(three)
    keep_alive(SESSION_MS * 2, one, two, three)

    assert rebalances(harness) == began
    assert one.heartbeat() is two.heartbeat() is three.heartbeat() is ErrorCode.NONE
    assert [(e.group_instance_id, e.arrived) for e in harness.extensions().expected] == [("3", True), ("4", False)]

    assert four.join().is_pending
    assert rebalances(harness) == began + 1
    all_rejoin(one, two, three, also=[four])

    assert rebalances(harness) == began + 1
    assert harness.generation() == 2
    assert not harness.extensions().expected
    assert [partitions(member.sync()) for member in (one, two, three, four)] == [{0}, {1}, {2}, {3}]


def test_without_a_registration_each_new_member_causes_a_rebalance(harness: CoordinatorHarness) -> None:
    """The control."""
    one = worker(harness, "1", 0)
    stable(one)
    for number in ("2", "3"):
        before = rebalances(harness)
        worker(harness, number).join()
        assert rebalances(harness) == before + 1
        one.join()
        harness.advance(REBALANCE_MS)
        one.take()
        one.sync()
        harness.advance(REBALANCE_MS)


def test_a_rebalance_for_another_reason_admits_registered_members_that_arrived(harness: CoordinatorHarness) -> None:
    one, early = worker(harness, "1", 0), worker(harness, "early", 1)
    stable(one)
    harness.add_members("early", "late")
    is_standby(early)

    unknown = worker(harness, "unknown", 2)
    unknown.join()
    all_rejoin(one, early, also=[unknown])

    assert [expected.group_instance_id for expected in harness.extensions().expected] == ["late"]
    late, before = worker(harness, "late", 3), rebalances(harness)
    late.join()
    assert rebalances(harness) == before + 1


def test_a_waiting_member_whose_session_expires_is_expected_again(harness: CoordinatorHarness) -> None:
    one, early = worker(harness, "1", 0), worker(harness, "early", 1)
    stable(one)
    harness.add_members("early", "late", wait_ms=60_000)
    is_standby(early)
    before = rebalances(harness)

    keep_alive(SESSION_MS + 100, one)

    assert harness.events_of(EventKind.SESSION_EXPIRED)[-1].instance_id == "early"
    assert early.heartbeat() is UNKNOWN
    late = worker(harness, "late", 2)
    is_standby(late)
    assert [(e.group_instance_id, e.arrived) for e in harness.extensions().expected] == [
        ("early", False),
        ("late", True),
    ]
    assert rebalances(harness) == before

    early.restarted().join()
    assert rebalances(harness) == before + 1


def test_a_registered_member_that_disconnects_has_not_arrived_until_it_is_seen_again(
    harness: CoordinatorHarness,
) -> None:
    one, early, late = worker(harness, "1", 0), worker(harness, "early", 1), worker(harness, "late", 2)
    stable(one)
    harness.add_members("early", "late")
    is_standby(early)
    before = rebalances(harness)

    harness.disconnect(early.client)
    is_standby(late)
    assert rebalances(harness) == before

    early.client = connection()
    assert early.heartbeat() is ErrorCode.NONE
    assert rebalances(harness) == before + 1


def about_to_be_admitted(harness: CoordinatorHarness) -> tuple[Consumer, Consumer, Consumer]:
    """Given: a member, one that was registered and waited, and the last one, whose join has begun the rebalance."""
    one, early, late = (
        worker(harness, name, at, rebalance_ms=30_000) for at, name in enumerate(("1", "early", "late"))
    )
    stable(one)
    harness.add_members("early", "late")
    is_standby(early)
    assert late.join().is_pending
    assert harness.state() == "PreparingRebalance"
    return one, early, late


def test_a_member_lost_during_its_admission_is_expected_again(
    harness: CoordinatorHarness,
) -> None:
    # given
    one, early, late = about_to_be_admitted(harness)

    # when the one that waited is lost before it learns of the rebalance
    harness.disconnect(early.client)
    one.join()

    # then the others have their generation at once, and it is expected
    late.take()
    one.take()
    assert {member.group_instance_id for member in one.members} == {"1", "late"}
    assert [(e.group_instance_id, e.arrived) for e in harness.extensions().expected] == [("early", False)]


def test_the_loss_of_the_last_awaited_member_ends_the_join_phase(harness: CoordinatorHarness) -> None:
    one, early, late = about_to_be_admitted(harness)
    one.join()
    assert harness.state() == "PreparingRebalance"

    harness.disconnect(early.client)

    one.take()
    late.take()
    assert one.generation == late.generation == 2


def test_a_member_that_only_reconnects_during_its_admission_is_admitted(harness: CoordinatorHarness) -> None:
    """The control."""
    one, early, late = about_to_be_admitted(harness)
    began = rebalances(harness)

    harness.disconnect(early.client)
    early.client = connection()
    early.heartbeat()

    all_rejoin(one, early, also=[late])
    assert rebalances(harness) == began
    assert not harness.extensions().expected


def test_a_registered_member_that_restarts_early_waits_under_its_new_id(harness: CoordinatorHarness) -> None:
    one, early = worker(harness, "1", 0), worker(harness, "early", 1)
    stable(one)
    harness.add_members("early", "late")
    is_standby(early)
    before = rebalances(harness)

    again = early.restarted(metadata=b"\x00\x00 other bytes")
    assert not again.join().is_pending

    assert again.id != early.id
    assert early.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert again.heartbeat() is ErrorCode.NONE
    assert rebalances(harness) == before


def test_a_standby_that_leaves_causes_no_rebalance(harness: CoordinatorHarness) -> None:
    one, early = worker(harness, "1", 0), worker(harness, "early", 1)
    stable(one)
    harness.add_members("early", "late")
    is_standby(early)
    before = rebalances(harness)

    assert early.leave() is ErrorCode.NONE

    assert rebalances(harness) == before
    assert one.heartbeat() is ErrorCode.NONE


# -- the end of the wait -----------------------------------------------------------------------------------------------


def test_when_the_wait_is_over_one_rebalance_admits_the_arrived_members(harness: CoordinatorHarness) -> None:
    one, early = worker(harness, "1", 0), worker(harness, "early", 1)
    stable(one)
    harness.add_members("early", "late", "later", wait_ms=5_000)
    is_standby(early)
    before = rebalances(harness)
    keep_alive(4_900, one, early)
    assert rebalances(harness) == before

    harness.advance(100)

    (expired,) = harness.events_of(EventKind.REGISTRATION_EXPIRED)
    assert expired.instance_ids == ["late", "later"]
    assert expired.cause == Cause(CauseCode.REGISTRATION_TIMED_OUT, count=1, total=3)
    assert rebalances(harness) == before + 1
    all_rejoin(one, early)
    assert not harness.extensions().expected


def test_a_registration_that_expires_without_arrivals_causes_no_rebalance(harness: CoordinatorHarness) -> None:
    one = worker(harness, "1", 0)
    stable(one)
    harness.add_members("a", wait_ms=2_000)
    before = rebalances(harness)

    keep_alive(5_000, one)

    assert rebalances(harness) == before
    assert harness.events_of(EventKind.REGISTRATION_EXPIRED)[0].instance_ids == ["a"]


def test_a_second_registration_extends_the_wait(harness: CoordinatorHarness) -> None:
    one = worker(harness, "1", 0)
    stable(one)
    harness.add_members("a", wait_ms=2_000)
    keep_alive(1_500, one)
    harness.add_members("a", "b", wait_ms=2_000)
    keep_alive(1_500, one)
    assert len(harness.extensions().expected) == 2

    keep_alive(600, one)
    assert not harness.extensions().expected


def test_cancelling_the_rest_admits_the_arrived_members(harness: CoordinatorHarness) -> None:
    one, early = worker(harness, "1", 0), worker(harness, "early", 1)
    stable(one)
    harness.add_members("early", "late")
    is_standby(early)
    before = rebalances(harness)

    answer = harness.cancel("late", "never registered").reply

    assert [ErrorCode(result.error_code) for result in answer.results] == [ErrorCode.NONE, UNKNOWN]
    assert rebalances(harness) == before + 1
    all_rejoin(one, early)


def test_cancelling_all_before_any_member_arrived(harness: CoordinatorHarness) -> None:
    harness.add_members("a", "b")

    assert len(harness.cancel().reply.results) == 2
    assert harness.cancel().code is ErrorCode.GROUP_ID_NOT_FOUND
    assert [event.instance_ids for event in harness.events_of(EventKind.REGISTRATION_CANCELLED)] == [["a", "b"]]


# -- an empty group ----------------------------------------------------------------------------------------------------


def test_an_empty_group_forms_when_the_last_registered_member_has_joined(harness: CoordinatorHarness) -> None:
    harness.add_members("a", "b", "c")
    a, b, c = (worker(harness, name, number) for number, name in enumerate("abc"))
    assert a.join().is_pending
    harness.advance(REBALANCE_MS // 2)
    assert b.join().is_pending
    now = harness.now

    c.join()

    assert harness.now == now
    for member in (a, b, c):
        member.take()
        assert member.generation == 1
    assert not harness.extensions().expected


def test_its_parked_joins_are_asked_to_rejoin_before_they_time_out(harness: CoordinatorHarness) -> None:
    harness.add_members("a", "b", wait_ms=3_600_000)
    a = worker(harness, "a", 0)
    first = a.join()

    harness.advance(REBALANCE_MS * 3 // 4)
    assert first.code is ErrorCode.MEMBER_ID_REQUIRED
    a.id = first.member_id
    again = a.join()
    assert again.is_pending

    for _ in range(100):
        harness.advance(REBALANCE_MS * 3 // 4)
        assert again.code is ErrorCode.MEMBER_ID_REQUIRED
        again = a.join()
    b = worker(harness, "b", 1)
    b.join()
    a.take()
    assert a.generation == b.generation == 1


def test_no_join_is_parked_longer_than_the_maximum(harness: CoordinatorHarness) -> None:
    harness.add_members("a", "b", wait_ms=3_600_000)
    a = worker(harness, "a", 0, rebalance_ms=1_000_000)
    first = a.join()

    harness.advance(MAX_JOIN_KEEPALIVE_MS)

    assert first.code is ErrorCode.MEMBER_ID_REQUIRED


def test_a_member_that_disconnects_while_its_join_is_parked_is_expected_again(harness: CoordinatorHarness) -> None:
    harness.add_members("a", "b")
    a, b = worker(harness, "a", 0), worker(harness, "b", 1)
    a.join()

    harness.disconnect(a.client)
    assert b.join().is_pending
    assert [(e.group_instance_id, e.arrived) for e in harness.extensions().expected] == [("a", False), ("b", True)]

    again = a.restarted(client=connection())
    again.join()
    b.take()
    assert again.generation == b.generation == 1


def test_a_join_that_waited_for_the_disk_while_its_connection_closed_is_no_arrival(harness: CoordinatorHarness) -> None:
    harness.pause_appends()
    harness.add_members("a", "b")
    a, b = worker(harness, "a", 0), worker(harness, "b", 1)
    a.join()
    harness.disconnect(a.client)
    harness.resume_appends()

    assert b.join().is_pending
    assert [(e.group_instance_id, e.arrived) for e in harness.extensions().expected] == [("a", False), ("b", True)]


def test_an_unregistered_member_starts_the_initial_delay_for_all(harness: CoordinatorHarness) -> None:
    harness.add_members("a", "b")
    a, unknown = worker(harness, "a", 0), worker(harness, None, 1)
    a.join()
    unknown.join()

    harness.advance(1_000)

    for member in (a, unknown):
        member.take()
        assert member.generation == 1
    assert [expected.group_instance_id for expected in harness.extensions().expected] == ["b"]


def test_an_empty_group_forms_with_the_arrived_members_when_the_wait_is_over(harness: CoordinatorHarness) -> None:
    harness.add_members("a", "b", wait_ms=1_000)
    a = worker(harness, "a", 0)
    a.join()

    harness.advance(1_000)

    a.take()
    assert a.generation == 1


def test_an_empty_group_is_removed_when_no_registered_member_arrived(harness: CoordinatorHarness) -> None:
    harness.add_members("a", wait_ms=1_000)
    assert harness.group().state is EMPTY

    harness.advance(2_000)

    assert harness.events_of(EventKind.REGISTRATION_EXPIRED)
    assert harness.describe(version=6).error_code == ErrorCode.GROUP_ID_NOT_FOUND


# -- kill -9 -----------------------------------------------------------------------------------------------------------


def test_expected_members_are_still_expected_after_a_crash(harness: CoordinatorHarness) -> None:
    one, early = worker(harness, "1", 0), worker(harness, "early", 1)
    stable(one)
    harness.add_members("early", "late", wait_ms=60_000)
    is_standby(early)
    until = [expected.deadline_ms for expected in harness.extensions().expected]

    harness.restart()

    assert [(e.group_instance_id, e.arrived) for e in harness.extensions().expected] == [
        ("early", False),
        ("late", False),
    ]
    assert [expected.deadline_ms for expected in harness.extensions().expected] == until
    assert one.heartbeat() is ErrorCode.NONE
    before = rebalances(harness)
    assert early.heartbeat() is UNKNOWN
    again = early.restarted()
    is_standby(again)
    assert rebalances(harness) == before
    late = worker(harness, "late", 2)
    late.join()
    all_rejoin(one, again, also=[late])
    assert rebalances(harness) == before + 1


def test_a_lost_member_that_a_crash_restored_has_arrived(harness: CoordinatorHarness) -> None:
    """Its vacancy was stored and not filled, so it is a member with a fresh session."""
    # given a group that expects two members, one of which has just left it
    one, two, standby = worker(harness, "1", 0), worker(harness, "2", 1), worker(harness, "S")
    stable(one, two)
    harness.configure(target_size=2)
    is_standby(standby)
    two.leave()
    harness.add_members("2", "late", wait_ms=60_000)

    # when the broker is killed, and the other one arrives
    harness.restart()
    harness.configure(target_size=5)
    before = rebalances(harness)
    late = worker(harness, "late", 2)
    assert late.join().is_pending

    # then no other member is waited for
    assert rebalances(harness) == before + 1
    assert harness.events_of(EventKind.REBALANCE_STARTED)[-1].cause.code is CauseCode.REGISTRATION_COMPLETE
    all_rejoin(one, two, also=[late])
    assert not harness.extensions().expected


def test_a_member_that_leaves_again_after_a_crash_is_waited_for(harness: CoordinatorHarness) -> None:
    """The control."""
    one, two, standby = worker(harness, "1", 0), worker(harness, "2", 1), worker(harness, "S")
    stable(one, two)
    harness.configure(target_size=2)
    is_standby(standby)
    two.leave()
    harness.add_members("2", "late", wait_ms=60_000)
    harness.restart()
    harness.configure(target_size=5)
    two.leave()
    all_rejoin(one)
    before = rebalances(harness)

    is_standby(worker(harness, "late", 2))

    assert rebalances(harness) == before


def test_a_wait_that_ended_while_the_broker_was_down_is_over(harness: CoordinatorHarness) -> None:
    harness.add_members("a", wait_ms=1_000)
    harness.restart(only_load=True)
    harness.now += 5_000
    harness.finish_loading()

    harness.advance(1)

    assert harness.events_of(EventKind.REGISTRATION_EXPIRED)


def test_after_a_crash_no_member_of_the_generation_is_expected(harness: CoordinatorHarness) -> None:
    harness.add_members("a", "b")
    a, b = worker(harness, "a", 0), worker(harness, "b", 1)
    a.join()
    b.join()

    harness.restart()

    assert not harness.extensions().expected
    assert harness.generation() == 1


def test_the_sweep_keeps_expected_members(harness: CoordinatorHarness) -> None:
    harness.add_members("a", wait_ms=60_000)

    harness.sweep()
    harness.restart()

    assert [expected.group_instance_id for expected in harness.extensions().expected] == ["a"]


def test_deleting_the_group_ends_its_registrations(harness: CoordinatorHarness) -> None:
    harness.add_members("a")

    assert harness.delete() is ErrorCode.NONE

    harness.restart()
    assert harness.describe(version=6).error_code == ErrorCode.GROUP_ID_NOT_FOUND
