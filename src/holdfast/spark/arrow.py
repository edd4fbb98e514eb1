"""Batches of rows as Arrow, with exactly the types that Spark derives from the schema. Spark rejects other types."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

MAX_ROWS: Final = 10_000
MAX_BYTES: Final = 16 * 1024 * 1024
"""A batch has at most this many rows, and about as many bytes unless one row alone has more."""
ENOUGH_BYTES: Final = 512 * 1024
"""A batch of this size is complete. Joining it with the next records would copy all of them again."""
FIRST_ROWS: Final = 100
"""The number of records to read before their size is known."""

HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
TIMESTAMP: Final = pa.timestamp("us", "UTC")
_SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("timestampType", pa.int32()),
    ]
)
_WITH_HEADERS: Final = _SCHEMA.append(pa.field("headers", HEADERS))
MS_TO_US: Final = 1000


def schema(include_headers: bool) -> pa.Schema:
    return _WITH_HEADERS if include_headers else _SCHEMA


class ArrowBatchBuilder:
    """Collects records until a batch is complete."""

    def __init__(self, *, include_headers: bool) -> None:
        self._schema = schema(include_headers)
        self._pieces: list[Sequence[Any]] = []
        self._waiting: deque[Sequence[Any]] = deque()
        self._rows = 0
        self._bytes = 0
        self._bytes_per_record: int | None = None

    @property
    def full(self) -> bool:
        return self._rows >= MAX_ROWS or self._bytes >= ENOUGH_BYTES

    @property
    def capacity(self) -> int:
        """The number of records that still fit into the batch, if they are as large as the last ones."""
        if self._bytes_per_record is None:
            return FIRST_ROWS
        return max(1, min(MAX_ROWS - self._rows, (MAX_BYTES - self._bytes) // self._bytes_per_record))

    def add(self, columns: Sequence[Any]) -> None:
        """More rows than fit are added when the batch has been taken."""
        count = len(columns[0])
        if not count:
            return
        self._bytes_per_record = max(1, sum(column.nbytes for column in columns) // count)
        self._waiting.append(columns)
        self._fill()

    def _fill(self) -> None:
        while self._waiting and not self.full:
            columns = self._waiting.popleft()
            count, room = len(columns[0]), self.capacity
            if count > room:
                self._waiting.appendleft([column.slice(room) for column in columns])
                columns = [column.slice(0, room) for column in columns]
            self._pieces.append(columns)
            self._rows += len(columns[0])
            self._bytes += sum(column.nbytes for column in columns)

    def take(self) -> pa.RecordBatch | None:
        """The batch, or None if it is empty."""
        if not self._pieces:
            return None
        batch = self._take()
        self._fill()
        return batch

    def _take(self) -> pa.RecordBatch:
        pieces, self._pieces, self._rows, self._bytes = self._pieces, [], 0, 0
        columns = pieces[0] if len(pieces) == 1 else [pa.concat_arrays(column) for column in zip(*pieces, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
