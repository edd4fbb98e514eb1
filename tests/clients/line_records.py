"""Records as the calls to clients of other languages, and their answers, carry them: JSON, with bytes in base64."""

import base64
from collections.abc import Mapping
from typing import Any

from tests.clients.client import Record, Stored


def as_sent(record: Record) -> dict[str, Any]:
    return {
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
        "timestamp": record.timestamp_ms,
    }


def as_stored(told: Mapping[str, Any]) -> Stored:
    headers = tuple((name, _bytes(value)) for name, value in told["headers"])
    return Stored(told["offset"], told["timestamp"], _bytes(told["value"]), _bytes(told["key"]), headers)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
