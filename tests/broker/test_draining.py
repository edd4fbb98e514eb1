"""SIGTERM: what is being answered is answered, and nobody is kept for ever."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.broker import draining
from holdfast.broker.config import BrokerConfig
from holdfast.broker.server import Broker
from holdfast.log import disk
from holdfast.wire.apis.produce import PRODUCE, ProduceResponse
from tests.broker.wire_client import WireClient, batch, fetch_request, produce_request
from tests.support.eventually import eventually

SETTINGS = {"listeners": "PLAINTEXT://127.0.0.1:0", "flush": "always"}


class SlowDisk:
    """Every flush waits until the test lets it go."""

    def __init__(self) -> None:
        self.reached, self.let_go = threading.Event(), threading.Event()

    def __call__(self, point: str) -> None:
        if point == "before fdatasync":
            self.reached.set()
            assert self.let_go.wait(30)


@pytest.fixture(autouse=True)
def _no_fault_is_left() -> Iterator[None]:
    yield
    disk.fault = None


def stopped_while_flushing(data: Path, *, let_go: bool) -> list[ProduceResponse]:
    """The answers to two produces of one connection, the first of which is being flushed when the broker is stopped."""
    slow = SlowDisk()

    async def story() -> list[ProduceResponse]:
        broker = Broker(BrokerConfig.of(SETTINGS), data)
        await broker.start()
        client = await asyncio.to_thread(WireClient, broker.address)
        await asyncio.to_thread(client.create_topic, "t")
        disk.fault = slow
        for value in (b"first", b"second"):
            await asyncio.to_thread(client.send, produce_request("t", batch(value)), 9)
        await asyncio.to_thread(slow.reached.wait, 30)
        await asyncio.to_thread(eventually, lambda: behind_another(broker) == 1, "the second has arrived")
        stopping = asyncio.create_task(broker.stop())
        await asyncio.sleep(0)
        if let_go:
            slow.let_go.set()
        answers = await asyncio.to_thread(answers_until_closed, client)
        slow.let_go.set()
        await stopping
        return answers

    return asyncio.run(story())


def behind_another(broker: Broker) -> int:
    """How many requests wait for the one before them on their connection."""
    return sum(len(connection._waiting) for connection in broker._connections)


def answers_until_closed(client: WireClient) -> list[ProduceResponse]:
    answers: list[ProduceResponse] = []
    try:
        while True:
            answers.append(client.receive(PRODUCE, 9)[1])
    except ConnectionError:
        return answers
    finally:
        client.socket.close()


def test_requests_that_are_being_answered_are_answered(tmp_path: Path) -> None:
    answers = stopped_while_flushing(tmp_path / "data", let_go=True)

    stored = [answer.responses[0].partition_responses[0] for answer in answers]
    assert [(answer.error_code, answer.base_offset) for answer in stored] == [(0, 0), (0, 1)]


def test_a_disk_that_never_comes_back_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the test above."""
    monkeypatch.setattr(draining.drain, "__defaults__", (0.2,))

    assert stopped_while_flushing(tmp_path / "data", let_go=False) == []


def test_a_long_poll_does_not_keep_the_broker(tmp_path: Path) -> None:
    async def story() -> float:
        broker = Broker(BrokerConfig.of(SETTINGS), tmp_path / "data")
        await broker.start()
        client = await asyncio.to_thread(WireClient, broker.address)
        await asyncio.to_thread(client.create_topic, "t")
        await asyncio.to_thread(client.send, fetch_request("t", 0, max_wait_ms=600_000), 12)
        parked = lambda: any(connection.parked for connection in broker._connections)  # noqa: E731
        await asyncio.to_thread(eventually, parked, "the fetch waits")
        began = time.monotonic()
        await broker.stop()
        client.socket.close()
        return time.monotonic() - began

    assert asyncio.run(story()) < draining.DRAIN_SECONDS
