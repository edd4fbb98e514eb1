"""JoinGroups: the members of one process join in one request."""

from __future__ import annotations

from holdfast.coordinator.ledger import EventKind
from holdfast.coordinator.members import Client
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.bench import DELAY_MS, SESSION_MS, Bench, Handle
from tests.unit.coordinator.extension_scene import REBALANCE, connection, entry, rebalances, seated, worker
from tests.unit.coordinator.scene import Consumer, keep_alive, stable


def test_an_empty_group_without_a_delay_forms_of_the_whole_batch() -> None:
    bench = Bench(delay_ms=0)
    members = [worker(bench, str(number), number) for number in range(3)]

    handles = bench.join_all(*map(entry, members))

    assert [(handle.code, handle.generation) for handle in handles] == [(ErrorCode.NONE, 1)] * 3
    assert sum(len(handle.reply.members) for handle in handles) == 3


def test_one_by_one_they_are_a_generation_each() -> None:
    """The control."""
    bench = Bench(delay_ms=0)
    for number in range(3):
        worker(bench, str(number), number).join()

    assert bench.generation() == 1
    assert bench.state() == "PreparingRebalance"


def test_they_are_one_rebalance_for_the_others() -> None:
    bench = Bench()
    one = worker(bench, "1", 0)
    stable(one)
    before = rebalances(bench)

    handles = bench.join_all(*(entry(worker(bench, name)) for name in ("a", "b", "c")))
    assert all(handle.parked for handle in handles)
    one.join()

    assert {handle.generation for handle in handles} == {2}
    assert rebalances(bench) == before + 1


def test_whoever_has_no_id_gets_one_and_nothing_is_done_for_the_rest() -> None:
    bench = Bench()
    nameless, static = worker(bench, None), worker(bench, "s")

    first, second = bench.join_all(entry(nameless), entry(static))

    assert (first.code, second.code) == (ErrorCode.MEMBER_ID_REQUIRED, REBALANCE)
    nameless.id = first.member_id
    again = bench.join_all(entry(nameless), entry(static))
    bench.advance(1_000)
    assert [handle.code for handle in again] == [ErrorCode.NONE] * 2


def test_static_members_that_restart_together_keep_their_seats() -> None:
    bench = Bench()
    members = [worker(bench, str(number), number) for number in range(3)]
    stable(*members)
    before = rebalances(bench)

    bench.hold()
    handles = bench.join_all(*(entry(member.restarted()) for member in members))
    assert all(handle.parked for handle in handles)
    bench.release()

    assert [(handle.code, handle.generation) for handle in handles] == [(ErrorCode.NONE, 1)] * 3
    assert rebalances(bench) == before
    assert len({handle.member_id for handle in handles}) == 3


def test_a_pool_that_restarts_with_one_more_does_not_wait_for_itself() -> None:
    """The three known ones would be answered at once, and could not hear of the rebalance that the fourth begins."""
    bench = Bench()
    members = [worker(bench, str(number), number) for number in range(3)]
    stable(*members)

    handles = bench.join_all(*(entry(member.restarted()) for member in members), entry(worker(bench, "3")))

    assert [(handle.code, handle.generation) for handle in handles] == [(ErrorCode.NONE, 2)] * 4


def test_past_the_target_they_wait_like_anyone() -> None:
    bench = Bench()
    bench.configure(target_size=1)
    one = worker(bench, "1", 0)
    stable(one)
    before = rebalances(bench)

    handles = bench.join_all(*(entry(worker(bench, name)) for name in ("a", "b")))

    assert [handle.code for handle in handles] == [ErrorCode.NONE] * 2
    assert rebalances(bench) == before
    seated(worker(bench, "c"))


def test_each_entry_is_refused_for_itself() -> None:
    bench = Bench()
    good, bad = worker(bench, "a"), worker(bench, "b", protocols=())

    first, second = bench.join_all(entry(good), entry(bad))
    bench.advance(2 * DELAY_MS)

    assert first.code is ErrorCode.NONE
    assert second.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# -- answers that wait for the others ----------------------------------------------------------------------------------


def test_announced_members_of_one_process_do_not_wait_for_each_other() -> None:
    """The first would be seated and answered; the last begins the rebalance, which would wait for the first to come
    again, which waits for the answer to the last: for as long as the rebalance time-out."""
    # given a group that expects two members
    bench = Bench()
    one = worker(bench, "1", 0)
    stable(one)
    bench.add_members("a", "b")
    before = rebalances(bench)

    # when both come in one request, and the member that was there joins again
    handles = bench.join_all(*(entry(worker(bench, name)) for name in ("a", "b")))
    assert all(handle.parked for handle in handles)
    one.join()

    # then they are in the next generation, without a wait, by one rebalance
    assert [(handle.code, handle.generation) for handle in handles] == [(ErrorCode.NONE, 2)] * 2
    assert {member.member_id for member in one.members} == {one.id, *(handle.member_id for handle in handles)}
    assert rebalances(bench) == before + 1


def test_announced_one_by_one_the_first_is_answered_and_comes_again() -> None:
    """The control: here the seat is told, and whoever has it hears of the rebalance."""
    bench = Bench()
    one, first, last = worker(bench, "1", 0), worker(bench, "a"), worker(bench, "b")
    stable(one)
    bench.add_members("a", "b")

    seated(first)
    assert last.join().parked
    one.join()

    assert bench.state() == "PreparingRebalance"
    assert first.heartbeat() is REBALANCE
    assert first.join().generation == 2


def one_that_keeps_them_waiting(bench: Bench) -> tuple[Consumer, Consumer, Client, list[Handle]]:
    """Given: a group of 1 and 2 with a standby, and a batch of the standby and of 2, both restarted. What 2 offers is
    not what the group uses, so its join is parked until 1 joins again."""
    bench.configure(target_size=2)
    one, two, standby = worker(bench, "1", 0, rebalance_ms=3 * SESSION_MS), worker(bench, "2", 1), worker(bench, "s")
    stable(one, two)
    seated(standby)
    over = connection()
    changed = two.restarted(protocols=("roundrobin",))
    handles = bench.join_all(entry(changed), entry(standby.restarted()), client=over)
    assert all(handle.parked for handle in handles)
    assert bench.group().roster.holder_of("s") is not None
    return one, standby, over, handles


def test_a_standby_whose_answer_waits_for_the_batch_does_not_expire() -> None:
    """It was seated at once, and could not say that it lives: it had not heard under which id."""
    # given
    bench = Bench()
    one, _, _, handles = one_that_keeps_them_waiting(bench)
    sessions_ended = len(bench.told(EventKind.SESSION_EXPIRED))

    # when the batch has to wait for longer than a session, and then everybody is there
    keep_alive(SESSION_MS + 500, one)
    assert all(handle.parked for handle in handles)
    one.protocols = ("roundrobin",)
    one.join()

    # then all are answered, the standby in the generation that is, and its session begins now
    assert [(handle.code, handle.generation) for handle in handles] == [(ErrorCode.NONE, 2)] * 2
    assert len(bench.told(EventKind.SESSION_EXPIRED)) == sessions_ended
    bench.advance(SESSION_MS - 100)
    assert bench.heartbeat(handles[1].member_id, 2, instance="s") is ErrorCode.NONE


def test_a_standby_that_hung_up_while_its_batch_waited_expires() -> None:
    """The control: nobody hears the answer any more, and a place that is kept for a dead process helps nobody."""
    bench = Bench()
    one, _, over, _ = one_that_keeps_them_waiting(bench)

    bench.hang_up(over)
    keep_alive(SESSION_MS + 500, one)

    assert "s" in [event.instance_id for event in bench.told(EventKind.SESSION_EXPIRED)]
    assert bench.group().roster.holder_of("s") is None


def test_an_heir_whose_answer_waits_takes_part_in_the_rebalance_that_its_batch_begins() -> None:
    """It took a place at once; the one beside it makes all rejoin, and the heir cannot hear of that."""
    # given a group of two whose second member has gone, so that its place is open
    bench = Bench()
    bench.configure(target_size=2)
    one, two, standby = worker(bench, "1", 0), worker(bench, "2", 1), worker(bench, "s")
    stable(one, two)
    seated(standby)
    two.leave()
    assert standby.heartbeat() is REBALANCE

    # when a newcomer takes it, in one request with another that offers what the group does not use
    heir, other = bench.join_all(entry(worker(bench, "h")), entry(worker(bench, "n", protocols=("roundrobin",))))

    # then both are in the next generation as soon as the others are
    assert [event.instance_id for event in bench.told(EventKind.TOOK_OVER)] == ["h"]
    assert heir.parked and other.parked
    one.join()
    assert [handle.code for handle in (heir, other)] == [ErrorCode.NONE] * 2
    assert heir.generation == other.generation == bench.generation() == 2
