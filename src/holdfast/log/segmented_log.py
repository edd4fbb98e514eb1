"""The segments of a partition and their state in memory: loading, rolling, replacing.

Threads: the lock guards the list of segments, the producers and the offsets. It is held for a write to the page cache
at most, never for a sync. Readers take no lock, because the list is replaced, not changed, and a segment's size grows
only after its bytes are written.

After a clean close a log need not be loaded. The checkpoints contain its start and end, and its directory is read when
the log is first read, written or cleaned. Startup therefore does not read thousands of unused directories, and shutdown
has nothing to write for them.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from holdfast.log.config import LogConfig
from holdfast.log.errors import StorageError
from holdfast.log.leader_epochs import LeaderEpochs
from holdfast.log.partition_metadata import write_topic_id
from holdfast.log.producer_state import ProducerState
from holdfast.log.recovery import Recovered, recover
from holdfast.log.segment import Segment

_logger = logging.getLogger(__name__)

_CONTENTS: Final = ("segments", "producers", "epochs")
"""The attributes that a log lacks until it is loaded."""


class Rolled(NamedTuple):
    """A full segment that is not yet durable, with the producers at its end."""

    segment: Segment
    producers: bytes


class SegmentedLog:
    """The state that appending, reading, flushing and cleaning work on."""

    segments: tuple[Segment, ...]
    producers: ProducerState
    epochs: LeaderEpochs

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        start_offset: int,
        end_offset: int,
        first_dirty_offset: int,
        now_ms: int,
    ) -> None:
        """Use :meth:`open` or :meth:`unloaded`."""
        self.directory = directory
        self.config = config
        self.start_offset = start_offset
        self.end_offset = end_offset
        # Everything below is on disk, including indexes and snapshots.
        self.recovery_point = end_offset
        # Below it, each key occurs at most once. A checkpoint past the end belongs to another log.
        self.first_dirty_offset = first_dirty_offset if first_dirty_offset <= end_offset else 0
        self.lock = threading.Lock()
        self.rolled: list[Rolled] = []
        self.has_torn_tail = False
        self.failed_sync: OSError | None = None
        self._opened_ms = now_ms
        self._new_topic_id: uuid.UUID | None = None
        self._loading = threading.Lock()

    @classmethod
    def open(
        cls,
        directory: Path,
        config: LogConfig,
        *,
        now_ms: int,
        clean: bool,
        recovery_point: int,
        log_start_offset: int = 0,
        first_dirty_offset: int = 0,
    ) -> Self:
        """Open a partition's directory, or create it. `clean`: it was closed cleanly."""
        try:
            recovered = recover(
                directory,
                config,
                now_ms=now_ms,
                clean=clean,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                may_have_gaps=config.compacts or first_dirty_offset > 0,
            )
        except OSError as error:
            raise StorageError("open", directory, error) from error
        end_offset = recovered.segments[-1].next_offset
        log = cls(directory, config, recovered.start_offset, end_offset, first_dirty_offset, now_ms)
        if not clean:
            log.recovery_point = min(recovery_point, end_offset)
        log._set_contents(recovered)
        return log

    @classmethod
    def unloaded(
        cls,
        directory: Path,
        config: LogConfig,
        *,
        now_ms: int,
        start_offset: int,
        end_offset: int,
        first_dirty_offset: int = 0,
        topic_id: uuid.UUID | None = None,
    ) -> Self:
        """A log that was closed cleanly, with known start and end.

        A new log has a `topic_id`, and its directory is created when it is loaded.
        """
        log = cls(directory, config, start_offset, end_offset, first_dirty_offset, now_ms)
        log._new_topic_id = topic_id
        return log

    # Loading

    @property
    def is_loaded(self) -> bool:
        """Whether its directory has been read."""
        return "segments" in self.__dict__

    def __getattr__(self, name: str) -> Any:  # Any: the annotations of the class say the types
        """Loads the log when its contents are first used. Not called for a loaded log."""
        if name not in _CONTENTS:
            raise AttributeError(name)
        with self._loading:
            if not self.is_loaded:
                self._load()
        return self.__dict__[name]

    def load(self) -> None:
        """Read the directory now, in a worker thread, so that the first reader or writer need not."""
        _ = self.segments

    def _load(self) -> None:
        try:
            recovered = recover(
                self.directory,
                self.config,
                now_ms=self._opened_ms,
                clean=True,
                recovery_point=self.end_offset,
                log_start_offset=self.start_offset,
                may_have_gaps=self.may_have_gaps,
            )
            if self._new_topic_id is not None:
                write_topic_id(self.directory, self._new_topic_id)
        except OSError as error:
            raise StorageError("open", self.directory, error) from error
        found = recovered.start_offset, recovered.segments[-1].next_offset
        if found != (self.start_offset, self.end_offset):
            promised = self.start_offset, self.end_offset
            _logger.error("%s: holds offsets %s, not %s as when it was closed", self.directory, found, promised)
            self.start_offset, self.end_offset = found
            self.recovery_point = self.end_offset
        self._set_contents(recovered)

    def _set_contents(self, recovered: Recovered) -> None:
        self.producers = recovered.producers
        self.epochs = recovered.epochs
        # Last, because from then on the log counts as loaded.
        self.segments = tuple(recovered.segments)

    def close_unloaded(self) -> bool:
        """Close a log that was never loaded. Returns False if it is loaded."""
        with self._loading:
            if self.is_loaded:
                return False
            self.producers, self.epochs, self.segments = ProducerState(), LeaderEpochs(), ()
            return True

    @property
    def may_have_gaps(self) -> bool:
        """Only compaction leaves offsets out."""
        return self.config.compacts or self.first_dirty_offset > 0

    # Changing the list of segments. The lock is held.

    def roll(self, now_ms: int) -> Segment:
        """Start a new segment at the end."""
        full = self.segments[-1]
        try:
            full.load_indexes()
            self.cut_torn_tail()
            segment = Segment(self.directory, self.end_offset, now_ms, self.config.index_interval_bytes)
        except OSError as error:
            raise StorageError("start a segment in", self.directory, error) from error
        full.finish()
        self.rolled.append(Rolled(full, self.producers.to_snapshot()))
        self.segments = (*self.segments, segment)
        return segment

    def cut_torn_tail(self) -> None:
        """Remove bytes that a failed write left after the end, if that was not possible at once."""
        if self.has_torn_tail:
            self.segments[-1].cut_back()
            self.has_torn_tail = False

    def drop_first(self, count: int) -> None:
        """Remove the first segments from the log."""
        dropped = {segment.base_offset for segment in self.segments[:count]}
        self.segments = self.segments[count:]
        self.advance_start(self.segments[0].base_offset)
        self.rolled = [rolled for rolled in self.rolled if rolled.segment.base_offset not in dropped]

    def advance_start(self, offset: int) -> None:
        """The log starts at `offset`, unless it already starts later."""
        self.start_offset = max(self.start_offset, offset)
        self.epochs.cut(self.start_offset, self.end_offset)

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Replace several consecutive segments with one, if they are still in the list."""
        if old[0] in self.segments:
            at = self.segments.index(old[0])
            self.segments = (*self.segments[:at], new, *self.segments[at + len(old) :])

    # Failed syncs

    def check_synced(self) -> None:
        """Reject all operations after a failed sync."""
        # Linux drops pages that it could not write, and the next sync succeeds. Only opening the log again shows what
        # is on disk.
        if self.failed_sync is not None:
            raise StorageError("use, since a sync failed,", self.directory, self.failed_sync)
