"""A graceful stop on Ctrl-C or SIGTERM: the work in progress is finished first. A second signal interrupts it."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any, Final, Self

from holdfast.cli.exit_codes import EXIT_INTERRUPTED, EXIT_TERMINATED

_EXIT_CODES: Final = {signal.SIGINT: EXIT_INTERRUPTED, signal.SIGTERM: EXIT_TERMINATED}


class GracefulStop:
    """`exit_code` is None until a signal arrives. With `interrupting` the first signal raises KeyboardInterrupt too,
    for code that blocks where nothing else would wake it."""

    def __init__(self, *, interrupting: bool = False) -> None:
        self.exit_code: int | None = None
        self._interrupting = interrupting
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in _EXIT_CODES:
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def stop_interrupting(self) -> None:
        """From now on the first signal interrupts nothing, because the work ends by itself; a second one still does."""
        self._interrupting = False

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        is_second = self.exit_code is not None
        self.exit_code = self.exit_code or _EXIT_CODES[signal.Signals(number)]
        if is_second or self._interrupting:
            raise KeyboardInterrupt
