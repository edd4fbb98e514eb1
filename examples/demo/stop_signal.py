"""Whether a process has received SIGTERM."""

from __future__ import annotations

import signal


class StopSignal:
    """A plain flag, because a signal handler interrupts the main thread. `threading.Event.set` takes a lock: if the
    main thread holds it, in `wait` or in the handler of an earlier signal, the process hangs."""

    def __init__(self) -> None:
        self._is_set = False
        signal.signal(signal.SIGTERM, self._on_signal)

    def is_set(self) -> bool:
        return self._is_set

    def _on_signal(self, *_: object) -> None:
        self._is_set = True
