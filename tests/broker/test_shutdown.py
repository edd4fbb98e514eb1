"""SIGTERM: what is being answered is answered, and nobody is kept for ever."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.network import shutdown
from holdfast.broker.network.connection import Connection
from holdfast.broker.server import Broker
from holdfast.log import disk
from holdfast.wire.apis.produce import PRODUCE, ProduceResponse
from holdfast.wire.headers import encode_request
from tests.broker.wire_client import WireClient, batch, fetch_request, produce_request
from tests.support.child_process import end_child, start_child
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker

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
    return sum(len(cast("Connection", connection)._pending_frames) for connection in broker.connections)


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
    monkeypatch.setattr(shutdown.drain, "__defaults__", (0.2,))

    assert stopped_while_flushing(tmp_path / "data", let_go=False) == []


SLOW_SERVE = """
import sys, time
from pathlib import Path
from holdfast.broker.network import shutdown
from holdfast.cli.main import main
from holdfast.log import disk

reached, let_go = Path(sys.argv[1]), Path(sys.argv[2])

def slow(point):
    if point == "before fdatasync":
        reached.touch()
        while not let_go.exists():
            time.sleep(0.01)

disk.fault = slow
shutdown.drain.__defaults__ = (60.0,)  # the machine may be busy; that a disk is given up is tested elsewhere
sys.exit(main(sys.argv[3:]))
"""
"""`holdfast serve` on a disk that takes its time with flushes."""


def address_in(said: str) -> list[str]:
    """Host and port, once it has said them."""
    return [part for found in re.findall(r"listening on (\S+):(\d+)$", said, re.MULTILINE) for part in found][:2]


def test_a_process_that_is_asked_to_stop_answers_what_it_is_answering(tmp_path: Path) -> None:
    # given two produces of one connection, the first of which is being flushed
    reached, let_go, log = tmp_path / "reached", tmp_path / "let-go", tmp_path / "log"
    serve = ["serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"), "--set", "flush=always"]
    process = start_child([sys.executable, "-c", SLOW_SERVE, str(reached), str(let_go), *serve], log)
    try:
        host, port = eventually(lambda: address_in(log.read_text()), "it listens")
        client = WireClient((host, int(port)))
        client.create_topic("t")
        requests = [produce_request("t", batch(value)) for value in (b"first", b"second")]
        # At once: when the first is being flushed, the second has been read as well.
        client.send_bytes(b"".join([encode_request(one, 9, number, "test") for number, one in enumerate(requests)]))
        eventually(reached.exists, "the first is being flushed")

        # when
        process.send_signal(signal.SIGTERM)
        eventually(lambda: ": stopping\n" in log.read_text(), "the signal is heard")
        assert process.poll() is None
        let_go.touch()
        answers = answers_until_closed(client)

        # then both are answered, the process ends well, and what was answered is there
        assert process.wait(60) == 0
    finally:
        end_child(process, signal.SIGKILL, 60)
    stored = [answer.responses[0].partition_responses[0] for answer in answers]
    assert [(answer.error_code, answer.base_offset) for answer in stored] == [(0, 0), (0, 1)]
    with HoldfastBroker(directory=tmp_path) as broker, WireClient(broker.address) as later:
        assert [record.value for record in later.fetch_all("t")] == [b"first", b"second"]


def test_a_long_poll_does_not_keep_the_broker(tmp_path: Path) -> None:
    async def story() -> float:
        broker = Broker(BrokerConfig.of(SETTINGS), tmp_path / "data")
        await broker.start()
        client = await asyncio.to_thread(WireClient, broker.address)
        await asyncio.to_thread(client.create_topic, "t")
        await asyncio.to_thread(client.send, fetch_request("t", 0, max_wait_ms=600_000), 12)
        parked = lambda: any(connection.parked for connection in broker.connections)  # noqa: E731
        await asyncio.to_thread(eventually, parked, "the fetch waits")
        began = time.monotonic()
        await broker.stop()
        client.socket.close()
        return time.monotonic() - began

    assert asyncio.run(story()) < shutdown.DRAIN_SECONDS
