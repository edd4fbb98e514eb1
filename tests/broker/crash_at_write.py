"""A broker in a child process that ends itself, as `kill -9` does, at the n-th change it makes to the disk."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.server import Broker
from holdfast.log import disk
from tests.support.forks import FORKS

_PATIENCE_S = 30


def _end_at(number: int) -> None:
    points = itertools.count(1)

    def reached(_: str) -> None:
        if next(points) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    disk.fault = reached


async def _serve(data: str, settings: Mapping[str, str], parent: Connection) -> None:
    config = BrokerConfig.of({"listeners": "PLAINTEXT://127.0.0.1:0", **settings})
    broker = Broker(config, Path(data))
    await broker.start()
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)

    def reported() -> None:
        try:
            _end_at(parent.recv())
            parent.send("armed")
        except EOFError:
            loop.remove_reader(parent.fileno())

    loop.add_reader(parent.fileno(), reported)
    parent.send(broker.address)
    await stopping.wait()
    await broker.stop()


def _child(data: str, settings: Mapping[str, str], parent: Connection, end_at: int | None) -> None:
    if end_at is not None:
        _end_at(end_at)
    asyncio.run(_serve(data, settings, parent))


class KillableBroker:
    """Runs for the length of a `with` block and is killed at its end, unless it was stopped.

    `end_at`: the point counted from the start of the process; `arm` counts from then on.
    """

    def __init__(self, data: Path, settings: Mapping[str, str] | None = None, end_at: int | None = None) -> None:
        self._pipe, theirs = FORKS.Pipe()
        self._process = FORKS.Process(
            target=_child, args=(str(data), dict(settings or {}), theirs, end_at), daemon=True
        )
        self._process.start()
        theirs.close()
        self.address: tuple[str, int] = ("", 0)
        """Empty when it did not live to listen."""

    def __enter__(self) -> Self:
        try:
            if self._pipe.poll(_PATIENCE_S):
                self.address = self._pipe.recv()
        except EOFError:
            self._process.join(_PATIENCE_S)
        return self

    @property
    def was_killed(self) -> bool:
        return self._process.exitcode == -signal.SIGKILL

    def arm(self, number: int) -> None:
        """From now on, the n-th change to the disk is the last."""
        self._pipe.send(number)
        assert self._pipe.recv() == "armed"

    def stop(self) -> int | None:
        """Asks it to stop; its exit code."""
        self._process.terminate()
        self._process.join(_PATIENCE_S)
        return self._process.exitcode

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.join(_PATIENCE_S)
        self._pipe.close()
