"""Flushing a log to disk: after appends, after a roll, and when it is closed.

After a roll, the old segment's indexes and the producers' snapshot must be written and synced. The next flush does that
in a worker thread. After a crash, opening the log does it instead.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from holdfast.log import checkpoint, disk
from holdfast.log.errors import StorageError
from holdfast.log.recovery import snapshot_path
from holdfast.log.segment import Segment
from holdfast.log.segmented_log import Rolled, SegmentedLog


class LogFlusher:
    """Flushes one log, one flush at a time."""

    __slots__ = ("_flushing",)

    def __init__(self) -> None:
        self._flushing = threading.Lock()

    def flush(self, log: SegmentedLog) -> int:
        """Make everything appended so far durable; returns the end offset this covers."""
        if not log.is_loaded:
            return log.end_offset
        with self._flushing:
            log.check_synced()
            with log.lock:
                rolled, active, end_offset = list(log.rolled), log.segments[-1], log.end_offset
                epochs = log.epochs.entries if log.epochs.is_dirty else None
                log.epochs.is_dirty = False
            if end_offset == log.recovery_point and not rolled and epochs is None:
                return end_offset
            try:
                _make_durable(log, rolled, active, epochs)
            except OSError as error:
                log.epochs.is_dirty = log.epochs.is_dirty or epochs is not None
                raise StorageError("flush", log.directory, error) from error
            with log.lock:
                log.rolled = [entry for entry in log.rolled if entry not in rolled]
            log.recovery_point = end_offset
            return end_offset

    def close(self, log: SegmentedLog, clean: bool) -> None:
        """Flush everything, including indexes and producers. If `clean` is false, only release the files."""
        if log.close_unloaded():
            return
        if clean:
            try:
                # After a clean close, the log is trusted up to its last byte, and the next append would follow the rest
                # of a failed write.
                log.cut_torn_tail()
                self.flush(log)
                log.segments[-1].finish()
                # Neither this nor the snapshot is synced, because both are checked against the log when they are read.
                for segment in log.segments:
                    segment.write_indexes(sync=False)
                _write_snapshot(log)
            except OSError as error:
                raise StorageError("close", log.directory, error) from error
        with self._flushing:
            # The directory may be deleted next, and a flush in progress would write into the directory of another log.
            log.segments = ()


def _make_durable(
    log: SegmentedLog, rolled: Sequence[Rolled], active: Segment, epochs: Sequence[tuple[int, int]] | None
) -> None:
    for segment, producers in rolled:
        _sync(log, segment)
        segment.write_indexes()
        disk.replace_file(snapshot_path(log.directory, segment.next_offset), producers)
    _sync(log, active)
    if epochs is not None:
        checkpoint.write_epochs(log.directory / checkpoint.LEADER_EPOCHS, epochs)
    if rolled or log.recovery_point <= active.base_offset:
        # The names of the new files, and with the first of them that of the directory.
        disk.sync_directory(log.directory)
        if not log.recovery_point:
            disk.sync_directory(log.directory.parent)


def _sync(log: SegmentedLog, segment: Segment) -> None:
    try:
        segment.sync()
    except FileNotFoundError:
        if segment in log.segments:
            raise
        # Retention has removed it meanwhile.
    except OSError as error:
        log.failed_sync = error
        raise


def _write_snapshot(log: SegmentedLog) -> None:
    path, content = snapshot_path(log.directory, log.end_offset), log.producers.to_snapshot()
    is_empty = log.end_offset == log.segments[0].base_offset and not log.producers
    if not is_empty and not (path.exists() and path.read_bytes() == content):
        disk.replace_file(path, content, sync=False)
