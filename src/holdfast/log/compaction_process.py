"""Compaction outside the broker's interpreter, which runs one thread at a time.

A pass over much data keeps the interpreter busy, and the event loop would have to wait for a thread of the broker. A
separate process (:mod:`holdfast.log.compaction_child`) therefore does the expensive part of such a pass, reading keys
and writing new segments, with the same :class:`Compaction`. The broker makes all changes to the log: it creates new
files, replaces segments, and records how far the log is compacted. Passes that follow each other share a process.

A crash leaves the same file as a pass in the broker: `N.log.cleaned`, which is ignored.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, NamedTuple, Self

from holdfast.log.compaction import Compaction, ProducerBatch, Rewritten, Stopped
from holdfast.log.compaction_frames import Frame, FrameBuffer, pack_batches
from holdfast.log.config import LogConfig
from holdfast.log.errors import CompactionFailed, CorruptLog
from holdfast.log.index import SegmentIndexes
from holdfast.log.segment import Segment

_logger = logging.getLogger(__name__)

WORTH_A_PROCESS_BYTES: Final = 4 * 1024 * 1024
"""Starting a process takes 0.1 s of CPU time, as much as compacting two megabytes of small records here, or twelve
megabytes of large ones. Passes over smaller logs count together: the partitions of `__consumer_offsets` are many and
become dirty at the same time."""
MAX_FAILURES: Final = 3
"""After this many unexpected exits in a row, passes over that log are done in the broker."""
_CHILD: Final = "holdfast.log.compaction_child"
_START_SECONDS: Final = 30.0
_LOOK_MS: Final = 50
"""How often to check whether the pass must be aborted."""
_READ_BYTES: Final = 64 * 1024


class CannotStart(Exception):
    """No process could be started, so the pass must be done in the broker."""


class CompactionJob(NamedTuple):
    """The parameters of a pass; see :class:`Compaction`."""

    directory: Path
    segments: Sequence[Segment]
    config: LogConfig
    now_ms: int
    last_batches: Collection[ProducerBatch]
    stop: Callable[[], bool]
    sweep: CompactionSweep


class CompactionSweep:
    """Passes over several logs, one after the other. When they are worth a process, the others of the sweep use it."""

    def __init__(self) -> None:
        self._bytes = 0
        self._pipes: _Pipes | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end_process()

    def is_worth_a_process(self, size: int) -> bool:
        """Whether the next pass, over so many bytes, should run in a process."""
        self._bytes += size
        return self._pipes is not None or self._bytes >= WORTH_A_PROCESS_BYTES

    def process(self) -> _Pipes:
        if self._pipes is None:
            self._pipes = _Pipes()
        return self._pipes

    def end_process(self) -> None:
        if self._pipes is not None:
            self._pipes.end()
            self._pipes = None


class CompactionRunner:
    """Decides where the passes over one log run."""

    __slots__ = ("_failures",)

    def __init__(self) -> None:
        self._failures = 0

    @contextlib.contextmanager
    def run(self, what: CompactionJob) -> Iterator[Compaction | CompactionProcess]:
        process = self._process(what)
        if process is None:
            yield Compaction(what.config, what.now_ms, what.last_batches, what.stop)
            return
        try:
            with process:
                yield process
        except CompactionFailed as failure:
            # A pass that has ended a process, perhaps for lack of memory, must not run in the broker.
            self._failures += failure.retry_in_thread
            raise
        self._failures = 0

    def _process(self, what: CompactionJob) -> CompactionProcess | None:
        if not what.sweep.is_worth_a_process(sum(segment.size for segment in what.segments)):
            return None
        try:
            if self._failures >= MAX_FAILURES:
                raise CannotStart(f"its process failed {self._failures} times in a row")
            return CompactionProcess(what)
        except CannotStart as error:
            fields = {"log": str(what.directory), "reason": str(error)}
            _logger.warning("compacted by the broker itself, slowing it down", extra={"fields": fields})
            return None


class CompactionProcess:
    """A :class:`Compaction` in a separate process. If the `with` block fails, the process ends."""

    def __init__(self, what: CompactionJob) -> None:
        self._sweep = what.sweep
        self._directory = what.directory
        self._stop = what.stop
        self._end_offset = 0
        self.records_before = 0
        self.records_after = 0
        self.tombstones_dropped = 0
        task = {
            "broker_pid": os.getpid(),
            "directory": str(what.directory),
            "config": dataclasses.asdict(what.config),
            "now_ms": what.now_ms,
            "segments": [(segment.base_offset, segment.size) for segment in what.segments],
        }
        self._pipes = what.sweep.process()
        try:
            self._ask(Frame(task, pack_batches(what.last_batches)), time.monotonic() + _START_SECONDS)
        except BaseException as error:
            self._sweep.end_process()
            if isinstance(error, CompactionFailed) and error.retry_in_thread:
                raise CannotStart(error.reason) from error
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._sweep.end_process()

    def read_keys(self, segments: Sequence[Segment], first_dirty_offset: int) -> int:  # noqa: ARG002  it knows them
        self._end_offset = self._ask(Frame({"read_keys": first_dirty_offset})).message["end_offset"]
        return self._end_offset

    def covered(self, segments: Sequence[Segment]) -> list[Segment]:
        return [segment for segment in segments if segment.base_offset < self._end_offset]

    def rewrite(self, segments: Sequence[Segment], into: Segment) -> Rewritten:
        inode = os.fstat(into.file.opened().fd).st_ino
        message, content = self._ask(Frame({"rewrite": segments[0].base_offset, "inode": inode}))
        indexes_at = message["offset_index_bytes"]
        indexes = SegmentIndexes.of_contents(into.path, into.base_offset, content[:indexes_at], content[indexes_at:])
        into.take_over(message["size"], message["next_offset"], indexes)
        self.records_before = message["records_before"]
        self.records_after = message["records_after"]
        self.tombstones_dropped = message["tombstones_dropped"]
        return Rewritten(message["segment_count"], message["is_changed"])

    def _ask(self, question: Frame, deadline: float | None = None) -> Frame:
        unsent = memoryview(question.encode())
        while True:
            if self._stop():
                raise Stopped
            if deadline is not None and time.monotonic() > deadline:
                silent = f"its process said nothing for {_START_SECONDS:g} s"
                raise CompactionFailed(self._directory, silent, is_worth_a_thread=True)
            try:
                unsent, received = self._pipes.exchange(unsent)
            except EOFError:
                raise self._ended() from None
            except ValueError as error:
                raise CompactionFailed(self._directory, str(error), is_worth_a_thread=True) from error
            for frame in received:
                if "line" in frame.message:
                    _log(**frame.message["line"])
                elif "error" in frame.message:
                    raise self._error(frame.message)
                else:
                    return frame

    def _error(self, message: dict[str, Any]) -> Exception:  # Any: as in `Frame`
        if message["error"] == "disk":
            return OSError(message["errno"], message["text"])
        if message["error"] == "corrupt":
            return CorruptLog(message["text"])
        return CompactionFailed(self._directory, message["text"])

    def _ended(self) -> Exception:
        exit_code, last_words = self._pipes.end()
        if exit_code == -signal.SIGTERM:
            # Usually a service manager that also stops the broker.
            _logger.info("compaction of %s given up: its process was terminated", self._directory)
            return Stopped()
        if exit_code < 0:
            return CompactionFailed(self._directory, f"its process was ended by {_signal_name(-exit_code)}")
        said = f": {last_words}" if last_words else ""
        ended = f"its process ended with exit code {exit_code}{said}"
        return CompactionFailed(self._directory, ended, is_worth_a_thread=True)


class _Pipes:
    """The process and its three pipes. No call blocks for longer than one poll interval."""

    def __init__(self) -> None:
        self._errors, errors = os.pipe()
        # So that a process with endless error output is never blocked by a full pipe.
        os.set_blocking(errors, False)
        os.set_blocking(self._errors, False)
        try:
            self._process = _started(errors)
        except BaseException:
            os.close(self._errors)
            raise
        finally:
            os.close(errors)
        self._input, self._output = _pipe(self._process.stdin), _pipe(self._process.stdout)
        self._buffer = FrameBuffer()
        self._end: tuple[int, str] | None = None

    def exchange(self, unsent: memoryview) -> tuple[memoryview, list[Frame]]:
        """Send and receive as much as possible now; EOFError if the process has ended."""
        ready = select.poll()
        ready.register(self._output, select.POLLIN)
        if unsent:
            ready.register(self._input, select.POLLOUT)
        received: list[Frame] = []
        for fd, _ in ready.poll(_LOOK_MS):
            if fd == self._output.fileno():
                data = os.read(fd, _READ_BYTES)
                if not data:
                    raise EOFError
                received += self._buffer.feed(data)
            else:
                unsent = _sent(fd, unsent)
        return unsent, received

    def end(self) -> tuple[int, str]:
        """Ends the process. Returns its exit code and the last line of its output."""
        if self._end is None:
            # The process leaves nothing that needs a cleanup.
            if self._process.poll() is None:
                self._process.kill()
            exit_code = self._process.wait()
            self._end = exit_code, _last_line(self._errors)
            for pipe in (self._input, self._output):
                pipe.close()
            os.close(self._errors)
        return self._end


def _started(errors: int) -> subprocess.Popen[bytes]:
    """The same Python with the same modules as this one. The current directory adds none to them (-P)."""
    if not sys.executable:
        raise CannotStart("this Python does not know by which program it runs")
    try:
        return subprocess.Popen(  # noqa: S603  our own program, without a shell
            [sys.executable, "-P", "-m", _CHILD],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,
            # Ctrl-C in a terminal is for the broker, which then ends it. Not a session: Linux may divide the
            # CPU equally between sessions, and a lower priority would have no effect.
            process_group=0,
        )
    except OSError as error:
        raise CannotStart(error.strerror or str(error)) from error


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None, "the process was started with pipes"
    os.set_blocking(pipe.fileno(), False)
    return pipe


def _sent(fd: int, unsent: memoryview) -> memoryview:
    try:
        return unsent[os.write(fd, unsent) :]
    except BlockingIOError:
        return unsent
    except BrokenPipeError:
        # The other pipe also reports the end of the process, after any remaining output.
        return unsent[:0]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_line(errors: int) -> str:
    try:
        lines = os.read(errors, _READ_BYTES).decode(errors="replace").split("\n")
    except BlockingIOError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _log(level: int, logger: str, event: str, fields: dict[str, object]) -> None:
    logging.getLogger(logger).log(level, "%s", event, extra={"fields": fields})
