"""Callbacks that call back, interrupts within a poll, members that leave at any moment: nothing is lost."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from holdfast import Consumer, Member, SingleWriter, WorkerPool
from holdfast.client.errors import CallbackError, HoldfastError
from tests.client_compat.servers import Server
from tests.groups.topics import committed, make_topic, produce
from tests.holdfast_client.consumers import QUICK, Watched, poll_until, watching
from tests.support.eventually import eventually

EACH = 50
PATIENCE_S = 60
PROMPT_S = 9.0
"""Below the ten seconds after which a close gives up waiting."""


@pytest.fixture
def filled(server: Server, topic: str) -> str:
    make_topic(server, topic)
    produce(server, topic, EACH)
    return topic


def consumer_of(server: Server, group: str, **settings: Any) -> Consumer:
    return Consumer({"bootstrap.servers": server.bootstrap, "group.id": group, **QUICK, **settings})


def member_config(server: Server, group: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": server.bootstrap,
        "group.id": group,
        "session.timeout.ms": 30_000,
        "heartbeat.interval.ms": 100,
    }


# -- going and coming back ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_unsubscribing_revokes_everything_and_subscribing_again_reads_on(
    server: Server, filled: str, group: str, strategy: str
) -> None:
    one = Watched(server, group, partition_assignment_strategy=strategy).subscribe(filled)
    with watching(one):
        poll_until(lambda: len(one.records) == 4 * EACH, "all records", one)
        one.consumer.unsubscribe()
        assert one.callbacks == [("on_assign", [0, 1, 2, 3]), ("on_revoke", [0, 1, 2, 3])]

        one.subscribe(filled)
        produce(server, filled, 1)
        poll_until(lambda: len(one.records) == 4 * EACH + 4, "what came since", one)
    assert one.callbacks[2:] == [("on_assign", [0, 1, 2, 3]), ("on_revoke", [0, 1, 2, 3])]


# -- callbacks that call back ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("call", ["close", "unsubscribe"])
def test_a_consumer_may_end_within_on_assign(server: Server, filled: str, group: str, call: str, strategy: str) -> None:
    consumer = consumer_of(server, group, **{"partition.assignment.strategy": strategy})
    ended = threading.Event()

    def end(own: Consumer, _partitions: list[TopicPartition]) -> None:
        getattr(own, call)()
        ended.set()

    try:
        consumer.subscribe([filled], on_assign=end)
        deadline = time.monotonic() + PATIENCE_S
        while not ended.is_set() and time.monotonic() < deadline:
            assert consumer.poll(0.05) is None

        assert ended.is_set()
        if call == "close":
            with pytest.raises(HoldfastError, match="closed"):
                consumer.poll(0)
        else:
            assert consumer.assignment() == []
            assert consumer.poll(0.5) is None
    finally:
        consumer.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("call", ["close", "unsubscribe"])
def test_a_consumer_may_end_within_on_revoke_and_the_others_get_all(
    server: Server, filled: str, group: str, call: str, strategy: str
) -> None:
    settings = {"partition_assignment_strategy": strategy}
    first, second = Watched(server, group, **settings), Watched(server, group, **settings)
    ended: list[str] = []

    def end(own: Consumer, _partitions: list[TopicPartition]) -> None:
        if not ended:
            ended.append(call)
            getattr(own, call)()

    with watching(first, second):
        first.consumer.subscribe([filled], on_revoke=end)
        poll_until(lambda: first.partitions == [0, 1, 2, 3], "the first has all", first)
        second.subscribe(filled)

        poll_until(lambda: bool(ended), "the first went", second, first)
        poll_until(lambda: second.partitions == [0, 1, 2, 3], "the second has all", second)
        assert first.partitions == []
        if call == "unsubscribe":
            first.poll(0.5)
            assert first.partitions == []


class Interrupted(BaseException):
    """As KeyboardInterrupt, which would end the test run as well."""


# -- interrupts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read", ["poll", "consume"])
def test_what_an_interrupt_took_from_a_read_is_not_committed_and_comes_again(
    server: Server, filled: str, group: str, read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = consumer_of(server, group)
    seen: set[tuple[int, int]] = set()

    def take() -> None:
        for message in [consumer.poll(0.05)] if read == "poll" else consumer.consume(7, 0.05):
            if message is not None and message.error() is None:
                seen.add((message.partition(), message.offset()))

    def interrupted_after_it_took_records(*args: Any) -> Any:
        while not getattr(consumer._fetcher._consumer, read)(*args):
            pass
        monkeypatch.undo()
        raise Interrupted

    try:
        consumer.subscribe([filled])
        deadline = time.monotonic() + PATIENCE_S
        while len(seen) < EACH and time.monotonic() < deadline:
            take()
        monkeypatch.setattr(consumer._fetcher, read, interrupted_after_it_took_records)
        with pytest.raises(Interrupted):
            take()
        consumer.commit(asynchronous=False)
        for partition, offset in committed(server, group, filled).items():
            assert {(partition, number) for number in range(offset)} <= seen

        everything = [TopicPartition(filled, partition) for partition in range(4)]
        while time.monotonic() < deadline and any(at.offset < EACH for at in consumer.position(everything)):
            take()  # what was seen before the interrupt comes again as well
        assert len(seen) == 4 * EACH
    finally:
        consumer.close()
    assert committed(server, group, filled) == dict.fromkeys(range(4), EACH)


@pytest.mark.parametrize("callback", ["on_assign", "on_revoke"])
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_callback_that_is_interrupted_leaves_the_member_able_to_go_on(
    server: Server, filled: str, group: str, callback: str, strategy: str
) -> None:
    settings = {"partition_assignment_strategy": strategy}
    first, second = Watched(server, group, **settings), Watched(server, group, **settings)
    interrupts: list[str] = []

    def interrupt(_own: Consumer, _partitions: list[TopicPartition]) -> None:
        if not interrupts:
            interrupts.append(callback)
            raise Interrupted

    def both_read() -> bool:
        try:
            first.poll()
        except Interrupted:
            interrupts.append("came out of poll")
        second.poll()
        return len(interrupts) == 2 and sorted(first.partitions + second.partitions) == [0, 1, 2, 3]

    with watching(first, second):
        first.consumer.subscribe([filled], **{callback: interrupt})
        if callback == "on_revoke":
            poll_until(lambda: first.partitions == [0, 1, 2, 3], "the first has all", first)
        second.subscribe(filled)
        eventually(both_read, "all is read, after the interrupt")
        poll_until(lambda: len(first.partitions) == len(second.partitions) == 2, "they share", first, second)


# -- long waits, and processes -----------------------------------------------------------------------------------------


def test_a_long_wait_for_more_records_does_not_end_the_session(server: Server, filled: str, group: str) -> None:
    one = Watched(server, group, max_poll_interval_ms=6_000).subscribe(filled)
    with watching(one):
        poll_until(lambda: one.partitions == [0, 1, 2, 3], "all partitions", one)
        one.consumer.seek(TopicPartition(filled, 0, 0))

        one.poll(9.0)  # gets some, and waits for five hundred
        one.poll()

        assert one.records
        assert one.callbacks == [("on_assign", [0, 1, 2, 3])]

        # The control: an application that does not come by at all.
        eventually(lambda: one.consumer._group.membership_thread._poll_expired, "its poll interval is over")
        poll_until(lambda: len(one.callbacks) > 1, "it gets a callback", one)
        assert one.callbacks[1] == ("on_lost", [0, 1, 2, 3])


FORKED = """
import os, sys
from holdfast import Consumer
from holdfast.client.errors import HoldfastError

consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2]})
consumer.subscribe([sys.argv[3]])
while not consumer.assignment():
    consumer.poll(0.05)
child = os.fork()
if child == 0:
    try:
        consumer.poll(1)
    except HoldfastError as error:
        print("child:", error, flush=True)
    consumer.close()
    os._exit(0)
print("child ended with", os.waitpid(child, 0)[1], flush=True)
consumer.poll(0.5)
print("parent reads", len(consumer.assignment()), flush=True)
consumer.close()
"""


def test_a_forked_child_raises_and_does_the_parent_no_harm(server: Server, filled: str, group: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKED, server.bootstrap, group, filled]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)

    said = ended.stdout.splitlines()
    assert said[0].startswith("child: ") and "fork" in said[0]
    assert said[1:] == ["child ended with 0", "parent reads 4"]


# -- commits and leaving -----------------------------------------------------------------------------------------------


def test_asynchronous_commits_are_stored_before_the_member_leaves(server: Server, filled: str, group: str) -> None:
    one = Watched(server, group, enable_auto_commit=False).subscribe(filled)
    with watching(one):
        poll_until(lambda: len(one.records) == 4 * EACH, "all records", one)
        for offset in range(1, EACH + 1):
            one.consumer.commit(offsets=[TopicPartition(filled, 2, offset)])
    assert committed(server, group, filled) == {2: EACH}


def test_an_on_commit_that_raises_is_reported_and_the_next_still_runs(server: Server, filled: str, group: str) -> None:
    completed: list[list[int]] = []

    def on_commit(_error: object, partitions: list[TopicPartition]) -> None:
        completed.append([one.offset for one in partitions])
        if len(completed) == 1:
            raise LookupError("no such ledger")

    def polled(times: int) -> bool:
        consumer.poll(0.05)
        return len(completed) >= times

    with consumer_of(server, group, **{"enable.auto.commit": False, "on_commit": on_commit}) as consumer:
        consumer.subscribe([filled])
        eventually(lambda: consumer.poll(0.05) is not None, "a record")
        consumer.commit(offsets=[TopicPartition(filled, 0, 1)])
        consumer.commit(offsets=[TopicPartition(filled, 0, 2)])

        with pytest.raises(CallbackError, match="on_commit raised LookupError: no such ledger"):
            eventually(lambda: polled(2), "both callbacks")
        eventually(lambda: polled(2), "the second callback")
    assert completed == [[1], [2]]


# -- members of any kind -----------------------------------------------------------------------------------------------


def test_a_member_that_cannot_say_what_it_is_fails_and_says_why(server: Server, group: str) -> None:
    def broken() -> dict[str, Any]:
        raise LookupError("no shards here")

    with (
        Member(member_config(server, group), "shards", broken, lambda _members: {}) as member,
        pytest.raises(CallbackError, match="LookupError: no shards here"),
    ):
        member.wait_for_assignment(PATIENCE_S)


def test_a_member_may_be_closed_by_its_own_callback(server: Server, group: str) -> None:
    took: list[float] = []

    def close(_state: Any) -> None:
        began = time.monotonic()
        member.close()
        took.append(time.monotonic() - began)

    member = Member(member_config(server, group), "shards", {"p": {}}, lambda _members: {}, on_assignment=close)
    member.start()
    eventually(lambda: took, "the callback came back")
    assert took[0] < PROMPT_S
    eventually(lambda: not member._thread.is_alive(), "its thread ends")


def test_a_writer_becomes_standby_before_the_next_one_is_active(server: Server, group: str) -> None:
    order: list[str] = []
    first = SingleWriter(member_config(server, group), on_standby=lambda: order.append("first stands by"))
    with first:
        first.wait_until_active(PATIENCE_S)
        second = SingleWriter(member_config(server, group), on_active=lambda _token: order.append("second writes"))
        with second:
            eventually(lambda: second._member.current, "the second is a member")
            first.close()
            second.wait_until_active(PATIENCE_S)
    assert order == ["first stands by", "second writes"]
    with pytest.raises(HoldfastError, match="closed"):
        first.wait_until_active()


def test_a_task_that_does_not_stop_is_handed_over_only_when_it_has(server: Server, group: str) -> None:
    running: list[tuple[str, str]] = []
    twice: list[str] = []
    may_stop = threading.Event()

    def worker(name: str) -> Any:
        def run(task: str, stopping: threading.Event) -> None:
            twice.extend(other for other, what in running if what == task)
            running.append((name, task))
            stopping.wait()
            if name == "slow":
                may_stop.wait(PATIENCE_S)
            running.remove((name, task))

        return run

    tasks = ["a", "b"]
    with WorkerPool(member_config(server, group), tasks, worker("slow"), stop_timeout=0.2) as slow:
        eventually(lambda: len(running) == 2, "both run in one process")
        with WorkerPool(member_config(server, group), tasks, worker("quick")) as quick:
            eventually(lambda: any(one.stopping.is_set() for one in slow._running.values()), "one has to stop")
            eventually(lambda: quick._member.current, "the other is a member")
            assert len(running) == 2
            may_stop.set()
            eventually(lambda: sorted(name for name, _ in running) == ["quick", "slow"], "each runs one")
    assert twice == []


def test_a_task_may_close_the_pool(server: Server, group: str) -> None:
    closed = threading.Event()

    def run(_task: str, _stopping: threading.Event) -> None:
        pool.close()
        closed.set()

    pool = WorkerPool(member_config(server, group), ["a"], run, stop_timeout=0.2)
    with pool:
        assert closed.wait(PATIENCE_S)
