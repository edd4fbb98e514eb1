"""A Spark application of the benchmarks, as a process that can be restarted. It prints one JSON object per line."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final

from benchmarks.results import REPOSITORY

_STOP_S: Final = 60
_LOG_TAIL_LINES: Final = 30


class SparkApplication:
    """It ends when its stdin does."""

    def __init__(self, module: str, options: dict[str, Any], directory: Path) -> None:
        self._command = [sys.executable, "-m", module, json.dumps(options)]
        self._log = directory / "log"
        self._process: subprocess.Popen[str] | None = None
        self.events: list[dict[str, float]] = []
        """The lines since its last start, appended by a thread that reads its output."""

    def start(self) -> None:
        events: list[dict[str, float]] = []
        self.events = events
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        threading.Thread(target=_listen, args=(self._process, events), daemon=True).start()

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def check(self) -> None:
        """Raises RuntimeError with its last output if it has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            lines = self._log.read_text(errors="replace").splitlines()
            raise RuntimeError("\n".join(["a Spark application ended; it said:", *lines[-_LOG_TAIL_LINES:]]))


def _listen(process: subprocess.Popen[str], events: list[dict[str, Any]]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        events.append(json.loads(line))
