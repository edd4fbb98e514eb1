"""Reading on the executors: converts ranges of offsets to Arrow batches. Executors join no group and commit nothing.

Record batches are fetched as bytes and decoded as a whole. librdkafka is used for topics with records of an older
message format, brokers before Kafka 0.11, and options that only librdkafka has.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

import pyarrow as pa

from holdfast.client.errors import HoldfastError, UnsupportedVersion
from holdfast.spark.batch_headers import UnsupportedBatch
from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.executor_consumers import lease
from holdfast.spark.fetch_reader import FetchReader
from holdfast.spark.range_fetcher import RangeFetcher, only_of_librdkafka

logger = logging.getLogger("holdfast.spark")

_WORKER: Final = "pyspark.daemon"
"""The module that Spark runs on an executor and forks for each worker."""


def read_ranges(
    ranges: Sequence[OffsetRange], kafka: Mapping[str, Any], *, include_headers: bool, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """The records of the ranges as `pyarrow.RecordBatch`; those of one partition in their order."""
    _exempt_modules_from_collection()
    try:
        for together in _rounds(ranges):
            left = together
            if options := only_of_librdkafka(kafka):
                _log_once(f"the options {', '.join(options)}")
            else:
                with lease(kafka, RangeFetcher) as fetcher:
                    fetching = FetchReader(fetcher, together, include_headers, fail_on_data_loss)
                    try:
                        yield from fetching.batches()
                    except (UnsupportedBatch, UnsupportedVersion) as reason:
                        _log_once(str(reason))
                        yield from fetching.rest()
                    left = fetching.remaining
            if left:
                # Slow to load, and rarely needed.
                from holdfast.spark.consumer_reader import ConsumerReader
                from holdfast.spark.range_consumer import RangeConsumer

                with lease(kafka, RangeConsumer) as consumer:
                    yield from ConsumerReader(consumer, left, include_headers, fail_on_data_loss).batches()
    except HoldfastError as error:
        # Without a stack trace, which Spark would show to the user.
        raise error.with_traceback(None) from None


@cache
def _exempt_modules_from_collection() -> None:
    """Spark's worker collects garbage after each task. Visiting the objects of all loaded modules, which are never
    garbage, takes as long as reading 100,000 records."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name == _WORKER:
        gc.freeze()


@cache
def _log_once(reason: str) -> None:
    logger.info("records are read through librdkafka, which is slower, because of %s", reason)


def _rounds(ranges: Sequence[OffsetRange]) -> list[list[OffsetRange]]:
    """The ranges that are read together. A reader has one position per partition, so a second range of a partition is
    read later."""
    rounds: list[list[OffsetRange]] = []
    for one in ranges:
        if one.start >= one.end:
            continue
        fitting = next((some for some in rounds if all(other.where != one.where for other in some)), None)
        if fitting is None:
            rounds.append([one])
        else:
            fitting.append(one)
    return rounds
