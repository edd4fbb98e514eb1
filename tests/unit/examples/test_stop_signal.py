"""SIGTERM at any moment, also in the middle of its own handler."""

from __future__ import annotations

import subprocess
import sys

from tests.support.kafka_distribution import REPOSITORY

PROGRAM = """
import faulthandler, signal, sys, threading
from examples.demo.stop_signal import StopSignal

class Event(threading.Event):
    def __init__(self):
        super().__init__()
        signal.signal(signal.SIGTERM, lambda *_: self.set())

sent = 0

def again(frame, event, _):
    # Called at each line that the handler runs.
    global sent
    if sent < 20:
        sent += 1
        signal.raise_signal(signal.SIGTERM)
    return again

stopping = {name}()
faulthandler.dump_traceback_later({hangs_s}, exit=True)
sys.settrace(again)
signal.raise_signal(signal.SIGTERM)
sys.settrace(None)
print("set" if stopping.is_set() and sent > 1 else "not set")
"""


def run(name: str, hangs_s: float) -> str:
    program = [sys.executable, "-c", PROGRAM.format(name=name, hangs_s=hangs_s)]
    done = subprocess.run(program, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


def test_a_signal_in_the_middle_of_its_handler_does_not_hang_the_process() -> None:
    assert run("StopSignal", hangs_s=30) == "set\n"


def test_the_control_an_event_hangs_the_process() -> None:
    stacks = run("Event", hangs_s=1)
    assert "Timeout" in stacks and stacks.count("threading.py") > 1, stacks
