"""The process that reads keys and writes new segments: ``python -m holdfast.log.compaction_child``.

It is started by :mod:`holdfast.log.compaction_process` for one pass, and does what it is told through its standard
input. In the log's directory it makes, renames and removes nothing: it reads closed segments, and writes into files
that the broker has made for it. So whatever becomes of it, and of the broker, no name there ever appears behind the
back of whoever has the directory.

It ends with the broker: by a signal of the kernel's where there is one, else when its input ends.
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
"""Whoever waits for an answer of the broker goes first; with a tenth of a core the pass still gets on."""
_INPUT: Final = 0
_READ_BYTES: Final = 64 * 1024
_PR_SET_PDEATHSIG: Final = 1


def _send(output: BinaryIO, frame: Frame) -> None:
    output.write(frame.encode())
    output.flush()


class _LinesToBroker(logging.Handler):
    """What is logged here is the broker's to log."""

    def __init__(self, output: BinaryIO) -> None:
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, object] = getattr(record, "fields", {})
        line = {"level": record.levelno, "logger": record.name, "event": record.getMessage(), "fields": fields}
        _send(self._output, Frame({"line": line}))


class _Input:
    """The broker's questions; its end is the broker's end."""

    def __init__(self) -> None:
        self._frames: list[Frame] = []
        self._buffer = FrameBuffer()
        self._poll = select.poll()
        # No event is asked for: that the other end is gone is always said.
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


class _Pass:
    """One pass, question by question."""

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
    """Also in the middle of a long write or sync, where nobody looks at the input."""
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes  # not everywhere is there one

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != broker_pid:
        # It ended before the kernel was asked; nobody would tell us any more.
        raise Stopped


def _error(error: Exception) -> Frame:
    """In words from which the broker makes the same error."""
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
        work = _Pass(task, source)
        _send(output, Frame({"ready": True}))
        while True:
            _send(output, work.answer(source.next()))
    except Stopped:
        raise
    except Exception as error:  # noqa: BLE001  whatever it is, the broker must hear of it
        _send(output, _error(error))


def main() -> None:
    os.nice(_NICENESS)
    # The answers keep the pipe for themselves; what anybody prints goes where errors go.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    logging.basicConfig(level=logging.INFO, handlers=[_LinesToBroker(output)])
    with contextlib.suppress(Stopped, BrokenPipeError):
        _serve(output)


if __name__ == "__main__":
    main()
