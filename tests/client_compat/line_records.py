"""Records as the calls to clients of other languages, and their answers, carry them: JSON, with bytes in base64."""

import base64
from collections.abc import Mapping
from typing import Any

from tests.client_compat.client import Record, Stored


def as_sent(record: Record) -> dict[str, Any]:
    return {
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
        "timestamp": record.timestamp_ms,
    }


def as_stored(reported: Mapping[str, Any]) -> Stored:
    headers = tuple((name, _bytes(value)) for name, value in reported["headers"])
    return Stored(
        reported["offset"], reported["timestamp"], _bytes(reported["value"]), _bytes(reported["key"]), headers
    )


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
