"""Records as Arrow, with exactly the types that Spark derives from `columns`: it compares them, and refuses others.

Each call of Python per record counts here, a million times a second: what is the same for all of them, or follows from
the first and the last, is not asked of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

ROWS: Final = 10_000
BYTES: Final = 16 * 1024 * 1024
"""A batch is handed on when it has that many rows or bytes, whichever comes first."""
FIRST_ROWS: Final = 100
"""To be taken before it is known how large they are."""

_HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
_SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
)
_WITH_HEADERS: Final = _SCHEMA.append(pa.field("headers", _HEADERS))
_NOT_AVAILABLE: Final = 0
_MS_TO_US: Final = 1000


def schema(include_headers: bool) -> pa.Schema:
    return _WITH_HEADERS if include_headers else _SCHEMA


def stamps(messages: Sequence[Any]) -> Any:
    """The kind of each message's timestamp and the milliseconds, one pair below the other."""
    flat = np.fromiter(chain.from_iterable(map(Message.timestamp, messages)), np.int64, 2 * len(messages))
    return flat.reshape(-1, 2)


def may_have_errors(stamped: Any) -> bool:
    """A message that is an error has no timestamp. Records of Kafka's oldest format have none either."""
    return bool((stamped[:, 0] == _NOT_AVAILABLE).any())


class Batches:
    """Collects records until they are enough for a batch."""

    def __init__(self, *, include_headers: bool) -> None:
        self._schema = schema(include_headers)
        self._include_headers = include_headers
        self._pieces: list[list[Any]] = []
        self._rows = 0
        self._bytes = 0
        self._bytes_of_one: int | None = None

    @property
    def full(self) -> bool:
        return self._rows >= ROWS or self._bytes >= BYTES

    @property
    def room(self) -> int:
        """How many records the batch may still take, if they are like the last ones."""
        if self._bytes_of_one is None:
            return FIRST_ROWS
        return max(1, min(ROWS - self._rows, (BYTES - self._bytes) // self._bytes_of_one))

    def add(self, topic: str, partition: int, messages: Sequence[Any], stamped: Any) -> None:
        """Records of one partition, in their order, with their `stamps`."""
        count = len(messages)
        piece = [
            pa.array(list(map(Message.key, messages)), pa.binary()),
            pa.array(list(map(Message.value, messages)), pa.binary()),
            pa.repeat(pa.scalar(topic), count),
            pa.array(np.full(count, partition, np.int32)),
            pa.array(_offsets(messages)),
            pa.array(stamped[:, 1] * _MS_TO_US).view(_SCHEMA.field("timestamp").type),
            # Spark counts the kinds from 0, CreateTime, and has -1 for none.
            pa.array((stamped[:, 0] - 1).astype(np.int32)),
        ]
        if self._include_headers:
            # Like Spark's own source: null where a record has none.
            piece.append(pa.array([message.headers() or None for message in messages], _HEADERS))
        self._pieces.append(piece)
        size = sum(column.nbytes for column in piece)
        self._rows += count
        self._bytes += size
        self._bytes_of_one = max(1, size // count)

    def take(self) -> pa.RecordBatch | None:
        """The batch, or None if there is nothing in it."""
        if not self._pieces:
            return None
        pieces, self._pieces, self._rows, self._bytes = self._pieces, [], 0, 0
        columns = pieces[0] if len(pieces) == 1 else [pa.concat_arrays(column) for column in zip(*pieces, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _offsets(messages: Sequence[Any]) -> Any:
    first, last = messages[0].offset(), messages[-1].offset()
    if last - first == len(messages) - 1:
        return np.arange(first, last + 1)
    return np.fromiter(map(Message.offset, messages), np.int64, len(messages))
