"""What Spark's micro-batch engine does to a stream reader, without a JVM.

The reader lives in a process of its own, in which PySpark's own runner serves it: calls and answers travel over a
socket in Spark's protocol, and `kill -9` is one. The engine keeps the two logs of a checkpoint, asks in Spark's order,
reads what it is asked to with librdkafka, and writes the rows down with the number of their batch. It can be killed at
every point of a batch and begun again from its checkpoint with another reader.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import pickle
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self, cast

import confluent_kafka
from pyspark.serializers import SpecialLengths
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming import python_streaming_source_runner as runner
from pyspark.sql.types import BinaryType, StructField, StructType

from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.planning import OffsetRanges
from pyspark_holdfast import DefaultSource
from tests.support.forks import FORKS

ANSWER_S: Final = 120.0
READ_S: Final = 60.0
END_S: Final = 30.0
RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
_ALL: Final = json.dumps({"_type": "ReadAllAvailable"})

Offsets = dict[str, Any]


class QueryFailed(Exception):
    """What Spark would show the user."""


class Killed(Exception):
    """The engine was killed, as it was asked to be."""


class Point(Enum):
    """Where an engine can be killed."""

    BEFORE_OFFSETS = "before the offsets are written"
    AFTER_OFFSETS = "after the offsets are written"
    PLANNED = "before the first task"
    READ = "after the tasks, before the sink"
    WRITTEN = "after the sink, before the commit log"
    COMMITTED = "after the commit log"


@dataclass(frozen=True)
class Row:
    topic: str
    partition: int
    offset: int
    value: bytes


@dataclass(frozen=True)
class Batch:
    number: int
    start: Offsets
    end: Offsets
    ranges: tuple[OffsetRange, ...]
    rows: tuple[Row, ...]
    tasks: int
    asked_at: float
    """Before the reader was asked for it."""

    @property
    def read(self) -> dict[int, tuple[int, int]]:
        """From where to where, by partition; for tests with one topic."""
        found: dict[int, tuple[int, int]] = {}
        for one in self.ranges:
            start, end = found.get(one.partition, (one.start, one.end))
            found[one.partition] = min(start, one.start), max(end, one.end)
        return found


@dataclass
class Checkpoint:
    """Outlives the engine: what Spark has in its directory, and the sink."""

    offsets: list[str] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    written: list[Batch] = field(default_factory=list)
    """Every batch that was written to the sink, also those that were written again."""

    @property
    def rows(self) -> list[Row]:
        return [row for batch in self.written for row in batch.rows]


# -- the reader's process ----------------------------------------------------------------------------------------------


def _serve(connection: socket.socket, log: Path) -> None:
    """The whole life of the process. PySpark's runner is what it would be under Spark; and takes itself for that."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGQUIT})  # as in a child of a JVM
    logging.basicConfig(filename=log, format="%(asctime)s %(levelname)s %(name)s %(message)s", force=True)
    sys.modules["__main__"].__spec__ = importlib.util.find_spec(RUNNER)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    stream = cast("IO[bytes]", connection.makefile("rwb"))
    runner.main(stream, stream)


class ReaderProcess:
    """One reader and the calls that Spark makes. Everything that passes is JSON, as text."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="spark-reader-", ignore_cleanup_errors=True)
        self.log = Path(self._directory.name) / "reader.log"
        self.log.touch()
        ours, theirs = socket.socketpair()
        self._process = FORKS.Process(target=_serve, args=(theirs, self.log), daemon=True)
        self._process.start()
        theirs.close()
        ours.settimeout(ANSWER_S)
        self._socket = ours
        self._stream = cast("IO[bytes]", ours.makefile("rwb"))
        self._introduce(DefaultSource(CaseInsensitiveDict(dict(options))))

    def _introduce(self, source: DefaultSource) -> None:
        version = "{}.{}".format(*sys.version_info[:2])
        self._write(version.encode())
        self._write(self._directory.name.encode())
        self._write_int(0)
        self._write(pickle.dumps(source))
        self._write(StructType([StructField("value", BinaryType())]).json().encode())
        self._write_int(10_000)
        self._answer()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def log_text(self) -> str:
        return self.log.read_text()

    def features(self) -> int:
        return self._call(runner.CHECK_SUPPORTED_FEATURES_ID)

    def prepare_for_available_now(self) -> None:
        self._call(runner.PREPARE_FOR_TRIGGER_AVAILABLE_NOW_FUNC_ID)

    def default_read_limit(self) -> str:
        return self._text(runner.GET_DEFAULT_READ_LIMIT_FUNC_ID)

    def initial_offset(self) -> str:
        return self._text(runner.INITIAL_OFFSET_FUNC_ID)

    def latest_offset(self, start: str, limit: str = _ALL) -> str:
        return self._text(runner.LATEST_OFFSET_ADMISSION_CONTROL_FUNC_ID, start, limit)

    def report_latest_offset(self) -> str:
        return self._text(runner.REPORT_LATEST_OFFSET_FUNC_ID)

    def partitions(self, start: str, end: str) -> list[OffsetRanges]:
        count = self._call(runner.PARTITIONS_FUNC_ID, start, end)
        found: list[OffsetRanges] = [pickle.loads(self._read()) for _ in range(count)]
        assert self._answer() == runner.PREFETCHED_RECORDS_NOT_FOUND
        return found

    def commit(self, end: str) -> None:
        self._call(runner.COMMIT_FUNC_ID, end)

    def kill(self) -> None:
        """As `kill -9` does."""
        self._process.kill()
        self._process.join(END_S)
        self._disconnect()

    def kill_only(self) -> None:
        """The same, by another thread than the one that calls the reader: that one will see it."""
        os.kill(self.pid, signal.SIGKILL)

    def terminate(self) -> int | None:
        """As Spark does when a query is stopped. Returns the exit code."""
        self._process.terminate()
        self._process.join(END_S)
        self._disconnect()
        return self._process.exitcode

    def disconnect(self) -> int | None:
        """As the end of Spark's own process is seen."""
        self._disconnect()
        self._process.join(END_S)
        return self._process.exitcode

    def suspend(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def clean(self) -> None:
        if self.is_alive:
            self.kill()
        self._disconnect()
        self._directory.cleanup()

    def _disconnect(self) -> None:
        for one in (self._stream, self._socket):
            try:
                one.close()
            except OSError:  # what was still to be sent to a process that is gone
                continue

    def _text(self, function: int, *arguments: str) -> str:
        length = self._call(function, *arguments)
        return self._stream.read(length).decode()

    def _call(self, function: int, *arguments: str) -> int:
        try:
            self._write_int(function)
            for one in arguments:
                self._write(one.encode())
            return self._answer()
        except (OSError, EOFError) as error:
            raise QueryFailed(f"the reader is gone: {error!r}; {self.log_text()[-2000:]}") from error

    def _answer(self) -> int:
        self._stream.flush()
        answer = self._read_int()
        if answer == SpecialLengths.PYTHON_EXCEPTION_THROWN:
            raise QueryFailed(self._read().decode())
        return answer

    # -- Spark's framing -----------------------------------------------------------------------------------------------

    def _write_int(self, number: int) -> None:
        self._stream.write(struct.pack(">i", number))

    def _write(self, content: bytes) -> None:
        self._write_int(len(content))
        self._stream.write(content)

    def _read_int(self) -> int:
        read = self._stream.read(4)
        if len(read) < 4:
            raise EOFError("the other side has hung up")
        (number,) = struct.unpack(">i", read)
        return int(number)

    def _read(self) -> bytes:
        return self._stream.read(self._read_int())


# -- the executors -----------------------------------------------------------------------------------------------------


class Executor:
    """Reads ranges. Not by our own code: a second opinion about which records a range has."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "executors-have-none",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
                "reconnect.backoff.max.ms": 300,
                "log_level": 0,
            }
        )

    def read(self, ranges: Sequence[OffsetRange]) -> list[Row]:
        ends = {one.where: one.end for one in ranges}
        self._consumer.assign([confluent_kafka.TopicPartition(one.topic, one.partition, one.start) for one in ranges])
        rows: list[Row] = []
        unread = set(ends)
        deadline = time.monotonic() + READ_S
        while unread:
            if time.monotonic() > deadline:
                raise QueryFailed(f"the executors did not get {sorted(unread)} to the end of {ranges}")
            for message in self._consumer.consume(1000, 0.1):
                if message.error() is not None:
                    continue
                topic, partition, offset = message.topic(), message.partition(), message.offset()
                assert topic is not None and partition is not None and offset is not None
                if offset < ends[topic, partition]:
                    rows.append(Row(topic, partition, offset, message.value() or b""))
                if offset >= ends[topic, partition] - 1:
                    unread.discard((topic, partition))
        return sorted(rows, key=lambda row: (row.topic, row.partition, row.offset))

    def close(self) -> None:
        self._consumer.close()


# -- the engine --------------------------------------------------------------------------------------------------------


class Engine:
    """One run of a streaming query; a context manager. A later run gets the same checkpoint."""

    def __init__(
        self,
        options: Mapping[str, str],
        checkpoint: Checkpoint | None = None,
        *,
        available_now: bool = False,
    ) -> None:
        self.options = {name: str(value) for name, value in options.items()}
        self.checkpoint = Checkpoint() if checkpoint is None else checkpoint
        self.reader = ReaderProcess(self.options)
        self.at_point: Callable[[Point], None] = lambda _point: None
        """Called at each point of a batch."""
        self._asked_at = 0.0
        self._available_now = available_now
        self._executor: Executor | None = None
        self._limit: str | None = None
        self._initial: str | None = None

    # -- what a user does ----------------------------------------------------------------------------------------------

    def trigger(self, kill_at: Point | None = None) -> Batch | None:
        """The batch that was run; None if there was nothing to do. The first after a restart finishes what was
        begun."""
        self._asked_at = time.monotonic()
        if self._limit is None:
            self._begin()
        log, committed = self.checkpoint.offsets, self.checkpoint.committed
        number = len(log) - 1
        if log and number not in committed:
            return self._run(number, kill_at)
        start = log[-1] if log else self._initial_offset()
        assert self._limit is not None
        end = self.reader.latest_offset(start, self._limit)
        self.reader.report_latest_offset()
        if log and end == start:
            return None
        self._reached(Point.BEFORE_OFFSETS, kill_at)
        log.append(end)
        self._reached(Point.AFTER_OFFSETS, kill_at)
        if len(log) > 1:
            self.reader.commit(log[-2])
        return self._run(len(log) - 1, kill_at)

    def run_until_idle(self) -> list[Batch]:
        """Trigger.AvailableNow, if it was asked for: until there is nothing to do."""
        done: list[Batch] = []
        while (batch := self.trigger()) is not None:
            done.append(batch)
        return done

    def stop(self) -> int | None:
        return self.reader.terminate()

    def kill(self) -> None:
        self.reader.kill()

    def close(self) -> None:
        self.reader.clean()
        if self._executor is not None:
            self._executor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- what Spark does -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        assert self.reader.features() == runner.SUPPORTS_ADMISSION_CONTROL | runner.SUPPORTS_TRIGGER_AVAILABLE_NOW
        if self._available_now:
            self.reader.prepare_for_available_now()
        self._limit = self.reader.default_read_limit()

    def _initial_offset(self) -> str:
        if self._initial is None:
            self._initial = self.reader.initial_offset()
        return self._initial

    def _run(self, number: int, kill_at: Point | None) -> Batch:
        log = self.checkpoint.offsets
        start, end = log[number - 1] if number else self._initial_offset(), log[number]
        partitions = self.reader.partitions(start, end)
        self._reached(Point.PLANNED, kill_at)
        rows = self._execute(partitions)
        self._reached(Point.READ, kill_at)
        ranges = tuple(one for partition in partitions for one in partition.ranges)
        batch = Batch(number, json.loads(start), json.loads(end), ranges, tuple(rows), len(partitions), self._asked_at)
        self.checkpoint.written.append(batch)
        self._reached(Point.WRITTEN, kill_at)
        self.checkpoint.committed.append(number)
        self._reached(Point.COMMITTED, kill_at)
        return batch

    def _execute(self, partitions: Sequence[OffsetRanges]) -> list[Row]:
        shipped: list[OffsetRanges] = pickle.loads(pickle.dumps(partitions))
        if not shipped:
            return []
        if self._executor is None:
            self._executor = Executor(self.options["kafka.bootstrap.servers"])
        rows: list[Row] = []
        whole: list[OffsetRange] = []
        for task in shipped:
            # A partition that is cut into several tasks is read task by task; all others at once.
            if {one.where for one in task.ranges}.isdisjoint(one.where for one in whole):
                whole += task.ranges
            else:
                rows += self._executor.read(whole)
                whole = list(task.ranges)
        return rows + self._executor.read(whole)

    def _reached(self, point: Point, kill_at: Point | None) -> None:
        self.at_point(point)
        if point is kill_at:
            self.kill()
            raise Killed
