"""The data directory: one broker's partitions, in Kafka's layout.

.lock                             held by the one process that uses the directory
meta.properties                   whose it is
holdfast-format                   which format it has
.kafka_cleanshutdown              there only after everything was closed properly
recovery-point-offset-checkpoint  up to where each log is known to be on the disk
log-start-offset-checkpoint       where each log starts, when that is not a segment's start
cleaner-offset-checkpoint         up to where each compacted log is compacted
reserve                           room for what has to be written on a full disk
orders-0/ orders-1/ …             one directory for each partition
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
import threading
import uuid
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from google_crc32c import value as crc32c

from holdfast.log import checkpoint, disk
from holdfast.log.checkpoint import OffsetCheckpoint, ReplaceFile, TopicPartition
from holdfast.log.config import LogConfig
from holdfast.log.errors import DataDirectoryError, StorageError
from holdfast.log.format_version import bring_up_to_date
from holdfast.log.partition_log import PartitionLog
from holdfast.log.partition_metadata import encode_topic_id
from holdfast.log.reserve import RESERVE_BYTES, Reserve

_logger = logging.getLogger(__name__)

_LOCK = ".lock"
_META = "meta.properties"
_CLEAN = ".kafka_cleanshutdown"
_CLEAN_CONTENT = b'{"version":"0","broker_epoch":"-1"}'
_CLOSED_TOGETHER = 16
_DELETED_SUFFIX = "-delete"
_DELETED = re.compile(rf"-\d+\.[0-9a-f]{{32}}{_DELETED_SUFFIX}$")
"""So a deleted partition's directory is called, by Apache Kafka as well."""
_MAX_FILE_NAME = 255
# A comment to Apache Kafka, which writes the file without it.
_CRC_COMMENT = "#crc32c="
# Kafka's marks of partitions that are being deleted, moved, or that nobody claims.
_FOREIGN_SUFFIXES = (_DELETED_SUFFIX, "-future", "-stray")


class DataDirectory:
    """Holds the lock from :meth:`open` to :meth:`close`, or to the end of the process, however it comes."""

    def __init__(self, path: Path, lock_fd: int) -> None:
        """Use :meth:`open`."""
        self.path = path
        self._lock_fd = lock_fd
        # Housekeeping, topic deletion and DeleteRecords write the same files from different threads.
        self._writing = threading.Lock()
        self._purging = threading.Lock()
        # Whoever went over the logs before one of them was deleted has it still, and must not tell of it.
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self.cluster_id = ""
        self.node_id = 0
        marker = _read_marker(path / _CLEAN)
        self.was_clean = marker is not None
        # Apache Kafka leaves another marker. Only ours comes with checkpoints that name every log's start and end.
        self._has_all_offsets = marker == _CLEAN_CONTENT
        self.reserve = Reserve(path)
        self._recovery_points = OffsetCheckpoint(path / checkpoint.RECOVERY_POINTS)
        self._start_offsets = OffsetCheckpoint(path / checkpoint.LOG_START_OFFSETS)
        self._cleaner_offsets = OffsetCheckpoint(path / checkpoint.CLEANER_OFFSETS)
        self._checkpoints = (self._recovery_points, self._start_offsets, self._cleaner_offsets)

    @classmethod
    def open(cls, path: Path, *, node_id: int | None, cluster_id: str | None = None) -> DataDirectory:
        """Take the directory, creating it when missing. Without a `node_id` or a `cluster_id` the stored one is used,
        or 1 and a new one."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock_fd = _take_lock(path)
        except OSError as error:
            raise StorageError("use the data directory", path, error) from error
        try:
            is_new = not (path / _META).exists()
            bring_up_to_date(path, is_new=is_new)
            directory = cls(path, lock_fd)
            directory._identify(node_id, cluster_id)
            # From here on the files change: whoever comes after a kill must look at them.
            disk.unlink(path / _CLEAN)
            disk.sync_directory(path)
            directory.purge_deleted()
            if _has_no_room(path):
                # A start may have indexes to build; nobody else writes meanwhile.
                directory.reserve.give_up()
        except OSError as error:
            os.close(lock_fd)
            raise StorageError("use the data directory", path, error) from error
        except BaseException:
            os.close(lock_fd)
            raise
        return directory

    def _identify(self, node_id: int | None, cluster_id: str | None) -> None:
        path = self.path / _META
        stored = _read_properties(path)
        if stored is None:
            stored = {}
            if self.partitions():
                _logger.error("%s is missing; the directory gets a new cluster id", path)
        elif not stored.keys() >= {"version", "cluster.id", "node.id"}:
            raise DataDirectoryError(f"{path} is damaged (incomplete); restore it from a backup before starting")
        if node_id is None:
            node_id = _stored_node_id(path, stored)
        self.cluster_id = cluster_id or stored.get("cluster.id") or encode_topic_id(uuid.uuid4())
        self.node_id = node_id
        for name, wanted in (("node.id", str(node_id)), ("cluster.id", self.cluster_id)):
            found = stored.get(name, wanted)
            if found != wanted:
                raise DataDirectoryError(f"{self.path} belongs to {name}={found}, not to {wanted}")
        if not stored:
            identity = f"cluster.id={self.cluster_id}\nnode.id={node_id}\n"
            text = f"version=1\n{identity}directory.id={encode_topic_id(uuid.uuid4())}\n"
            disk.replace_file(path, f"{text}{_CRC_COMMENT}{crc32c(text.encode())}\n".encode())

    # Partitions

    def partition_path(self, topic: str, partition: int) -> Path:
        return self.path / f"{topic}-{partition}"

    def partitions(self) -> dict[TopicPartition, Path]:
        """All partitions that have a directory here."""
        found: dict[TopicPartition, Path] = {}
        with os.scandir(self.path) as entries:
            for entry in entries:
                topic, _, number = entry.name.rpartition("-")
                if topic and number.isdecimal() and entry.is_dir() and not entry.name.endswith(_FOREIGN_SUFFIXES):
                    found[topic, int(number)] = self.path / entry.name
        return dict(sorted(found.items()))

    def knows(self, topic: str, partition: int) -> bool:
        """It was closed properly, and where it starts and ends is known without a look into its directory."""
        is_told = self._has_all_offsets and (topic, partition) in self._recovery_points
        return is_told and self.partition_path(topic, partition).is_dir()

    def open_log(self, topic: str, partition: int, config: LogConfig, *, now_ms: int) -> PartitionLog:
        """Open or create a partition, with what the checkpoints say of it. One that was closed properly is at rest."""
        key, path = (topic, partition), self.partition_path(topic, partition)
        first_dirty_offset = self._cleaner_offsets.offset(key)
        start_offset = self._start_offsets.offset(key)
        if self.knows(topic, partition):
            log = PartitionLog.at_rest(
                path,
                config,
                now_ms=now_ms,
                start_offset=start_offset,
                end_offset=self._recovery_points.offset(key),
                first_dirty_offset=first_dirty_offset,
            )
        else:
            log = PartitionLog.open(
                path,
                config,
                now_ms=now_ms,
                clean=self.was_clean,
                recovery_point=self._recovery_points.offset(key),
                log_start_offset=start_offset,
                first_dirty_offset=first_dirty_offset,
            )
        with self._writing:
            self._logs[key] = log
        if log.first_dirty_offset != first_dirty_offset:
            # Said of an earlier log of that name. It must not be there when this one has grown as long: what is
            # not compacted would be taken for compacted, and tombstones dropped before what they hide.
            self.write_cleaner_offsets({(topic, partition): log})
        return log

    def new_log(
        self, topic: str, partition: int, config: LogConfig, topic_id: uuid.UUID, *, now_ms: int
    ) -> PartitionLog:
        """A partition that has no directory yet: it is made by whoever first uses the log, or by `wake`."""
        path = self.partition_path(topic, partition)
        log = PartitionLog.at_rest(path, config, now_ms=now_ms, start_offset=0, end_offset=0, topic_id=topic_id)
        with self._writing:
            self._logs[topic, partition] = log
        return log

    def delete_partition(self, topic: str, partition: int) -> None:
        """The partition is gone with one rename; :meth:`purge_deleted` frees the space later.

        Its log must have been closed. Regions still under way stay readable.
        """
        for error in self.delete_partitions([(topic, partition)]):
            raise error

    def delete_partitions(self, partitions: Sequence[TopicPartition]) -> list[StorageError]:
        """As :meth:`delete_partition`, with one sync for all of them; returns what the disk refused."""
        refused: list[StorageError] = []
        for topic, partition in partitions:
            path = self.partition_path(topic, partition)
            self.forget(topic, partition)
            suffix = f"-{partition}.{uuid.uuid4().hex}{_DELETED_SUFFIX}"
            try:
                # A topic's name may be so long that only a part of it leaves room for the suffix.
                disk.rename(path, path.with_name(topic[: _MAX_FILE_NAME - len(suffix)] + suffix))
            except FileNotFoundError:
                pass  # it was never used
            except OSError as error:
                refused.append(StorageError("delete", path, error))
        try:
            # Or a power cut could bring back what was deleted, under the name of a new topic.
            disk.sync_directory(self.path)
        except OSError as error:
            refused.append(StorageError("delete partitions in", self.path, error))
        return refused

    def purge_deleted(self) -> None:
        """Remove the files of deleted partitions. For a worker thread."""
        with self._purging:
            for path in sorted(self.path.glob(f"*{_DELETED_SUFFIX}")):
                # Somebody may keep things of his own here, and call them photos-to-delete.
                if _DELETED.search(path.name) and path.is_dir():
                    for file in sorted(path.iterdir()):
                        disk.unlink(file)
                    disk.remove_directory(path)

    # Checkpoints. Partitions that are not named keep the offsets they had, logs that were deleted are left out.

    def write_recovery_points(self, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        """Say how far the logs are flushed; what is below is not looked at again after a kill."""
        # They do not tell any more where the logs end.
        self._has_all_offsets = False
        self._write(self._recovery_points, logs, lambda log: log.recovery_point)

    def write_start_offsets(self, logs: Mapping[TopicPartition, PartitionLog], *, makes_room: bool = False) -> None:
        """Say where the logs start; needed after `delete_records_before`, before it is answered.

        Then it makes room, and may take from the reserve.
        """
        replace_file = self.reserve.replace_file if makes_room else disk.replace_file
        self._write(self._start_offsets, logs, lambda log: log.start_offset or None, replace_file)

    def write_cleaner_offsets(self, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        """Say how far the logs are compacted; what is before is not read for its keys again."""
        self._write(self._cleaner_offsets, logs, lambda log: log.first_dirty_offset)

    def forget(self, topic: str, partition: int) -> None:
        """Whatever is known of a partition is not said of the next one that has its name.

        Until :meth:`write_forgotten` that holds for this process alone.
        """
        with self._writing:
            self._logs.pop((topic, partition), None)
            for file in self._checkpoints:
                file.forget((topic, partition))

    def forget_all_but(self, partitions: Container[TopicPartition]) -> None:
        """As :meth:`forget`, at the start: a kill may have come between a deletion and its checkpoints."""
        with self._writing:
            for file in self._checkpoints:
                file.forget_all_but(partitions)

    def write_forgotten(self) -> None:
        """Do this before a partition is made: its name may be one that the files still tell of."""
        for file in self._checkpoints:
            if file.tells_of_gone_partitions:
                self._write(file, {}, lambda _: None)

    def _write(
        self,
        file: OffsetCheckpoint,
        logs: Mapping[TopicPartition, PartitionLog],
        offset_of: Callable[[PartitionLog], int | None],
        replace_file: ReplaceFile = disk.replace_file,
    ) -> None:
        try:
            # The offsets are asked for when nobody else writes: an older one must not come after a newer.
            with self._writing:
                present = {key: offset_of(log) for key, log in logs.items() if self._logs.get(key) is log}
                file.write(present, replace_file)
        except OSError as error:
            raise StorageError("write", file.path, error) from error

    def close(self, logs: Mapping[TopicPartition, PartitionLog], *, clean: bool = True) -> None:
        """Close all logs, then say that it was clean, then give the directory up."""
        try:
            _close_all(list(logs.values()), clean)
            if clean:
                self.write_recovery_points(logs)
                self.write_start_offsets(logs)
                disk.replace_file(self.path / _CLEAN, _CLEAN_CONTENT)
        except OSError as error:
            raise StorageError("close", self.path, error) from error
        finally:
            if self._lock_fd >= 0:
                os.close(self._lock_fd)
                self._lock_fd = -1


def _close_all(logs: Sequence[PartitionLog], clean: bool) -> None:
    """One after the other; many of them together, because they wait for the disk and it does not mind."""
    if len(logs) <= _CLOSED_TOGETHER:
        for log in logs:
            log.close(clean)
        return
    with ThreadPoolExecutor(_CLOSED_TOGETHER) as pool:
        for done in [pool.submit(log.close, clean) for log in logs]:
            done.result()


def _has_no_room(path: Path) -> bool:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize < RESERVE_BYTES


def _read_marker(path: Path) -> bytes | None:
    """What a clean stop left, of ours or of Apache Kafka; None if there was none, or nobody can have written this."""
    try:
        marker = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        if isinstance(json.loads(marker or b"{}"), dict):  # Kafka's was empty before KIP-966
            return marker
    except ValueError:
        pass
    _logger.error("%s is damaged; every log is opened as after a kill", path)
    return None


def _take_lock(path: Path) -> int:
    fd = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        # flock goes with the open file and so with the process; the second kind is the one Apache Kafka takes.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 32, 0).decode(errors="replace").strip()
        os.close(fd)
        who = f"process {holder}" if holder.isdecimal() else "another process"
        raise DataDirectoryError(f"{path} is in use by {who}; only one broker can use it at a time") from None
    except OSError:
        os.close(fd)
        raise
    with contextlib.suppress(OSError):  # a full disk must not keep the broker from starting
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def _stored_node_id(path: Path, stored: Mapping[str, str]) -> int:
    text = stored.get("node.id", "1")
    if not text.isdecimal():
        raise DataDirectoryError(f"{path} is damaged (node.id={text}); restore it from a backup before starting")
    return int(text)


def _read_properties(path: Path) -> dict[str, str] | None:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise DataDirectoryError(f"{path} is damaged (no text); restore it from a backup before starting") from None
    written, comment, crc = text.partition(_CRC_COMMENT)
    if comment and crc.strip() != str(crc32c(written.encode())):
        raise DataDirectoryError(
            f"{path} is damaged (its CRC does not match); restore it from a backup before starting, "
            f"or remove the line {comment}… if you have edited it"
        )
    lines = text.splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
