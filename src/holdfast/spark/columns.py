"""The columns of a record, as Spark's own Kafka source has them."""

from __future__ import annotations

from typing import Final

COLUMNS: Final = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
)
HEADERS: Final = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


def columns(include_headers: bool) -> str:
    return f"{COLUMNS}, {HEADERS}" if include_headers else COLUMNS
