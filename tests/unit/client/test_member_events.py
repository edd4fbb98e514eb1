"""What a member's callbacks get when it loses its generation during a rebalance; the thread is scripted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import SingleWriter, WorkerPool
from holdfast.client import member as member_module
from holdfast.client.errors import RequestTimedOut
from holdfast.membership.effects import JoinComplete, JoinPrepare, LeftGroup
from tests.support.eventually import eventually

CONFIG = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
ASSIGNMENT = b'{"tasks":["a"]}'
WRITE = b'{"write":true}'
STAND_BY = b'{"write":false}'


class ScriptedMembershipThread:
    """Hands out the events of the test, and is done when they are."""

    last: ScriptedMembershipThread

    def __init__(self, *_args: Any) -> None:
        self.events: list[Any] = []
        self.last_error = None
        self.is_alive = False
        self._came = threading.Condition()
        ScriptedMembershipThread.last = self

    def emit(self, *events: Any) -> None:
        with self._came:
            self.events.extend(events)
            self._came.notify_all()

    def next_event(self, wait_s: float = 0.0) -> Any:
        with self._came:
            self._came.wait_for(lambda: self.events, wait_s)
            return self.events.pop(0) if self.events else None

    def start(self) -> None:
        self.is_alive = True

    def stop(self) -> None:
        self.is_alive = False

    def touch_poll(self) -> None:
        pass

    def submit(self, _work: Callable[..., None]) -> None:
        pass


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_module, "MembershipThread", ScriptedMembershipThread)


def adopt(generation: int, assignment: bytes) -> JoinComplete:
    return JoinComplete(generation, "me", "p", False, assignment)


def test_a_worker_that_is_thrown_out_during_a_rebalance_stops_what_it_kept_running() -> None:
    def run(_task: str, stopping: threading.Event) -> None:
        stopping.wait(60)

    pool = WorkerPool(CONFIG, ["a"], run)
    pool.start()
    thread = ScriptedMembershipThread.last
    thread.emit(adopt(1, ASSIGNMENT))
    eventually(lambda: pool.running == ["a"], "the task runs")

    thread.emit(JoinPrepare(1, lost=False), JoinPrepare(2, lost=True))

    eventually(lambda: pool.running == [], "the task is stopped: another may run it by now")
    thread.emit(LeftGroup())
    pool.close()


def test_a_writer_that_is_thrown_out_during_a_rebalance_does_not_keep_its_token() -> None:
    with SingleWriter(CONFIG) as writer:
        thread = ScriptedMembershipThread.last
        thread.emit(adopt(5, WRITE))
        assert writer.wait_until_active(60) == 5

        thread.emit(JoinPrepare(1, lost=False), JoinPrepare(2, lost=True))
        eventually(lambda: writer.token is None, "it stands by")

        # Meanwhile another has written with 7, and is gone.
        thread.emit(adopt(8, WRITE))
        assert writer.wait_until_active(60) == 8
        thread.emit(LeftGroup())


def test_a_rebalance_alone_stops_nothing() -> None:
    with SingleWriter(CONFIG) as writer:
        thread = ScriptedMembershipThread.last
        thread.emit(adopt(5, WRITE))
        assert writer.wait_until_active(60) == 5

        thread.emit(JoinPrepare(1, lost=False), adopt(6, WRITE))
        eventually(lambda: writer._member.current and writer._member.current.generation == 6, "the next generation")
        assert writer.token == 5
        thread.emit(LeftGroup())


def test_a_writer_without_any_event_does_not_blame_another() -> None:
    with SingleWriter(CONFIG) as writer:
        thread = ScriptedMembershipThread.last
        with pytest.raises(RequestTimedOut, match=r"gave no assignment within 0\.1 s"):
            writer.wait_until_active(0.1)

        thread.emit(adopt(5, STAND_BY))
        eventually(lambda: writer._member.current is not None, "it knows who writes")
        with pytest.raises(RequestTimedOut, match="another process has been the writer"):
            writer.wait_until_active(0.1)
        thread.emit(LeftGroup())
