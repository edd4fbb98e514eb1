"""The interface of a streaming query to Spark.

Spark creates readers in several processes: where it plans, on the executors, and in the runner process of the query on
the driver. Only the last one is asked for offsets, so the query starts there, on the first call.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from holdfast.client.errors import HoldfastError
from holdfast.spark.options import ReadOptions
from holdfast.spark.planning import OffsetRanges, split_into_tasks
from holdfast.spark.runner_process import exit_with_spark
from holdfast.spark.user_errors import user_facing

if TYPE_CHECKING:
    import pyarrow

    from holdfast.spark.stream_planner import StreamPlanner

NO_MAXIMUM: Final = 2**63 - 1
LEAVE_TIMEOUT_S: Final = 6.0
"""How long a reader may take to leave its group."""


class InvalidOptionsReader(DataSourceStreamReader):
    """The reader of a query with invalid options: every method raises the error."""

    def __init__(self, error: HoldfastError) -> None:
        self._error = error

    @user_facing
    def initialOffset(self) -> dict[str, Any]:
        raise self._error

    @user_facing
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002 - whatever it is
        raise self._error

    @user_facing
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002
        raise self._error

    @user_facing
    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:  # noqa: ARG002
        raise self._error


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._planner: StreamPlanner | None = None
        self._stop_lock = threading.RLock()
        self._closer: threading.Thread | None = None

    def __reduce__(self) -> tuple[type[StreamReader], tuple[ReadOptions]]:
        """For the executors: without the planner."""
        return StreamReader, (self._options,)

    # -- on the driver -------------------------------------------------------------------------------------------------

    def getDefaultReadLimit(self) -> ReadLimit:
        """With a minimum, a limit that is never reached: Spark's ReadMinRows has no maximum delay, and ReadAllAvailable
        (Trigger.Once) means that the minimum does not apply."""
        max_records = self._options.max_offsets_per_trigger
        if max_records is None and self._options.min_offsets_per_trigger is not None:
            max_records = NO_MAXIMUM
        return ReadAllAvailable() if max_records is None else ReadMaxRows(max_records)

    def initialOffset(self) -> dict[str, Any]:
        """Empty: the group decides which partitions the query reads, and from which offsets."""
        return {}

    @user_facing
    def prepareForTriggerAvailableNow(self) -> None:
        self._get_planner().freeze_end_offsets()

    @user_facing
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if not isinstance(limit, ReadMaxRows):
            return self._get_planner().latest_offset(start, None)
        return self._get_planner().latest_offset(start, limit.max_rows, self._options.min_offsets_per_trigger)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end offsets of the query's partitions, so that Spark's progress report shows the lag, and its instance
        ids."""
        if self._planner is None:
            return None
        report: dict[str, Any] = {}
        for (topic, partition), end in sorted(self._planner.end_offsets.items()):
            report.setdefault(topic, {})[str(partition)] = end
        return report | {"": self._options.instance_ids}

    @user_facing
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges = self._get_planner().plan_batch(start, end)
        options = self._options
        tasks = split_into_tasks(ranges, options.min_partitions, options.max_records_per_partition)
        return [OffsetRanges(task) for task in tasks]

    @user_facing
    def commit(self, end: dict[str, Any]) -> None:  # noqa: ARG002 - called a batch late; `latestOffset` already has it
        if self._planner is not None:
            self._planner.retry_commit()

    def stop(self) -> None:
        """May be called again before it is done, even by a signal handler in the middle of it: leaving the group has
        its own thread, and every caller waits for it."""
        with self._stop_lock:
            if self._planner is not None and self._closer is None:
                self._closer = threading.Thread(target=self._planner.close, name="holdfast-leave", daemon=True)
                self._closer.start()
        if self._closer is not None:
            self._closer.join(LEAVE_TIMEOUT_S)

    def _get_planner(self) -> StreamPlanner:
        if self._planner is None:
            # Slow to load, and not needed on the executors.
            from holdfast.spark.stream_planner import StreamPlanner

            self._planner = StreamPlanner(self._options)
            exit_with_spark(self.stop)
            self._planner.connect()
        return self._planner

    # -- on the executors ----------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        from holdfast.spark.fetching import read_ranges

        assert isinstance(partition, OffsetRanges)
        options = self._options
        return read_ranges(
            partition.ranges,
            options.record_settings,
            include_headers=options.include_headers,
            fail_on_data_loss=options.fail_on_data_loss,
        )
