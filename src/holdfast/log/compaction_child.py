"""The process that reads keys and writes new segments: ``python -m holdfast.log.compaction_child``.

:mod:`holdfast.log.compaction_process` starts it for one or more passes and sends commands to its standard input. It
does not create, rename or remove files in the log's directory: it reads closed segments and writes into files that the
broker has created. Therefore, even if it outlives the broker, it cannot interfere with the directory's next owner.

It ends with the broker: by a signal of the kernel if the system supports it, otherwise when its input ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import sys
from pathlib import Path
from typing import BinaryIO, Final

from holdfast.log import swap
from holdfast.log.compaction import Compaction, Stopped
from holdfast.log.compaction_frames import Frame, FrameBuffer, unpack_batches
from holdfast.log.config import LogConfig
from holdfast.log.errors import CorruptLog
from holdfast.log.segment import Segment, log_path

_NICENESS: Final = 10
"""Clients of the broker have priority. The pass makes progress even with a tenth of a core."""
_INPUT: Final = 0
_READ_BYTES: Final = 64 * 1024
_PR_SET_PDEATHSIG: Final = 1


def _send(output: BinaryIO, frame: Frame) -> None:
    output.write(frame.encode())
    output.flush()


class _LogToBroker(logging.Handler):
    """Passes log records to the broker."""

    def __init__(self, output: BinaryIO) -> None:
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, object] = getattr(record, "fields", {})
        line = {"level": record.levelno, "logger": record.name, "event": record.getMessage(), "fields": fields}
        _send(self._output, Frame({"line": line}))


class _Input:
    """The broker's requests. The pipe closes when the broker ends."""

    def __init__(self) -> None:
        self._frames: list[Frame] = []
        self._buffer = FrameBuffer()
        self._poll = select.poll()
        # No event is requested, because `poll` always reports that the other end is closed.
        self._poll.register(_INPUT, 0)

    def next(self) -> Frame:
        while not self._frames:
            data = os.read(_INPUT, _READ_BYTES)
            if not data:
                raise Stopped
            self._frames += self._buffer.feed(data)
        return self._frames.pop(0)

    def has_ended(self) -> bool:
        return bool(self._poll.poll(0))


class _Job:
    """One pass, request by request."""

    def __init__(self, task: Frame, source: _Input) -> None:
        self._directory = Path(task.message["directory"])
        self._config = LogConfig(**task.message["config"])
        batches = unpack_batches(task.content)
        self._work = Compaction(self._config, task.message["now_ms"], batches, source.has_ended)
        self._segments = [self._found(base_offset, size) for base_offset, size in task.message["segments"]]

    def _found(self, base_offset: int, size: int) -> Segment:
        path = log_path(self._directory, base_offset)
        segment = Segment.found(path, base_offset, path.stat(), 0, self._config.index_interval_bytes)
        segment.size = size
        return segment

    def answer(self, frame: Frame) -> Frame:
        if "read_keys" in frame.message:
            return Frame({"end_offset": self._work.read_keys(self._segments, frame.message["read_keys"])})
        return self._rewrite(frame.message["rewrite"], frame.message["inode"])

    def _rewrite(self, base_offset: int, inode: int) -> Frame:
        segments = [one for one in self._work.covered(self._segments) if one.base_offset >= base_offset]
        interval_bytes = self._config.index_interval_bytes
        into = Segment(self._directory, base_offset, 0, interval_bytes, swap.CLEANED, inode)
        count, is_changed = self._work.rewrite(segments, into)
        offset_index, time_index = into.indexes.offset.content(), into.indexes.time.content()
        message = {
            "segment_count": count,
            "is_changed": is_changed,
            "size": into.size,
            "next_offset": into.next_offset,
            "offset_index_bytes": len(offset_index),
            "records_before": self._work.records_before,
            "records_after": self._work.records_after,
            "tombstones_dropped": self._work.tombstones_dropped,
        }
        return Frame(message, offset_index + time_index)


def _end_with(broker_pid: int) -> None:
    """Also during a long write or sync, when the input is not read."""
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes  # not available on every platform

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != broker_pid:
        # The broker ended before prctl was called, so there would be no signal.
        raise Stopped


def _error(error: Exception) -> Frame:
    """The error in a form from which the broker recreates it."""
    if isinstance(error, OSError):
        return Frame({"error": "disk", "errno": error.errno, "text": error.strerror or str(error)})
    if isinstance(error, CorruptLog):
        return Frame({"error": "corrupt", "text": str(error)})
    return Frame({"error": "other", "text": f"{type(error).__name__}: {error}"})


def _serve(output: BinaryIO) -> None:
    source = _Input()
    task = source.next()
    _end_with(task.message["broker_pid"])
    try:
        work = _Job(task, source)
        _send(output, Frame({"ready": True}))
        while True:
            frame = source.next()
            if "segments" in frame.message:
                work = _Job(frame, source)
                _send(output, Frame({"ready": True}))
            else:
                _send(output, work.answer(frame))
    except Stopped:
        raise
    except Exception as error:  # noqa: BLE001  every error is reported to the broker
        _send(output, _error(error))


def main() -> None:
    os.nice(_NICENESS)
    # The pipe is only for responses. Other output to stdout goes to stderr.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    logging.basicConfig(level=logging.INFO, handlers=[_LogToBroker(output)])
    with contextlib.suppress(Stopped, BrokenPipeError):
        _serve(output)


if __name__ == "__main__":
    main()
