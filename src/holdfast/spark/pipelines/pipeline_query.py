"""The streaming query around a pipeline: a member of its group, whose batches the pipeline processes one by one."""

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

from holdfast.client.errors import ConfigError
from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.options import REPLAY_DIRECTORY, stream_options
from holdfast.spark.pipelines.durable_files import Disk
from holdfast.spark.pipelines.errors import Damaged, QueryFailed, Stopped, Unwritable
from holdfast.spark.pipelines.location import Location, user_cache
from holdfast.spark.pipelines.shared_files import open_files
from holdfast.spark.pipelines.spark_errors import spark_error_text, spark_errors
from holdfast.spark.pipelines.spark_offset_log import last_planned_batch, planned_batch
from holdfast.spark.replay import read_decision
from holdfast.spark.starting import await_started

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

STOP_TIMEOUT_S: Final = 60.0
"""How long a query that is being stopped may take to finish the current batch."""
START_TIMEOUT_S: Final = 60.0
MAX_CONCURRENT_PARTITIONS: Final = 8
"""The number of partitions of a batch that are committed concurrently. Most of that time is spent waiting for the
device."""

logger = logging.getLogger("holdfast.spark")

Done = TypeVar("Done")


class PipelineQuery(ABC, Generic[Done]):
    """Reads the topics of `options`, and stores the result at `path`, which driver and executors share."""

    NAME: ClassVar[str]
    CONTENT_NAME: ClassVar[str]
    """What is stored there, for messages: "table", "state"."""
    CHECKPOINTS: ClassVar[str]
    DEFAULTS: ClassVar[Mapping[str, str]] = {"startingOffsets": "earliest", "newCheckpoint": "group"}
    """Source options that differ from the defaults of the source. A table or a state is expected to have all records of
    a topic, and knows which ones it has, whatever the checkpoint says."""

    def __init__(
        self,
        spark: SparkSession,
        path: str | os.PathLike[str],
        options: Mapping[str, Any],
        checkpoint: str | os.PathLike[str] | None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        """Without a `checkpoint`, a query with an instance id has one by that name, in the directory, or below the
        user's cache if `path` is in an object store. A query without an id starts at the offsets of its group. Raises
        ConfigError."""
        if type(spark).__module__.startswith("pyspark.sql.connect"):
            raise ConfigError(
                f"{self.NAME} runs on the driver: give it a session of classic Spark, not one of Spark Connect"
            )
        lowered = {name.lower() for name in options}
        defaults = {name: value for name, value in self.DEFAULTS.items() if name.lower() not in lowered}
        self._source_options = {**defaults, **{name: str(value) for name, value in options.items()}}
        self._options = stream_options(self._source_options)
        self._check()
        self._spark = spark
        self._location = Location.parse(path, self.CONTENT_NAME, storage_options)
        self._has_cached_checkpoint = False
        self._checkpoint, self._is_temporary = self._choose_checkpoint(checkpoint)
        self._in_batch = threading.Lock()
        self._stopping = False
        self._failure: Exception | None = None
        self._replayed_up_to = -1
        self._replay_directory: Path | None = None
        self.query: StreamingQuery | None = None
        """Spark's query, after the start."""

    # -- implemented by a pipeline -------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Checks the options before anything is started. Raises ConfigError."""

    def _prepare(self, rows: DataFrame) -> DataFrame:
        """Selects columns of the source's rows; called when the query is started."""
        return rows

    @abstractmethod
    def _process(self, rows: DataFrame, ranges: Sequence[OffsetRange]) -> Done:
        """Processes a batch. When it returns, all records of the ranges are stored; some may have been stored
        before."""

    @abstractmethod
    def _report_batch(self, number: int, done: Done, seconds: float) -> None:
        """Called when the batch is done."""

    # -- start and stop ------------------------------------------------------------------------------------------------

    def start(self, **trigger: Any) -> Self:
        """`trigger` are the arguments of Spark's `trigger`, e.g. availableNow=True. Without it, each batch starts when
        the previous one ends. Returns when the query is running, so that others can be started."""
        if self._has_cached_checkpoint:
            self._checkpoint = self._cached_checkpoint()
        if self._location.is_local:
            with io_errors(self._location):
                Disk().make_directory(self._location.path)
        rows = self._prepare(self._spark.readStream.format("holdfast").options(**self._options_of_run()).load())
        writer = rows.writeStream.foreachBatch(self._batch).option("checkpointLocation", f"file://{self._checkpoint}")
        self.query = (writer.trigger(**trigger) if trigger else writer).start()
        if not await_started(self.query, START_TIMEOUT_S):
            logger.warning("the query is not running after %s s; continuing", START_TIMEOUT_S)
        return self

    def wait(self, timeout_s: int | None = None) -> bool:
        """Waits for the end of the query; False after the timeout. Raises the error that it failed with."""
        from pyspark.errors import StreamingQueryException

        assert self.query is not None, "start it first"
        try:
            ended = self.query.awaitTermination(timeout_s)
        except StreamingQueryException as error:
            ended = True
            if not self._stopping:
                self._delete_temporary()
                raise self._failure or QueryFailed(spark_error_text(str(error))) from error
        if ended is not False:
            self._delete_temporary()
        return ended is not False

    def stop(self, patience_s: float = STOP_TIMEOUT_S) -> None:
        """The current batch is finished first, and no other is started."""
        self._stopping = True
        if self.query is not None:
            if self._in_batch.acquire(timeout=patience_s):
                self._in_batch.release()
            else:
                logger.warning("a batch has taken longer than %s s and is aborted; it will be repeated", patience_s)
            self.query.stop()
        self._delete_temporary()

    def _options_of_run(self) -> dict[str, str]:
        """With a directory for the source's decision, if Spark may repeat a batch of this checkpoint."""
        self._replayed_up_to = last_planned_batch(self._checkpoint)
        if self._replayed_up_to < 0:
            return self._source_options
        self._replay_directory = Path(tempfile.mkdtemp(prefix="holdfast-replay-"))
        return {**self._source_options, REPLAY_DIRECTORY: str(self._replay_directory)}

    # -- a batch -------------------------------------------------------------------------------------------------------

    def _batch(self, rows: DataFrame, number: int) -> None:
        with self._in_batch:
            if self._stopping:
                raise Stopped("the query is being stopped")  # returning would mean that the batch is done
            began = time.monotonic()
            try:
                with spark_errors():
                    done = self._process(rows, self._ranges(number))
            except Exception as error:
                self._failure = error
                raise
            self._report_batch(number, done, time.monotonic() - began)

    def _ranges(self, number: int) -> list[OffsetRange]:
        """The ranges that the batch has read. The source may have skipped part of a repeated batch: if another member
        committed records without storing them, that is a gap, and not a range without records."""
        batch = planned_batch(self._checkpoint, number)
        if number > self._replayed_up_to:
            return batch.offset_ranges
        assert self._replay_directory is not None, "made by start()"
        return read_decision(self._replay_directory, batch)

    # -- directories ---------------------------------------------------------------------------------------------------

    @property
    def _instance_id(self) -> str | None:
        instance_id = self._options.kafka.get("group.instance.id")
        return str(instance_id) if instance_id else None

    def _choose_checkpoint(self, given: str | os.PathLike[str] | None) -> tuple[Path, bool]:
        if given is not None:
            location = Location.parse(given, "checkpoint")
            if not location.is_local:
                raise ConfigError(f"the checkpoint {location} must be a directory: the driver reads its files")
            return location.path, False
        if self._instance_id is not None and self._location.is_local:
            return self._location.path / self.CHECKPOINTS / self._instance_id, False
        if self._instance_id is not None:
            self._has_cached_checkpoint = True
            return user_cache() / self.NAME / self._location.digest / self._instance_id, False
        return Path(tempfile.mkdtemp(prefix=f"holdfast-{self.NAME}-")), True

    def _cached_checkpoint(self) -> Path:
        """The checkpoint is on this machine, and its id in the object store. If the table is deleted, the id is deleted
        with it: the checkpoint of the old table would skip the records before its offsets."""
        name = f"{self.CHECKPOINTS}/{self._instance_id}"
        with io_errors(self._location):
            files = open_files(self._location)
            files.create(name, uuid.uuid4().hex.encode())  # has no effect if there is one
            checkpoint_id = (files.read(name) or b"").decode("ascii", "replace")
        if not checkpoint_id.isalnum():
            raise Damaged(f"{self._location}/{name} is not the id of a checkpoint; delete it")
        return user_cache() / self.NAME / self._location.digest / str(self._instance_id) / checkpoint_id

    def _new_writer_id(self) -> str:
        who = self._instance_id or self._options.kafka.get("client.id") or self.NAME
        return f"{who}-{uuid.uuid4().hex[:12]}"

    def _delete_temporary(self) -> None:
        """Deletes the files that exist only for this run of the query."""
        if self._is_temporary:
            shutil.rmtree(self._checkpoint, ignore_errors=True)
        if self._replay_directory is not None:
            shutil.rmtree(self._replay_directory, ignore_errors=True)


@contextlib.contextmanager
def io_errors(path: Path | Location) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unwritable.because(str(path), error) from error
