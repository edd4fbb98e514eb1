"""A server has all rows of versions on its server_pair at once: they wait for each other before it is killed."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Barrier
from types import TracebackType
from typing import Self

from tests.conformance.server import Restart

PATIENCE_S = 120.0


class RestartBarrier:
    """Context manager around the runs of one scenario on one server that can be restarted."""

    def __init__(self, restart: Restart, runs: int) -> None:
        self._restart = restart
        self._barrier = Barrier(runs, self._take, PATIENCE_S)
        self._down_s = 0.0
        self._settings: Mapping[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """The next scenario finds the server as it was."""
        if self._settings:
            self._restart(0.0, {})

    def restart(self, down_s: float, settings: Mapping[str, str]) -> None:
        """Wait for the runs of the other rows; the last to come restarts the server for all."""
        self._down_s, self._settings = down_s, settings
        self._barrier.wait()

    def abort(self) -> None:
        """A run ended before its time: nobody waits for it."""
        self._barrier.abort()

    def _take(self) -> None:
        self._restart(self._down_s, self._settings)
