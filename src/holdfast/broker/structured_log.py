"""Log lines, one for each event, as text or as JSON.

An event has a short text and named fields: `log_event(logger, "topic created", topic="orders", partitions=3)`. As text
it is

    2026-11-16 10:00:00,123 INFO holdfast.broker.storage.topics: topic created topic=orders partitions=3

and as JSON one object a line, with `time`, `level`, `logger`, `event` and the fields. Values from outside are quoted,
so that a client cannot inject log lines.
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


def log_event(logger: logging.Logger, event: str, level: int = logging.INFO, **fields: object) -> None:
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


class BufferedStartupLog:
    """Configures logging before the configuration is known, because reading it may log lines.

    Changes nothing in a process that has already configured logging (a test, another program).
    """

    def __init__(self) -> None:
        self._root = logging.getLogger()
        self._is_ours = not self._root.handlers
        self._lines = logging.handlers.BufferingHandler(10_000)
        if self._is_ours:
            self._root.addHandler(self._lines)
            self._root.setLevel(logging.DEBUG)

    def release(self, level: str, log_format: LogFormat) -> None:
        """Logs everything to stderr from now on, in this format."""
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
