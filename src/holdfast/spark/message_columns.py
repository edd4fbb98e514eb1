"""Messages of librdkafka as Arrow columns.

This runs for a million records a second, so it avoids Python calls per record: values that are the same for all
records, or follow from the first and the last one, are computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from holdfast.spark.arrow import HEADERS, MS_TO_US, TIMESTAMP

_NOT_AVAILABLE: Final = 0


def timestamps(messages: Sequence[Any]) -> Any:
    """The timestamp type and the milliseconds of each message, one pair per row."""
    flat = np.fromiter(chain.from_iterable(map(Message.timestamp, messages)), np.int64, 2 * len(messages))
    return flat.reshape(-1, 2)


def may_have_errors(stamped: Any) -> bool:
    """Error messages and records of Kafka's oldest format have no timestamp."""
    return bool((stamped[:, 0] == _NOT_AVAILABLE).any())


def message_columns(
    topic: str, partition: int, messages: Sequence[Any], stamped: Any, *, include_headers: bool
) -> list[Any]:
    """Records of one partition, in order, with their timestamps."""
    count = len(messages)
    piece = [
        pa.array(list(map(Message.key, messages)), pa.binary()),
        pa.array(list(map(Message.value, messages)), pa.binary()),
        pa.repeat(pa.scalar(topic), count),
        pa.array(np.full(count, partition, np.int32)),
        pa.array(_offsets(messages)),
        pa.array(stamped[:, 1] * MS_TO_US).view(TIMESTAMP),
        # Spark's numbers begin with 0 for CreateTime, and -1 is no timestamp.
        pa.array((stamped[:, 0] - 1).astype(np.int32)),
    ]
    if include_headers:
        # As in Spark's own source: null if a record has no headers.
        piece.append(pa.array([message.headers() or None for message in messages], HEADERS))
    return piece


def _offsets(messages: Sequence[Any]) -> Any:
    first, last = messages[0].offset(), messages[-1].offset()
    if last - first == len(messages) - 1:
        return np.arange(first, last + 1)
    return np.fromiter(map(Message.offset, messages), np.int64, len(messages))
