"""For measurements while a group works: a steady stream of records, and waiting for a condition."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from benchmarks.results import REPOSITORY

_LOOK_S: Final = 0.01


@contextmanager
def records(bootstrap: str, topic: str, partitions: int, patience_s: float) -> Iterator[None]:
    """Runs in a separate process while the block runs."""
    command = [sys.executable, "-m", "benchmarks.steady_producer", bootstrap, topic, str(partitions)]
    producer = subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield
    finally:
        producer.communicate(timeout=patience_s)
    if producer.returncode != 0:
        raise RuntimeError("the producer failed")


def until(holds: Callable[[], bool], what: str, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {patience_s} s")
        time.sleep(_LOOK_S)
