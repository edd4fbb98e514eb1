"""Kafka's checkpoint files: a version, a count, and one line per entry; replaced whole, never edited.

    0
    2
    orders 0 1500
    orders 1 1498

Those of offsets end with a line that has the form of an entry and no topic's name: the CRC-32C of the lines before it.
Kafka reads past it, as past every entry of a partition that it does not have; a file without it is Kafka's.

A checkpoint only saves work or keeps a promise about the past; one that cannot be read is as good as none, and
is said so in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path

from google_crc32c import value as crc32c

from holdfast.log import disk

_logger = logging.getLogger(__name__)

_VERSION = "0"
_CRC_NAME = "#crc32c"

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"

TopicPartition = tuple[str, int]
ReplaceFile = Callable[[Path, bytes], None]


class OffsetCheckpoint:
    """A file of offsets, and what we know beyond it. For one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offsets = read_offsets(path)
        self.tells_of_gone_partitions = False
        """What the file says of them would be taken for said of new ones of the same name."""

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._offsets

    def offset(self, partition: TopicPartition) -> int:
        """0 of a partition that is not told of."""
        return self._offsets.get(partition, 0)

    def forget(self, partition: TopicPartition) -> None:
        if self._offsets.pop(partition, None) is not None:
            self.tells_of_gone_partitions = True

    def forget_all_but(self, partitions: Container[TopicPartition]) -> None:
        for partition in [partition for partition in self._offsets if partition not in partitions]:
            self.forget(partition)

    def write(self, news: Mapping[TopicPartition, int | None], replace_file: ReplaceFile = disk.replace_file) -> None:
        """With None there is nothing to be told of a partition. One that is not named keeps what it had."""
        for partition, offset in news.items():
            if offset is None:
                self._offsets.pop(partition, None)
            else:
                self._offsets[partition] = offset
        write_offsets(self.path, self._offsets, replace_file)
        self.tells_of_gone_partitions = False


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
