"""What the broker logs: one line for each event that matters, for people or for machines.

An event is a few words and what it is about, as named fields: `say(logger, "topic created", topic="orders",
partitions=3)`. As text that is

    2026-11-16 10:00:00,123 INFO holdfast.broker.topics: topic created topic=orders partitions=3

and as JSON one object a line, with `time`, `level`, `logger`, `event` and the fields. Whatever comes from outside is
quoted, so that nobody can write lines of their own into the log.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import re
import sys
import time
from typing import Any, Final, Literal

LogFormat = Literal["text", "json"]

_PLAIN: Final = re.compile(r"[^\s\"=\\\x00-\x1f\x7f]+")
_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def say(logger: logging.Logger, event: str, level: int = logging.INFO, **fields: object) -> None:
    """One line about `event`; a field that is None is left out."""
    if logger.isEnabledFor(level):
        present = {name: value for name, value in fields.items() if value is not None}
        logger.log(level, event, extra={"fields": present}, stacklevel=2)


class TextFormatter(logging.Formatter):
    """Words, then `name=value` for each field."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # logging's name
        line = super().formatMessage(record)
        return " ".join([line, *(f"{name}={_quoted(value)}" for name, value in _fields(record).items())])


class JsonFormatter(logging.Formatter):
    """One object a line; a traceback is a field."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {  # Any: whatever json can write
            "time": _iso_time(record.created),
            "level": record.levelname,
            "logger": record.name,
            "event": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class HeldBack:
    """Lines from before it is known how to log: that stands in a config, and reading one is something to log about.

    In a process that logs already, be it a test or somebody's program, its own way is left alone.
    """

    def __init__(self) -> None:
        self._root = logging.getLogger()
        self._is_ours = not self._root.handlers
        self._lines = logging.handlers.BufferingHandler(10_000)
        if self._is_ours:
            self._root.addHandler(self._lines)
            self._root.setLevel(logging.DEBUG)

    def release(self, level: str, log_format: LogFormat) -> None:
        """From now on everything is logged to stderr, like this."""
        if not self._is_ours:
            return
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
        self._root.removeHandler(self._lines)
        self._root.addHandler(handler)
        self._root.setLevel(level.upper())
        for record in self._lines.buffer:
            if self._root.isEnabledFor(record.levelno):
                self._root.handle(record)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    found: dict[str, object] = getattr(record, "fields", {})
    return found


def _quoted(value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _iso_time(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03d}Z"
