"""Records as text: templates and JSON lines. Bytes that are not UTF-8 pass through a template unchanged."""

from __future__ import annotations

import argparse
import base64
import re
from collections.abc import Callable, Iterable
from string import Formatter
from typing import Any, Final

FIELDS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
NULL: Final = "null"
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)

Write = Callable[[Any], bytes]
"""From a confluent-kafka message to the bytes to print."""


def unescaped(text: str) -> str:
    r"""`\t`, `\n`, `\r`, `\0` and `\\` as shells pass them."""
    return _ESCAPE.sub(lambda match: _ESCAPES.get(match[1], match[0]), text)


def template_option(text: str) -> str:
    """Allows the known fields only, without format specs and conversions."""
    try:
        parts = list(Formatter().parse(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a template: {error}") from None
    for _, name, spec, conversion in parts:
        if name is not None and (name not in FIELDS or spec or conversion):
            raise argparse.ArgumentTypeError(f"{{{name}}} is no field; there are {', '.join(FIELDS)}")
    return unescaped(text)


def template(text: str) -> Write:
    def write(record: Any) -> bytes:
        values = {
            "topic": record.topic(),
            "partition": record.partition(),
            "offset": record.offset(),
            "timestamp": record.timestamp()[1],
            "key": _text(record.key()),
            "value": _text(record.value()),
            "headers": ",".join(f"{name}={_text(value)}" for name, value in record.headers() or ()),
        }
        return text.format(**values).encode("utf-8", "surrogateescape")

    return write


def record_json(record: Any) -> dict[str, Any]:
    return {
        "topic": record.topic(),
        "partition": record.partition(),
        "offset": record.offset(),
        "timestamp": record.timestamp()[1],
        **_named("key", record.key()),
        **_named("value", record.value()),
        "headers": [{"name": name, **_named("value", value)} for name, value in _headers(record)],
    }


def _headers(record: Any) -> Iterable[tuple[str, bytes | None]]:
    return record.headers() or ()


def _text(value: bytes | str | None) -> str:
    if value is None:
        return NULL
    return value if isinstance(value, str) else value.decode("utf-8", "surrogateescape")


def _named(name: str, value: bytes | str | None) -> dict[str, str | None]:
    """Text as it is; bytes that are not UTF-8 as base64 under another name, so that the two cannot be confused."""
    if value is None or isinstance(value, str):
        return {name: value}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
