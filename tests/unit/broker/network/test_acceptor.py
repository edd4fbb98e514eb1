"""New connections are taken in together, however much the event loop has to do."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable, Iterator

import pytest
import uvloop

from holdfast.broker.network.acceptor import MAX_ACCEPTS_PER_EVENT, RETRY_SECONDS, Acceptor

PATIENCE_S = 10

Loops = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loops(request: pytest.FixtureRequest) -> Loops:
    made: Loops = request.param
    return made


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    yield bound
    bound.close()


class Visit(asyncio.Protocol):
    def __init__(self, visits: list[Visit]) -> None:
        self._visits = visits

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._visits.append(self)


def connected(listener: socket.socket, count: int) -> list[socket.socket]:
    return [socket.create_connection(listener.getsockname(), timeout=PATIENCE_S) for _ in range(count)]


async def turns_until(holds: Callable[[], bool]) -> int:
    """How many turns of the loop it takes."""
    turns = 0
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0)
            turns += 1
    return turns


def test_all_that_wait_are_taken_in_within_a_few_turns(loops: Loops, listener: socket.socket) -> None:
    visits: list[Visit] = []

    async def scenario() -> int:
        acceptor = Acceptor(listener, lambda: Visit(visits))
        acceptor.start(backlog=MAX_ACCEPTS_PER_EVENT)
        # Given as many connections as the acceptor takes in at once, all waiting
        peers = connected(listener, MAX_ACCEPTS_PER_EVENT)
        turns = await turns_until(lambda: len(visits) == MAX_ACCEPTS_PER_EVENT)
        acceptor.close()
        for peer in peers:
            peer.close()
        return turns

    with asyncio.Runner(loop_factory=loops) as runner:
        turns = runner.run(scenario())

    assert turns < MAX_ACCEPTS_PER_EVENT // 4


def test_the_loops_own_server_takes_a_turn_for_each(listener: socket.socket) -> None:
    """The control: the reason for this module. Should it fail, libuv accepts in a loop again."""
    visits: list[Visit] = []

    async def scenario() -> int:
        server = await asyncio.get_running_loop().create_server(
            lambda: Visit(visits), sock=listener, backlog=MAX_ACCEPTS_PER_EVENT
        )
        peers = connected(listener, MAX_ACCEPTS_PER_EVENT)
        turns = await turns_until(lambda: len(visits) == MAX_ACCEPTS_PER_EVENT)
        server.close()
        for peer in peers:
            peer.close()
        return turns

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        turns = runner.run(scenario())

    assert turns >= MAX_ACCEPTS_PER_EVENT // 2


class Full:
    """A listener on a system that has no file descriptor left, until it has."""

    def __init__(self, real: socket.socket) -> None:
        self._real = real
        self.is_full = True
        self.attempts = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def accept(self) -> tuple[socket.socket, object]:
        self.attempts += 1
        if self.is_full:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self._real.accept()


def test_without_room_for_a_connection_the_loop_does_not_spin_and_it_is_let_in_later(
    loops: Loops, listener: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    visits: list[Visit] = []
    full = Full(listener)

    async def scenario() -> None:
        acceptor = Acceptor(full, lambda: Visit(visits))  # type: ignore[arg-type]  # all of a socket that is used
        acceptor.start(backlog=1)
        (peer,) = connected(listener, 1)
        # When the system has no room for two looks
        await turns_until(lambda: full.attempts >= 2)
        assert not visits
        full.is_full = False
        # Then the connection is let in with the next
        await turns_until(lambda: len(visits) == 1)
        assert full.attempts < 2 + PATIENCE_S / RETRY_SECONDS / 10
        acceptor.close()
        peer.close()

    with caplog.at_level(logging.WARNING), asyncio.Runner(loop_factory=loops) as runner:
        runner.run(scenario())

    assert "cannot accept connections: Too many open files" in caplog.text


def test_after_its_close_no_connection_is_accepted(loops: Loops, listener: socket.socket) -> None:
    address = listener.getsockname()

    async def scenario() -> None:
        acceptor = Acceptor(listener, lambda: Visit([]))
        acceptor.start(backlog=1)
        acceptor.close()
        acceptor.close()  # a second time is no error

    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(scenario())

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=PATIENCE_S)


def test_a_port_in_use_is_an_error(loops: Loops) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, socket.socket() as second:
        second.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

        async def scenario() -> None:
            with pytest.raises(OSError, match="in use"):
                second.bind(other.getsockname())
                Acceptor(second, lambda: Visit([])).start(backlog=1)

        with asyncio.Runner(loop_factory=loops) as runner:
            runner.run(scenario())
