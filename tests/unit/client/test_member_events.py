"""What a member's callbacks are told when its seat goes during a rebalance; the driver is written by the test."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import SingleWriter, WorkerPool
from holdfast.client import member as member_module
from holdfast.client.errors import RequestTimedOut
from holdfast.membership.effects import Adopt, Left, Prepare
from tests.support.eventually import eventually

CONFIG = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
SHARE = b'{"tasks":["a"]}'
WRITE = b'{"write":true}'
STAND_BY = b'{"write":false}'


class ScriptedDriver:
    """Hands out the events of the test, and is done when they are."""

    last: ScriptedDriver

    def __init__(self, *_args: Any) -> None:
        self.events: list[Any] = []
        self.trouble = None
        self.is_alive = False
        self._came = threading.Condition()
        ScriptedDriver.last = self

    def tell(self, *events: Any) -> None:
        with self._came:
            self.events.extend(events)
            self._came.notify_all()

    def take_event(self, wait_s: float = 0.0) -> Any:
        with self._came:
            self._came.wait_for(lambda: self.events, wait_s)
            return self.events.pop(0) if self.events else None

    def start(self) -> None:
        self.is_alive = True

    def stop(self) -> None:
        self.is_alive = False

    def polled(self) -> None:
        pass

    def do(self, _work: Callable[..., None]) -> None:
        pass


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_module, "Driver", ScriptedDriver)


def adopt(generation: int, assignment: bytes) -> Adopt:
    return Adopt(generation, "me", "p", False, assignment)


def test_a_worker_that_is_thrown_out_during_a_rebalance_stops_what_it_kept_running() -> None:
    def run(_task: str, stopping: threading.Event) -> None:
        stopping.wait(60)

    pool = WorkerPool(CONFIG, ["a"], run)
    pool.start()
    driver = ScriptedDriver.last
    driver.tell(adopt(1, SHARE))
    eventually(lambda: pool.running == ["a"], "the task runs")

    driver.tell(Prepare(1, lost=False), Prepare(2, lost=True))

    eventually(lambda: pool.running == [], "the task is stopped: another may run it by now")
    driver.tell(Left())
    pool.close()


def test_a_writer_that_is_thrown_out_during_a_rebalance_does_not_keep_its_token() -> None:
    with SingleWriter(CONFIG) as writer:
        driver = ScriptedDriver.last
        driver.tell(adopt(5, WRITE))
        assert writer.wait_until_active(60) == 5

        driver.tell(Prepare(1, lost=False), Prepare(2, lost=True))
        eventually(lambda: writer.token is None, "it stands by")

        # Meanwhile another has written with 7, and is gone.
        driver.tell(adopt(8, WRITE))
        assert writer.wait_until_active(60) == 8
        driver.tell(Left())


def test_a_rebalance_alone_stops_nothing() -> None:
    with SingleWriter(CONFIG) as writer:
        driver = ScriptedDriver.last
        driver.tell(adopt(5, WRITE))
        assert writer.wait_until_active(60) == 5

        driver.tell(Prepare(1, lost=False), adopt(6, WRITE))
        eventually(lambda: writer._member.current and writer._member.current.generation == 6, "the next generation")
        assert writer.token == 5
        driver.tell(Left())


def test_a_writer_whom_nobody_has_told_anything_does_not_blame_another() -> None:
    with SingleWriter(CONFIG) as writer:
        driver = ScriptedDriver.last
        with pytest.raises(RequestTimedOut, match=r"gave no assignment within 0\.1 s"):
            writer.wait_until_active(0.1)

        driver.tell(adopt(5, STAND_BY))
        eventually(lambda: writer._member.current is not None, "it has been told who writes")
        with pytest.raises(RequestTimedOut, match="another process has been the writer"):
            writer.wait_until_active(0.1)
        driver.tell(Left())
