"""stdin, stdout and stderr: streams that are closed or cannot be written, and warnings on stderr."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from holdfast.cli.errors import print_to_stderr

_STREAMS: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def open_closed_streams() -> None:
    """Opens streams that were closed by the caller (`>&-`) on /dev/null. Python leaves them closed, and the next file
    or socket would get their descriptor: a library that writes to stderr would write into it."""
    for name, mode in _STREAMS:  # in the order of their descriptors: each gets the lowest free one, its own
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # until the process exits


def discard_stdout() -> None:
    """Redirects stdout to /dev/null: Python flushes it once more at exit, which would fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _StderrHandler(logging.Handler):
    def __init__(self, prog: str) -> None:
        super().__init__(logging.WARNING)
        self._prog = prog
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        sentence = record.getMessage()
        if sentence not in self._printed:
            self._printed.add(sentence)
            print_to_stderr(self._prog, sentence)


@contextmanager
def warnings_to_stderr(prog: str) -> Iterator[None]:
    """Prints the warnings of the client in the block, each one once."""
    logger = logging.getLogger("holdfast")
    handler = _StderrHandler(prog)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
