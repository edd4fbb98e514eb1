"""A broker whose event loop is watched: how much CPU time passes in it between two of its rounds."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self

import uvloop

from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.server import Broker

PATIENCE_S = 60


class WatchedBroker:
    """Runs in a thread of this process, on the loop that `holdfast serve` uses.

    The measure is the loop thread's own CPU time, not the time on the wall: a busy machine changes it little.
    """

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self._settings = {"listeners": "PLAINTEXT://127.0.0.1:0", **(settings or {})}
        self._directory = directory
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._started: Future[tuple[str, int]] = Future()
        self._ending: asyncio.Event | None = None
        self._last = 0.0
        self._longest = 0.0
        self._watching = False
        self.loop: asyncio.AbstractEventLoop
        self.broker: Broker
        self.address = ("", 0)

    def __enter__(self) -> Self:
        self._thread.start()
        self.address = self._started.result(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        if self._ending is not None:
            self.loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        try:
            self.loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
            self.broker = Broker(BrokerConfig.of(self._settings), self._directory)
            await self.broker.start()
        except BaseException as error:
            self._started.set_exception(error)
            raise
        self._started.set_result(self.broker.address)
        await self._ending.wait()
        await self.broker.stop()

    # -- watching ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def watch(self, after: Callable[[], object] = lambda: None) -> Iterator[Callable[[], float]]:
        """Within it, a function that says how many seconds the longest round so far has worked.

        The watch begins right after the call of `after`, in the same round: it misses nothing that this causes.
        """

        def begin() -> None:
            after()
            self._begin()

        self.call(begin)
        try:
            yield lambda: self.call(lambda: self._longest)
        finally:
            self.call(self._end)

    def call(self, function: Callable[[], Any]) -> Any:
        """Its result, in the thread of the loop."""
        done: Future[Any] = Future()

        def run() -> None:
            try:
                done.set_result(function())
            except BaseException as error:  # noqa: BLE001  # for the one who waits
                done.set_exception(error)

        self.loop.call_soon_threadsafe(run)
        return done.result(PATIENCE_S)

    def _begin(self) -> None:
        self._watching, self._longest, self._last = True, 0.0, time.thread_time()
        self.loop.call_soon(self._tick)

    def _end(self) -> None:
        self._watching = False

    def _tick(self) -> None:
        now = time.thread_time()
        self._longest = max(self._longest, now - self._last)
        self._last = now
        if self._watching:
            self.loop.call_soon(self._tick)
