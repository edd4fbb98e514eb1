"""`holdfast …` as a process of its own, for what depends on one: signals, pipes, bytes."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.eventually import eventually

PATIENCE_S = 60
HOLDFAST = (sys.executable, "-m", "holdfast.cli.main")

Process = subprocess.Popen[bytes]


def _hears_ctrl_c() -> None:
    """A shell has what it starts in the background ignore it, and a child inherits that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def running(*arguments: str) -> Iterator[Process]:
    """Gone when the test is."""
    pipe = subprocess.PIPE
    # Without buffers of our own: what one line leaves unread, `ended` must still find.
    with subprocess.Popen(
        [*HOLDFAST, *arguments], 0, stdin=pipe, stdout=pipe, stderr=pipe, preexec_fn=_hears_ctrl_c
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def at_terminal(*arguments: str) -> Iterator[tuple[Process, int]]:
    """The same with a terminal as its stdout and stderr; what it shows is read from the descriptor."""
    mine, its = pty.openpty()
    environment = os.environ | {"TERM": "xterm"}
    try:
        with subprocess.Popen(
            [*HOLDFAST, *arguments], stdout=its, stderr=its, env=environment, preexec_fn=_hears_ctrl_c
        ) as process:
            os.close(its)
            try:
                yield process, mine
            finally:
                process.kill()
    finally:
        os.close(mine)


def shown_until(terminal: int, word: bytes) -> bytes:
    """What the terminal shows up to this word."""
    shown = bytearray()

    def found() -> bool:
        shown.extend(os.read(terminal, 65536))
        return word in shown

    eventually(found, f"{word!r} at the terminal; it shows {shown!r}")
    return bytes(shown)


def ended(process: Process, number: signal.Signals | None = None) -> tuple[int, bytes, bytes]:
    """Exit code and the rest of stdout and stderr, after a signal if one is given."""
    if number is not None:
        process.send_signal(number)
    rest, errors = process.communicate(timeout=PATIENCE_S)
    return process.returncode, rest, errors


def line_of(process: Process) -> bytes:
    """The next line on stdout; it fails where there is none any more."""
    assert process.stdout is not None
    line: bytes = process.stdout.readline()
    assert line, f"ended with {process.wait(PATIENCE_S)}"
    return line


def lines_until(process: Process, word: bytes) -> list[bytes]:
    """The lines up to the one that has this in it."""
    lines: list[bytes] = []

    def found() -> bool:
        lines.append(line_of(process))
        return word in lines[-1]

    eventually(found, f"a line with {word!r}; there were {lines!r}")
    return lines
