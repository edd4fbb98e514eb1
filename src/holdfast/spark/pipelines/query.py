"""The streaming query around a pipeline: a member of its group, whose batches the pipeline takes one by one."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Self, TypeVar

from holdfast.client.coordinator import GroupCoordinator
from holdfast.client.errors import ConfigError
from holdfast.client.network import Network
from holdfast.client.offsets import EARLIEST
from holdfast.client.settings import NetworkSettings
from holdfast.spark.log_ends import LogEnds
from holdfast.spark.offsets import OffsetRange, Where
from holdfast.spark.options import stream_options
from holdfast.spark.pipelines.disk import Disk, shared_path, spark_path
from holdfast.spark.pipelines.errors import QueryFailed, Stopped, Unwritable
from holdfast.spark.pipelines.offset_log import last_planned, planned
from holdfast.spark.starting import await_begin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

STOP_PATIENCE_S: Final = 60.0
"""How long a query that is stopped may take for the batch in hand."""
BEGIN_PATIENCE_S: Final = 60.0
AT_ONCE: Final = 8
"""So many partitions of a batch are entered at the same time: most of that is waiting for the device."""
_PATIENCE_S: Final = 60.0
_DEFAULTS: Final = {"startingOffsets": "earliest"}
"""Unlike the source: whoever keeps something of a topic wants all of it."""

logger = logging.getLogger("holdfast.spark")

Done = TypeVar("Done")


class PipelineQuery(ABC, Generic[Done]):
    """Reads what `options` subscribe to, and keeps what becomes of it in the directory `path`, which all see."""

    NAME: ClassVar[str]
    KEPT: ClassVar[str]
    """What is in the directory, as people call it."""
    CHECKPOINTS: ClassVar[str]

    def __init__(
        self,
        spark: SparkSession,
        path: str | os.PathLike[str],
        options: Mapping[str, Any],
        checkpoint: str | os.PathLike[str] | None,
    ) -> None:
        """Without a `checkpoint`, a query with an instance id has one in the directory, by that name, and one without
        an id begins where its group is. Raises ConfigError."""
        if type(spark).__module__.startswith("pyspark.sql.connect"):
            raise ConfigError(
                f"{self.NAME} runs on the driver: give it a session of classic Spark, not one of Spark Connect"
            )
        lowered = {name.lower() for name in options}
        defaults = {name: value for name, value in _DEFAULTS.items() if name.lower() not in lowered}
        self._given = {**defaults, **{name: str(value) for name, value in options.items()}}
        self._options = stream_options(self._given)
        self._check()
        self._spark = spark
        self._path = shared_path(path, self.KEPT)
        self._checkpoint, self._is_temporary = self._choose_checkpoint(checkpoint)
        self._in_batch = threading.Lock()
        self._stopping = False
        self._failure: Exception | None = None
        self._replayed_up_to = -1
        self.query: StreamingQuery | None = None
        """Spark's own, once it is started."""

    # -- what a pipeline does ------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """The options, before anything is begun. Raises ConfigError."""

    def _prepare(self, rows: DataFrame) -> DataFrame:
        """What of the source's rows the batches have; called when the query is started."""
        return rows

    @abstractmethod
    def _process(self, rows: DataFrame, ranges: Sequence[OffsetRange]) -> Done:
        """Of a batch. When it returns, all of the ranges is kept; they may begin before what is."""

    @abstractmethod
    def _tell(self, number: int, done: Done, seconds: float) -> None:
        """The batch is done."""

    # -- the query's life ----------------------------------------------------------------------------------------------

    def start(self, **trigger: Any) -> Self:
        """`trigger` is what Spark's `trigger` takes, e.g. availableNow=True; without one, batch follows batch. Returns
        when the query has begun, so that others can be started."""
        with telling(self._path):
            Disk().make_directory(self._path)
        self._replayed_up_to = last_planned(self._checkpoint)
        rows = self._prepare(self._spark.readStream.format("holdfast").options(**self._given).load())
        writer = rows.writeStream.foreachBatch(self._batch).option("checkpointLocation", spark_path(self._checkpoint))
        self.query = (writer.trigger(**trigger) if trigger else writer).start()
        if not await_begin(self.query, BEGIN_PATIENCE_S):
            logger.warning("the query has not begun after %s s; going on", BEGIN_PATIENCE_S)
        return self

    def wait(self, timeout_s: int | None = None) -> bool:
        """Until the query has ended; False if it has not within that time. Raises what it failed with."""
        from pyspark.errors import StreamingQueryException

        assert self.query is not None, "start it first"
        try:
            ended = self.query.awaitTermination(timeout_s)
        except StreamingQueryException as error:
            ended = True
            if not self._stopping:
                self._forget()
                raise self._failure or QueryFailed(_sentence(str(error))) from error
        if ended is not False:
            self._forget()
        return ended is not False

    def stop(self, patience_s: float = STOP_PATIENCE_S) -> None:
        """The batch in hand is finished first, and no other is begun."""
        self._stopping = True
        if self.query is not None:
            if self._in_batch.acquire(timeout=patience_s):
                self._in_batch.release()
            else:
                logger.warning("a batch has taken longer than %s s and is given up; it comes again", patience_s)
            self.query.stop()
        self._forget()

    # -- a batch -------------------------------------------------------------------------------------------------------

    def _batch(self, rows: DataFrame, number: int) -> None:
        with self._in_batch:
            if self._stopping:
                raise Stopped("the query is being stopped")  # to return would say that the batch is done
            began = time.monotonic()
            try:
                done = self._process(rows, self._ranges(number))
            except Exception as error:
                self._failure = error
                raise
            self._tell(number, done, time.monotonic() - began)

    def _ranges(self, number: int) -> list[OffsetRange]:
        ranges = planned(self._checkpoint, number)
        return self._of_repeated(ranges) if number <= self._replayed_up_to else ranges

    def _of_repeated(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """What of a batch that Spark repeats is still to be processed, and still there."""
        network = Network(NetworkSettings.from_config(self._options.kafka))
        try:
            left = self._behind_the_group(network, ranges)
            return left if self._options.fail_on_data_loss else self._behind_retention(network, left)
        finally:
            network.close()

    def _behind_the_group(self, network: Network, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """What the group has stored since is left out. If somebody has stored what was never kept, that is a gap, and
        not to be taken for a place without records."""
        if self._options.group_id is None:
            return list(ranges)
        with GroupCoordinator(network, self._options.group_id) as coordinator:
            stored = coordinator.fetch_offsets([one.where for one in ranges], time.monotonic() + _PATIENCE_S)
        return _not_before(ranges, {where: one.offset for where, one in stored.items()})

    @staticmethod
    def _behind_retention(network: Network, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """The executors go on behind records that went since the batch was planned, if they may. Here that is a gap."""
        ends = LogEnds(network, _PATIENCE_S, read_committed=False, fail_on_data_loss=False)
        return _not_before(ranges, ends.ask([one.where for one in ranges], EARLIEST))

    # -- its places ----------------------------------------------------------------------------------------------------

    @property
    def _instance_id(self) -> str | None:
        instance_id = self._options.kafka.get("group.instance.id")
        return str(instance_id) if instance_id else None

    def _choose_checkpoint(self, given: str | os.PathLike[str] | None) -> tuple[Path, bool]:
        if given is not None:
            return shared_path(given, self.KEPT), False
        if self._instance_id is not None:
            return self._path / self.CHECKPOINTS / self._instance_id, False
        return Path(tempfile.mkdtemp(prefix=f"holdfast-{self.NAME}-")), True

    def _writer(self) -> str:
        who = self._instance_id or self._options.kafka.get("client.id") or self.NAME
        return f"{who}-{uuid.uuid4().hex[:12]}"

    def _forget(self) -> None:
        """What was only for this life of the query."""
        if self._is_temporary:
            shutil.rmtree(self._checkpoint, ignore_errors=True)


def _not_before(ranges: Sequence[OffsetRange], offsets: Mapping[Where, int]) -> list[OffsetRange]:
    return [one._replace(start=min(one.end, max(one.start, offsets.get(one.where, one.start)))) for one in ranges]


@contextlib.contextmanager
def telling(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unwritable.because(path, error) from error


def _sentence(said: str) -> str:
    """What Spark shows of an error, without what it adds of its own."""
    told = said.partition("=== Streaming Query ===")[0].partition("JVM stacktrace")[0].partition("SQLSTATE")[0]
    told = told.rpartition("terminated with exception:")[2]
    return " ".join(told.split()) or "Spark has ended the query"
