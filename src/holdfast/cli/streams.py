"""stdin, stdout and stderr, where they are closed or cannot be written."""

from __future__ import annotations

import os
import sys
from typing import Final

_STREAMS: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def open_closed_streams() -> None:
    """`>&-` and the like: nothing comes from such a stream, and what is written to it goes nowhere. Python leaves them
    out, and the next file or socket would get their number: a library that writes to stderr would write into it."""
    for name, mode in _STREAMS:  # in the order of their numbers: each takes the lowest that is free, its own
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # for as long as the process


def give_up_stdout() -> None:
    """Python flushes stdout once more at the end, and would complain: it may write, but to nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
