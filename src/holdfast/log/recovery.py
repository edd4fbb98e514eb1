"""Opens a partition's directory. After a clean close its files are trusted; after a crash they are checked.

A crash can leave:

- a torn batch at the end of the last segment, which is truncated;
- missing or incomplete indexes, snapshots and checkpoints, which are rebuilt from the log or ignored;
- files of a segment that was being deleted, which are removed;
- an unfinished compaction, which is undone, or finished if its swap file exists (:mod:`holdfast.log.swap`).

Everything below the recovery point is trusted, because it was flushed and indexed before the point was advanced. A
crash never leaves a gap in the middle of the log. If the disk lost data there, the segments after the gap are renamed,
not deleted.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from holdfast.log import checkpoint, disk, swap
from holdfast.log.config import LogConfig
from holdfast.log.leader_epochs import LeaderEpochs
from holdfast.log.producer_state import CorruptSnapshot, ProducerState
from holdfast.log.segment import Segment
from holdfast.wire.batch import BatchHeader

_logger = logging.getLogger(__name__)

_INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
# A log that ends in .swap is not a leftover. Swaps are finished before leftovers are removed.
_SWEPT_SUFFIXES = (".tmp", ".deleted", swap.CLEANED, swap.SWAP)
_SET_ASIDE = ".corrupt"


class Recovered(NamedTuple):
    segments: list[Segment]
    start_offset: int
    producers: ProducerState
    epochs: LeaderEpochs


def recover(
    directory: Path,
    config: LogConfig,
    *,
    now_ms: int,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
    may_have_gaps: bool = True,
) -> Recovered:
    """Open all segments in `directory`. Appends go to the last one."""
    names = _names(directory)
    if any(name.endswith(swap.SWAP) for name in names):
        swap.finish_interrupted(directory)
        names = _names(directory)
    found = _sweep(directory, names, config, now_ms)
    if clean:
        segments = _open_closed_properly(directory, found, names, config, recovery_point, now_ms)
    else:
        segments = _open_after_kill(directory, found, names, recovery_point, may_have_gaps)
    if segments and segments[-1].next_offset < log_start_offset:
        # DeleteRecords had deleted all remaining records before the tail was lost, or the start offset is wrong.
        fields = {"log": str(directory), "start_offset": log_start_offset, "end_offset": segments[-1].next_offset}
        _logger.error("log starts behind its end; its segments are set aside", extra={"fields": fields})
        _set_aside(directory, [segment.base_offset for segment in segments])
        segments = []
    if not segments:
        segments = [Segment(directory, log_start_offset, now_ms, config.index_interval_bytes)]
    start_offset = max(log_start_offset, segments[0].base_offset)
    end_offset = segments[-1].next_offset
    has_epochs = checkpoint.LEADER_EPOCHS in names
    epochs = LeaderEpochs(checkpoint.read_epochs(directory / checkpoint.LEADER_EPOCHS) if has_epochs else ())
    epochs.cut(start_offset, end_offset)
    if not _are_of(epochs, segments):
        fields = {"file": str(directory / checkpoint.LEADER_EPOCHS), "epochs": str(epochs.entries)}
        _logger.warning("leader epochs built again from the log", extra={"fields": fields})
        epochs = LeaderEpochs()
        for segment in segments:
            for _, header in segment.headers(segment.base_offset, on_damage=lambda _: None):
                epochs.assign(header.leader_epoch, max(start_offset, header.base_offset))
        epochs.is_dirty = True
    producers = _rebuild_producers(directory, _snapshots(names), segments, end_offset, epochs, now_ms)
    producers.expire(now_ms, config.producer_id_expiration_ms)
    return Recovered(segments, start_offset, producers, epochs)


def _are_of(epochs: LeaderEpochs, segments: Sequence[Segment]) -> bool:
    """Whether the batch at the start of the latest leader epoch has that epoch."""
    for epoch, start_offset in epochs.entries[-1:]:
        holding = [segment for segment in segments if segment.base_offset <= start_offset][-1:]
        for segment in holding:
            found = next(segment.headers(start_offset, on_damage=lambda _: None), None) if segment.size else None
            return found is None or (found[1].leader_epoch == epoch and found[1].base_offset <= start_offset)
    return True


def snapshot_path(directory: Path, offset: int) -> Path:
    return directory / f"{offset:020d}.snapshot"


def snapshot_offsets(directory: Path) -> list[int]:
    """Offsets of the existing snapshots, oldest first."""
    return _snapshots([path.name for path in directory.iterdir()])


def _snapshots(names: Iterable[str]) -> list[int]:
    stems = [name.removesuffix(".snapshot") for name in names if name.endswith(".snapshot")]
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def _names(directory: Path) -> dict[str, os.DirEntry[str]]:
    """The files of the directory. It is listed once, because a start opens thousands of directories."""
    try:
        with os.scandir(directory) as entries:
            return {entry.name: entry for entry in entries}
    except FileNotFoundError:
        disk.make_directory(directory)
        return {}


def _sweep(directory: Path, names: Mapping[str, os.DirEntry[str]], config: LogConfig, now_ms: int) -> list[Segment]:
    """Remove leftovers; returns the segments, in order."""
    segments: list[Segment] = []
    for name, entry in names.items():
        stem, _, suffix = name.rpartition(".")
        suffix = "." + suffix
        if suffix == ".log" and stem.isdecimal():
            found = directory / name, int(stem), entry.stat(), now_ms
            segments.append(Segment.found(*found, config.index_interval_bytes))
        elif suffix in _SWEPT_SUFFIXES or (suffix in _INDEX_SUFFIXES and stem + ".log" not in names):
            disk.unlink(directory / name)
    return sorted(segments, key=lambda segment: segment.base_offset)


def _open_closed_properly(
    directory: Path,
    found: Sequence[Segment],
    names: Container[str],
    config: LogConfig,
    end_offset: int,
    now_ms: int,
) -> list[Segment]:
    """Trusts the files except for the end of the last segment, because nothing may be appended after unreadable bytes.

    `end_offset`: the end of the log when it was closed, or 0 if unknown.
    """
    segments = list(found)
    if not segments:
        return segments
    for segment in segments[:-1]:
        _build_missing_indexes(segment, names)
    active = segments[-1]
    active.load(is_finished=False)
    # The end was stored twice, in the checkpoint and in the name of the producers' snapshot.
    has_another_end = active.next_offset != end_offset and snapshot_path(directory, end_offset).name in names
    if not has_another_end and not active.unreadable_tail_bytes:
        return segments
    fields = {
        "file": str(active.path),
        "position": active.size - active.unreadable_tail_bytes,
        "unreadable_bytes": active.unreadable_tail_bytes,
        "end_offset": active.next_offset,
        "end_offset_when_closed": end_offset or None,
    }
    if has_another_end:
        # It is kept for inspection. Its offsets are not assigned to other records, so that a consumer that fetches them
        # gets an error, even much later.
        _logger.error("last segment is damaged; the log continues in a new segment", extra={"fields": fields})
        active.finish()
        return [*segments, Segment(directory, end_offset, now_ms, config.index_interval_bytes)]
    _logger.error("unreadable bytes cut behind the last batch", extra={"fields": fields})
    active.size -= active.unreadable_tail_bytes
    active.cut_back()
    return segments


def _build_missing_indexes(segment: Segment, names: Container[str]) -> None:
    if not all(path.name in names for path in segment.paths):
        # Built now, so that the first reader does not have to wait.
        segment.rebuild_indexes()


def _open_after_kill(
    directory: Path, found: Sequence[Segment], names: Container[str], recovery_point: int, may_have_gaps: bool
) -> list[Segment]:
    segments: list[Segment] = []
    for number, segment in enumerate(found):
        next_base = found[number + 1].base_offset if number + 1 < len(found) else None
        if next_base is not None and next_base <= recovery_point:
            _build_missing_indexes(segment, names)
            segments.append(segment)
            continue
        lost = segment.recover(recovery_point, may_have_gaps=may_have_gaps)
        segments.append(segment)
        if lost:
            fields = {"file": str(segment.file.path), "cut_bytes": lost, "end_offset": segment.next_offset}
            _logger.warning("torn tail cut behind the last whole batch", extra={"fields": fields})
            segment.cut_back()
            _set_aside(directory, [later.base_offset for later in found[number + 1 :]])
            break
        if next_base is not None:
            # The recovery point will advance past this segment, and everything below it must be on disk.
            segment.finish()
            segment.sync()
            segment.write_indexes()
    return segments


def _set_aside(directory: Path, offsets: list[int]) -> None:
    for base_offset in offsets:
        path = directory / f"{base_offset:020d}.log"
        if path.stat().st_size:
            _logger.error("%s follows a segment that is broken; it is kept as %s", path, path.name + _SET_ASIDE)
            disk.rename(path, path.with_name(path.name + _SET_ASIDE))
        else:
            disk.unlink(path)
        for suffix in _INDEX_SUFFIXES:
            disk.unlink(path.with_suffix(suffix))


def _rebuild_producers(
    directory: Path,
    snapshots: Sequence[int],
    segments: Sequence[Segment],
    end_offset: int,
    epochs: LeaderEpochs,
    now_ms: int,
) -> ProducerState:
    """From the newest usable snapshot, and the headers of all batches after it."""
    state, offset = _newest_snapshot(directory, snapshots, end_offset, now_ms)
    _drop_stray_snapshots(directory, snapshots, {segment.base_offset for segment in segments} | {offset})
    for number, segment in enumerate(segments):
        next_base = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        if next_base <= offset or segment.size == 0:
            continue
        seen_ms = min(now_ms, int(segment.file.path.stat().st_mtime * 1000))
        before: tuple[int, BatchHeader] | None = None
        # Damage in these batches has already been logged.
        for position, header in segment.headers(offset, on_damage=lambda _: None):
            if before is not None:
                _assign_epoch(epochs, segment, before, header.leader_epoch)
            before = position, header
            if header.producer_id >= 0:
                state.update(header, header.base_offset, header.max_timestamp, seen_ms)
        if before is not None:
            _assign_epoch(epochs, segment, before, before[1].leader_epoch)
    return state


def _assign_epoch(epochs: LeaderEpochs, segment: Segment, batch: tuple[int, BatchHeader], next_epoch: int) -> None:
    """The CRC does not cover the leader epoch. A new epoch that the next batch does not have is damaged."""
    position, header = batch
    if epochs.latest < header.leader_epoch > next_epoch:
        fields = {"file": str(segment.path), "position": position, "reason": f"leader epoch {header.leader_epoch}"}
        _logger.error("damaged segment", extra={"fields": fields})
        segment.check_when_read()
    else:
        epochs.assign(header.leader_epoch, header.base_offset)


def _newest_snapshot(
    directory: Path, snapshots: Sequence[int], end_offset: int, now_ms: int
) -> tuple[ProducerState, int]:
    for offset in reversed(snapshots):
        path = snapshot_path(directory, offset)
        if offset > end_offset:
            # It contains batches that no longer exist.
            disk.unlink(path)
            continue
        try:
            seen_ms = min(now_ms, int(path.stat().st_mtime * 1000))
            return ProducerState.from_snapshot(path.read_bytes(), seen_ms), offset
        except CorruptSnapshot as error:
            _logger.warning("producer snapshot %s is ignored: %s", path, error)
            disk.unlink(path)
    return ProducerState(), 0


def _drop_stray_snapshots(directory: Path, snapshots: Sequence[int], kept: set[int]) -> None:
    """Each clean close leaves a snapshot at an offset where no segment begins. Only the newest one is kept."""
    for offset in snapshots:
        if offset not in kept:
            disk.unlink(snapshot_path(directory, offset))
