"""Processes that end with the test run, however it ends."""

import atexit
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1

_running: set[subprocess.Popen[bytes]] = set()


def start_child(command: Sequence[str], output: Path) -> subprocess.Popen[bytes]:
    """Start ``command`` with stdout and stderr appended to ``output``.

    The child dies with the interpreter (atexit) and, on Linux, even when the interpreter is killed: then with
    the thread that called this. It has a session of its own, so that Ctrl-C reaches the tests, which stop it in
    order, and not the child first.
    """
    with output.open("ab") as log:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent(),
        )
    _running.add(child)
    return child


def end_child(child: subprocess.Popen[bytes], number: signal.Signals, patience_s: float) -> int:
    """Send a signal and wait for the end; kill a child that does not come to it. Returns the exit code."""
    if child.poll() is None:
        child.send_signal(number)
    try:
        return child.wait(timeout=patience_s)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()
    finally:
        _running.discard(child)


@atexit.register
def _kill_what_still_runs() -> None:
    for child in list(_running):
        end_child(child, signal.SIGKILL, patience_s=10)


def _die_with_parent() -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    # Loaded here: between fork and exec as little as possible may happen.
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def ask_kernel() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # The parent may have died before the kernel was asked; nobody would tell us any more.
        if os.getppid() != parent:
            os._exit(1)

    return ask_kernel
