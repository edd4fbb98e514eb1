"""JoinGroups: the members of one process join in one request."""

from __future__ import annotations

from holdfast.coordinator.classic.member import Client
from holdfast.coordinator.events.group_event import EventKind
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.extension_members import REBALANCE, connection, entry, is_standby, rebalances, worker
from tests.unit.coordinator.harness import DELAY_MS, SESSION_MS, CoordinatorHarness, Handle
from tests.unit.coordinator.members import Consumer, keep_alive, stable


def test_an_empty_group_without_a_delay_forms_of_the_whole_batch() -> None:
    harness = CoordinatorHarness(delay_ms=0)
    members = [worker(harness, str(number), number) for number in range(3)]

    handles = harness.join_all(*map(entry, members))

    assert [(handle.code, handle.generation) for handle in handles] == [(ErrorCode.NONE, 1)] * 3
    assert sum(len(handle.reply.members) for handle in handles) == 3


def test_one_by_one_they_are_a_generation_each() -> None:
    """The control."""
    harness = CoordinatorHarness(delay_ms=0)
    for number in range(3):
        worker(harness, str(number), number).join()

    assert harness.generation() == 1
    assert harness.state() == "PreparingRebalance"


def test_they_are_one_rebalance_for_the_others() -> None:
    harness = CoordinatorHarness()
    one = worker(harness, "1", 0)
    stable(one)
    before = rebalances(harness)

    handles = harness.join_all(*(entry(worker(harness, name)) for name in ("a", "b", "c")))
    assert all(handle.is_pending for handle in handles)
    one.join()

    assert {handle.generation for handle in handles} == {2}
    assert rebalances(harness) == before + 1


def test_a_member_without_an_id_gets_one_and_the_others_are_not_processed() -> None:
    harness = CoordinatorHarness()
    nameless, static = worker(harness, None), worker(harness, "s")

    first, second = harness.join_all(entry(nameless), entry(static))

    assert (first.code, second.code) == (ErrorCode.MEMBER_ID_REQUIRED, REBALANCE)
    nameless.id = first.member_id
    again = harness.join_all(entry(nameless), entry(static))
    harness.advance(1_000)
    assert [handle.code for handle in again] == [ErrorCode.NONE] * 2


def test_static_members_that_restart_together_keep_their_assignments() -> None:
    harness = CoordinatorHarness()
    members = [worker(harness, str(number), number) for number in range(3)]
    stable(*members)
    before = rebalances(harness)

    harness.pause_appends()
    handles = harness.join_all(*(entry(member.restarted()) for member in members))
    assert all(handle.is_pending for handle in handles)
    harness.resume_appends()

    assert [(handle.code, handle.generation) for handle in handles] == [(ErrorCode.NONE, 1)] * 3
    assert rebalances(harness) == before
    assert len({handle.member_id for handle in handles}) == 3


def test_a_pool_that_restarts_with_one_more_does_not_wait_for_itself() -> None:
    """The three known ones would be answered at once, and could not hear of the rebalance that the fourth begins."""
    harness = CoordinatorHarness()
    members = [worker(harness, str(number), number) for number in range(3)]
    stable(*members)

    handles = harness.join_all(*(entry(member.restarted()) for member in members), entry(worker(harness, "3")))

    assert [(handle.code, handle.generation) for handle in handles] == [(ErrorCode.NONE, 2)] * 4


def test_past_the_target_they_wait_like_anyone() -> None:
    harness = CoordinatorHarness()
    harness.configure(target_size=1)
    one = worker(harness, "1", 0)
    stable(one)
    before = rebalances(harness)

    handles = harness.join_all(*(entry(worker(harness, name)) for name in ("a", "b")))

    assert [handle.code for handle in handles] == [ErrorCode.NONE] * 2
    assert rebalances(harness) == before
    is_standby(worker(harness, "c"))


def test_each_entry_is_refused_for_itself() -> None:
    harness = CoordinatorHarness()
    good, bad = worker(harness, "a"), worker(harness, "b", protocols=())

    first, second = harness.join_all(entry(good), entry(bad))
    harness.advance(2 * DELAY_MS)

    assert first.code is ErrorCode.NONE
    assert second.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# -- answers that wait for the others ----------------------------------------------------------------------------------


def test_registered_members_of_one_process_do_not_wait_for_each_other() -> None:
    """The first would become a standby and be answered; the last begins the rebalance, which would wait for the first
    to come again, which waits for the answer to the last: for as long as the rebalance timeout."""
    # given a group that expects two members
    harness = CoordinatorHarness()
    one = worker(harness, "1", 0)
    stable(one)
    harness.add_members("a", "b")
    before = rebalances(harness)

    # when both come in one request, and the member that was there joins again
    handles = harness.join_all(*(entry(worker(harness, name)) for name in ("a", "b")))
    assert all(handle.is_pending for handle in handles)
    one.join()

    # then they are in the next generation, without a wait, by one rebalance
    assert [(handle.code, handle.generation) for handle in handles] == [(ErrorCode.NONE, 2)] * 2
    assert {member.member_id for member in one.members} == {one.id, *(handle.member_id for handle in handles)}
    assert rebalances(harness) == before + 1


def test_with_separate_requests_the_first_registered_member_rejoins() -> None:
    """The control: here the join is answered, and the member learns of the rebalance."""
    harness = CoordinatorHarness()
    one, first, last = worker(harness, "1", 0), worker(harness, "a"), worker(harness, "b")
    stable(one)
    harness.add_members("a", "b")

    is_standby(first)
    assert last.join().is_pending
    one.join()

    assert harness.state() == "PreparingRebalance"
    assert first.heartbeat() is REBALANCE
    assert first.join().generation == 2


def member_missing_from_the_join_phase(harness: CoordinatorHarness) -> tuple[Consumer, Consumer, Client, list[Handle]]:
    """Given: a group of 1 and 2 with a standby, and a batch of the standby and of 2, both restarted. What 2 offers is
    not what the group uses, so its join is parked until 1 joins again."""
    harness.configure(target_size=2)
    one, two, standby = (
        worker(harness, "1", 0, rebalance_ms=3 * SESSION_MS),
        worker(harness, "2", 1),
        worker(harness, "s"),
    )
    stable(one, two)
    is_standby(standby)
    over = connection()
    changed = two.restarted(protocols=("roundrobin",))
    handles = harness.join_all(entry(changed), entry(standby.restarted()), client=over)
    assert all(handle.is_pending for handle in handles)
    assert harness.group().members.static_member("s") is not None
    return one, standby, over, handles


def test_a_standby_whose_answer_waits_for_the_batch_does_not_expire() -> None:
    """It became a standby at once, and could not send heartbeats: it did not know its id."""
    # given
    harness = CoordinatorHarness()
    one, _, _, handles = member_missing_from_the_join_phase(harness)
    sessions_ended = len(harness.events_of(EventKind.SESSION_EXPIRED))

    # when the batch has to wait for longer than a session, and then everybody is there
    keep_alive(SESSION_MS + 500, one)
    assert all(handle.is_pending for handle in handles)
    one.protocols = ("roundrobin",)
    one.join()

    # then all are answered, the standby in the generation that is, and its session begins now
    assert [(handle.code, handle.generation) for handle in handles] == [(ErrorCode.NONE, 2)] * 2
    assert len(harness.events_of(EventKind.SESSION_EXPIRED)) == sessions_ended
    harness.advance(SESSION_MS - 100)
    assert harness.heartbeat(handles[1].member_id, 2, instance="s") is ErrorCode.NONE


def test_a_standby_that_hung_up_while_its_batch_waited_expires() -> None:
    """The control: the answer reaches no process any more, and a vacancy must not be kept for a dead one."""
    harness = CoordinatorHarness()
    one, _, over, _ = member_missing_from_the_join_phase(harness)

    harness.disconnect(over)
    keep_alive(SESSION_MS + 500, one)

    assert "s" in [event.instance_id for event in harness.events_of(EventKind.SESSION_EXPIRED)]
    assert harness.group().members.static_member("s") is None


def test_a_takeover_in_a_batch_takes_part_in_the_rebalance_of_its_batch() -> None:
    """It filled a vacancy at once; the other member of the batch makes all rejoin, and the new owner cannot know."""
    # given a group of two whose second member has left, and there is a vacancy
    harness = CoordinatorHarness()
    harness.configure(target_size=2)
    one, two, standby = worker(harness, "1", 0), worker(harness, "2", 1), worker(harness, "s")
    stable(one, two)
    is_standby(standby)
    two.leave()
    assert standby.heartbeat() is REBALANCE

    # when a new member fills it, in one request with another that offers what the group does not use
    filling, other = harness.join_all(
        entry(worker(harness, "h")), entry(worker(harness, "n", protocols=("roundrobin",)))
    )

    # then both are in the next generation as soon as the others are
    assert [event.instance_id for event in harness.events_of(EventKind.TOOK_OVER)] == ["h"]
    assert filling.is_pending and other.is_pending
    one.join()
    assert [handle.code for handle in (filling, other)] == [ErrorCode.NONE] * 2
    assert filling.generation == other.generation == harness.generation() == 2
