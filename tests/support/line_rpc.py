"""A process that is called over its stdin and answers over its stdout, one line of JSON each: a client of another
language. Calls may run beside each other; an answer carries the id of its call."""

import atexit
import contextlib
import itertools
import json
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

PATIENCE_S = 90.0
"""Longer than any client tries on its own, so that its own words are heard."""

_STDERR_LINES = 40


class CallFailed(Exception):
    """The client's own error; ``errno`` is the protocol's number, -1 where it has none."""

    def __init__(self, errno: int, message: str) -> None:
        super().__init__(f"{message} ({errno})")
        self.errno = errno


class LineRpc:
    """Starts the process. It ends when its stdin does, so also when this one is killed."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None, patience_s: float = PATIENCE_S
    ) -> None:
        self._patience_s = patience_s
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=environment,
        )
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._pending: dict[int, Future[Any]] = {}
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        threading.Thread(target=self._read_replies, daemon=True).start()
        threading.Thread(target=self._read_stderr, daemon=True).start()
        atexit.register(self.close)

    def call(self, name: str, /, **arguments: Any) -> Any:
        answer: Future[Any] = Future()
        with self._lock:
            number = next(self._ids)
            self._pending[number] = answer
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(json.dumps({"id": number, "call": name, **arguments}) + "\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                raise self._ended() from None
        return answer.result(self._patience_s)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _read_replies(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            waiting = self._pending.pop(answer["id"])
            if "error" in answer:
                waiting.set_exception(CallFailed(answer["error"], answer["message"]))
            else:
                waiting.set_result(answer["result"])
        for waiting in list(self._pending.values()):
            waiting.set_exception(self._ended())

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        with contextlib.suppress(ValueError):  # closed under us, at the end
            for line in self._process.stderr:
                self._stderr.append(line)

    def _ended(self) -> RuntimeError:
        return RuntimeError(f"{self._process.args!r} ended; its last words:\n{''.join(self._stderr)}")
