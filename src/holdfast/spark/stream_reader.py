"""What Spark calls in a streaming query.

Spark makes readers in several processes: where it plans, on the executors, and in one process of the query's own, on
the driver. Only that one is asked for offsets; so the query begins there, when it is first asked.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from holdfast.client.errors import HoldfastError
from holdfast.spark.complaints import in_one_sentence
from holdfast.spark.lifetime import end_with_spark
from holdfast.spark.options import ReadOptions
from holdfast.spark.planning import into_tasks
from holdfast.spark.query import Query
from holdfast.spark.reading import Ranges

if TYPE_CHECKING:
    import pyarrow

GOODBYE_S: Final = 6.0
"""The longest that a reader takes to leave its group."""


class RefusedReader(DataSourceStreamReader):
    """Of a query whose options cannot be: it says so whatever it is asked."""

    def __init__(self, error: HoldfastError) -> None:
        self._error = error

    @in_one_sentence
    def initialOffset(self) -> dict[str, Any]:
        raise self._error

    @in_one_sentence
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002 - whatever it is
        raise self._error

    @in_one_sentence
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002
        raise self._error

    @in_one_sentence
    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:  # noqa: ARG002
        raise self._error


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._query: Query | None = None
        self._ending = threading.RLock()
        self._closer: threading.Thread | None = None

    def __reduce__(self) -> tuple[type[StreamReader], tuple[ReadOptions]]:
        """For the executors: without the query."""
        return StreamReader, (self._options,)

    # -- on the driver -------------------------------------------------------------------------------------------------

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def initialOffset(self) -> dict[str, Any]:
        """None of any partition: which ones the query gets, and where they begin, the group says."""
        return {}

    @in_one_sentence
    def prepareForTriggerAvailableNow(self) -> None:
        self._running().read_what_is_there()

    @in_one_sentence
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self._running().latest(start, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Where the query's partitions end, so that Spark's progress report shows the lag, and its seats."""
        if self._query is None:
            return None
        report: dict[str, Any] = {}
        for (topic, partition), end in sorted(self._query.newest.items()):
            report.setdefault(topic, {})[str(partition)] = end
        return report | {"": self._options.instance_ids}

    @in_one_sentence
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges = self._running().plan(start, end)
        return [Ranges(task) for task in into_tasks(ranges, self._options.min_partitions)]

    @in_one_sentence
    def commit(self, end: dict[str, Any]) -> None:  # noqa: ARG002 - it comes a batch late; `latest` has seen it
        if self._query is not None:
            self._query.retry()

    def stop(self) -> None:
        """May be called again before it is done, even by a signal in the middle of it: the goodbye has a thread of its
        own, and every caller waits for that."""
        with self._ending:
            if self._query is not None and self._closer is None:
                self._closer = threading.Thread(target=self._query.close, name="holdfast-goodbye", daemon=True)
                self._closer.start()
        if self._closer is not None:
            self._closer.join(GOODBYE_S)

    def _running(self) -> Query:
        if self._query is None:
            self._query = Query(self._options)
            end_with_spark(self.stop)
        return self._query

    # -- on the executors ----------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        from holdfast.spark.fetching import read_ranges

        assert isinstance(partition, Ranges)
        options = self._options
        return read_ranges(
            partition.ranges,
            options.kafka,
            include_headers=options.include_headers,
            fail_on_data_loss=options.fail_on_data_loss,
        )
