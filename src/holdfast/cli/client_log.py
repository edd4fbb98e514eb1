"""What the client logs while a command goes on: sentences on stderr like any other, each said once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.cli.errors import say


class _Saying(logging.Handler):
    def __init__(self, prog: str) -> None:
        super().__init__(logging.WARNING)
        self._prog = prog
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        sentence = record.getMessage()
        if sentence not in self._said:
            self._said.add(sentence)
            say(self._prog, sentence)


@contextmanager
def saying_warnings(prog: str) -> Iterator[None]:
    logger = logging.getLogger("holdfast")
    handler = _Saying(prog)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
