"""Opening a partition's directory: after a clean close by trust, after a kill by looking at every byte.

What a kill can leave behind, and what becomes of it:

- a torn batch at the end of the last segment: cut off;
- indexes, snapshots and checkpoints that were never written, or half: built again from the log, or ignored;
- files of a segment whose deletion was under way: swept;
- a compaction: undone, or finished if it was decided (:mod:`holdfast.log.swap`).

Everything below the recovery point was flushed and indexed before the point was moved there; it is trusted. A
sound log never breaks in the middle. If the disk itself lost something there, the segments after the break are
set aside under another name, not deleted.
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

_logger = logging.getLogger(__name__)

_INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
# A log that ends in .swap is no leftover; when the sweep comes, there is none any more.
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
) -> Recovered:
    """Open all that is in `directory`; the last segment is the one to append to."""
    names = _names(directory)
    if any(name.endswith(swap.SWAP) for name in names):
        swap.finish_interrupted(directory)
        names = _names(directory)
    found = _sweep(directory, names, config, now_ms)
    segments = _open_segments(directory, found, names, clean, recovery_point)
    if segments and segments[-1].next_offset < log_start_offset:
        # All that is left was deleted by DeleteRecords before the tail was lost.
        _remove(segments)
        segments = []
    if not segments:
        segments = [Segment(directory, log_start_offset, now_ms, config.index_interval_bytes)]
    start_offset = max(log_start_offset, segments[0].base_offset)
    end_offset = segments[-1].next_offset
    has_epochs = checkpoint.LEADER_EPOCHS in names
    epochs = LeaderEpochs(checkpoint.read_epochs(directory / checkpoint.LEADER_EPOCHS) if has_epochs else ())
    epochs.cut(start_offset, end_offset)
    producers = _rebuild_producers(directory, _snapshots(names), segments, end_offset, epochs, now_ms)
    producers.expire(now_ms, config.producer_id_expiration_ms)
    return Recovered(segments, start_offset, producers, epochs)


def snapshot_path(directory: Path, offset: int) -> Path:
    return directory / f"{offset:020d}.snapshot"


def snapshot_offsets(directory: Path) -> list[int]:
    """Offsets of the snapshots there are, oldest first."""
    return _snapshots([path.name for path in directory.iterdir()])


def _snapshots(names: Iterable[str]) -> list[int]:
    stems = [name.removesuffix(".snapshot") for name in names if name.endswith(".snapshot")]
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def _names(directory: Path) -> dict[str, os.DirEntry[str]]:
    """What is in the directory; it is looked at once, because a start goes through thousands of them."""
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


def _open_segments(
    directory: Path, found: Sequence[Segment], names: Container[str], clean: bool, recovery_point: int
) -> list[Segment]:
    segments: list[Segment] = []
    for number, segment in enumerate(found):
        next_base = found[number + 1].base_offset if number + 1 < len(found) else None
        if clean or (next_base is not None and next_base <= recovery_point):
            if next_base is None:
                segment.load(is_finished=False)
            elif not all(path.name in names for path in segment.paths):
                # Built now and not by the first reader, whom it would keep waiting.
                segment.rebuild_indexes()
            segments.append(segment)
            continue
        lost = segment.recover()
        segments.append(segment)
        if lost:
            fields = {"file": str(segment.file.path), "cut_bytes": lost, "end_offset": segment.next_offset}
            _logger.warning("torn tail cut behind the last whole batch", extra={"fields": fields})
            segment.cut_back()
            _set_aside(directory, [later.base_offset for later in found[number + 1 :]])
            break
        if next_base is not None:
            # The recovery point will move past this segment, and what is below it must be on the disk.
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


def _remove(segments: list[Segment]) -> None:
    for segment in segments:
        for path in segment.paths:
            disk.unlink(path)


def _rebuild_producers(
    directory: Path,
    snapshots: Sequence[int],
    segments: Sequence[Segment],
    end_offset: int,
    epochs: LeaderEpochs,
    now_ms: int,
) -> ProducerState:
    """From the newest snapshot that can be used, and the headers of all batches after it."""
    state, offset = _newest_snapshot(directory, snapshots, end_offset, now_ms)
    _drop_stray_snapshots(directory, snapshots, {segment.base_offset for segment in segments} | {offset})
    for number, segment in enumerate(segments):
        next_base = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        if next_base <= offset or segment.size == 0:
            continue
        seen_ms = min(now_ms, int(segment.file.path.stat().st_mtime * 1000))
        for _, header in segment.headers(offset):
            epochs.assign(header.leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                state.update(header, header.base_offset, header.max_timestamp, seen_ms)
    return state


def _newest_snapshot(
    directory: Path, snapshots: Sequence[int], end_offset: int, now_ms: int
) -> tuple[ProducerState, int]:
    for offset in reversed(snapshots):
        path = snapshot_path(directory, offset)
        if offset > end_offset:
            # It knows of batches that are no more.
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
    """Each clean close leaves a snapshot at an offset where no segment begins; the newest one is enough."""
    for offset in snapshots:
        if offset not in kept:
            disk.unlink(snapshot_path(directory, offset))
