"""Kafka's checkpoint files: a version, a count, and one line per entry. A file is replaced as a whole, never edited.

    0
    2
    orders 0 1500
    orders 1 1498

Files of offsets end with the CRC-32C of the lines before it, in the form of an entry without a topic name. Kafka
ignores that line, as it ignores entries of unknown partitions. A file without it was written by Kafka.

A checkpoint saves work at startup or stores a start offset. An unreadable checkpoint is logged and ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path

from google_crc32c import value as crc32c

from holdfast.log import disk
from holdfast.types import TopicPartition

_logger = logging.getLogger(__name__)

_VERSION = "0"
_CRC_NAME = "#crc32c"

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"

ReplaceFile = Callable[[Path, bytes], None]


class OffsetCheckpoint:
    """A file of offsets, with changes that are not yet written. For one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offsets = read_offsets(path)
        self.names_deleted_partitions = False
        """Their entries in the file would otherwise apply to new partitions of the same name."""

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._offsets

    def offset(self, partition: TopicPartition) -> int:
        """0 for a partition without an entry."""
        return self._offsets.get(partition, 0)

    def forget(self, partition: TopicPartition) -> None:
        if self._offsets.pop(partition, None) is not None:
            self.names_deleted_partitions = True

    def forget_all_but(self, partitions: Container[TopicPartition]) -> None:
        for partition in [partition for partition in self._offsets if partition not in partitions]:
            self.forget(partition)

    def write(
        self, changes: Mapping[TopicPartition, int | None], replace_file: ReplaceFile = disk.replace_file
    ) -> None:
        """Write changed offsets; None removes a partition's entry. Other partitions keep their entries."""
        for partition, offset in changes.items():
            if offset is None:
                self._offsets.pop(partition, None)
            else:
                self._offsets[partition] = offset
        write_offsets(self.path, self._offsets, replace_file)
        self.names_deleted_partitions = False


def write_offsets(
    path: Path, offsets: Mapping[TopicPartition, int], replace_file: ReplaceFile = disk.replace_file
) -> None:
    """Offsets by topic and partition."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    if lines:
        lines.append(f"{_CRC_NAME} 0 {_crc(lines)}")
    replace_file(path, _content(lines))


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    try:
        lines = _read(path)
        if lines and lines[-1].startswith(_CRC_NAME):
            crc = lines.pop().rpartition(" ")[2]
            if crc != str(_crc(lines)):
                raise ValueError("its CRC does not match")
        entries = [line.split(" ") for line in lines]
        return {(topic, int(partition)): int(offset) for topic, partition, offset in entries}
    except ValueError as error:
        _logger.warning("checkpoint %s is ignored: %s", path, error)
        return {}


def write_epochs(path: Path, epochs: Sequence[tuple[int, int]]) -> None:
    """Leader epochs with the first offset of each."""
    disk.replace_file(path, _content([f"{epoch} {start_offset}" for epoch, start_offset in epochs]))


def read_epochs(path: Path) -> list[tuple[int, int]]:
    try:
        entries = [line.split(" ") for line in _read(path)]
        return [(int(epoch), int(start_offset)) for epoch, start_offset in entries]
    except ValueError as error:
        _logger.warning("checkpoint %s is ignored: %s", path, error)
        return []


def _crc(lines: Sequence[str]) -> int:
    return int(crc32c("\n".join(lines).encode()))


def _content(lines: Sequence[str]) -> bytes:
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()


def _read(path: Path) -> list[str]:
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return []
    if len(lines) < 2 or lines[0] != _VERSION or int(lines[1]) != len(lines) - 2:
        raise ValueError("version or number of lines is wrong")
    return lines[2:]
