"""The data directory: one broker's partitions, in Kafka's layout.

.lock                             locked by the process that uses the directory
meta.properties                   the cluster id and the node id
holdfast-format                   the format of the directory
.kafka_cleanshutdown              exists only after a clean shutdown
recovery-point-offset-checkpoint  up to where each log is flushed
log-start-offset-checkpoint       where each log starts, if that is not the start of a segment
cleaner-offset-checkpoint         up to where each compacted log is compacted
reserve                           space for writes on a full disk that free space
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
from holdfast.log.checkpoint import OffsetCheckpoint, ReplaceFile
from holdfast.log.config import LogConfig
from holdfast.log.errors import DataDirectoryError, StorageError
from holdfast.log.format_version import upgrade
from holdfast.log.partition_log import PartitionLog
from holdfast.log.partition_metadata import encode_topic_id
from holdfast.log.reserve_file import RESERVE_BYTES, ReserveFile
from holdfast.types import TopicPartition

_logger = logging.getLogger(__name__)

_LOCK = ".lock"
_META = "meta.properties"
_CLEAN = ".kafka_cleanshutdown"
_CLEAN_CONTENT = b'{"version":"0","broker_epoch":"-1"}'
_CLOSED_TOGETHER = 16
_DELETED_SUFFIX = "-delete"
_DELETED = re.compile(rf"-\d+\.[0-9a-f]{{32}}{_DELETED_SUFFIX}$")
"""The suffix of a deleted partition's directory, as in Apache Kafka."""
_MAX_FILE_NAME = 255
# A comment for Apache Kafka, which writes the file without it.
_CRC_COMMENT = "#crc32c="
# Kafka's suffixes of deleted, future and stray partitions.
_FOREIGN_SUFFIXES = (_DELETED_SUFFIX, "-future", "-stray")


class DataDirectory:
    """Holds the lock from :meth:`open` to :meth:`close`, or to the end of the process."""

    def __init__(self, path: Path, lock_fd: int) -> None:
        """Use :meth:`open`."""
        self.path = path
        self._lock_fd = lock_fd
        # Log maintenance, topic deletion and DeleteRecords write the same files from different threads.
        self._writing = threading.Lock()
        self._purging = threading.Lock()
        # A checkpoint in progress may contain a log that has been deleted since, and must not write it.
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self.cluster_id = ""
        self.node_id = 0
        marker = _read_marker(path / _CLEAN)
        self.was_clean = marker is not None
        # Apache Kafka writes another marker. Only with ours do the checkpoints contain the start and end of every log.
        self._has_all_offsets = marker == _CLEAN_CONTENT
        self.reserve = ReserveFile(path)
        self._recovery_points = OffsetCheckpoint(path / checkpoint.RECOVERY_POINTS)
        self._start_offsets = OffsetCheckpoint(path / checkpoint.LOG_START_OFFSETS)
        self._cleaner_offsets = OffsetCheckpoint(path / checkpoint.CLEANER_OFFSETS)
        self._checkpoints = (self._recovery_points, self._start_offsets, self._cleaner_offsets)

    @classmethod
    def open(cls, path: Path, *, node_id: int | None, cluster_id: str | None = None) -> DataDirectory:
        """Lock the directory, and create it if it is missing. Without a `node_id` or a `cluster_id`, the stored one is
        used. The defaults are 1 and a new id."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock_fd = _take_lock(path)
        except OSError as error:
            raise StorageError("use the data directory", path, error) from error
        try:
            is_new = not (path / _META).exists()
            upgrade(path, is_new=is_new)
            directory = cls(path, lock_fd)
            directory._identify(node_id, cluster_id)
            # From here on the files change, so they must be checked after a crash.
            disk.unlink(path / _CLEAN)
            disk.sync_directory(path)
            directory.purge_deleted()
            if _has_no_room(path):
                # A start may have to build indexes. No other thread writes meanwhile.
                directory.reserve.release()
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
        """It was closed cleanly, and its start and end are known without reading its directory."""
        is_recorded = self._has_all_offsets and (topic, partition) in self._recovery_points
        return is_recorded and self.partition_path(topic, partition).is_dir()

    def open_log(self, topic: str, partition: int, config: LogConfig, *, now_ms: int) -> PartitionLog:
        """Open or create a partition with its offsets in the checkpoints. A partition that was closed cleanly stays
        unloaded."""
        key, path = (topic, partition), self.partition_path(topic, partition)
        first_dirty_offset = self._cleaner_offsets.offset(key)
        start_offset = self._start_offsets.offset(key)
        if self.knows(topic, partition):
            log = PartitionLog.unloaded(
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
            # An entry of an earlier log of that name. It must be removed before this log grows as long. Otherwise
            # uncompacted records would count as compacted, and tombstones would be dropped before the records that they
            # delete.
            self.write_cleaner_offsets({(topic, partition): log})
        return log

    def new_log(
        self, topic: str, partition: int, config: LogConfig, topic_id: uuid.UUID, *, now_ms: int
    ) -> PartitionLog:
        """A partition without a directory. The first use of the log, or `load`, creates it."""
        path = self.partition_path(topic, partition)
        log = PartitionLog.unloaded(path, config, now_ms=now_ms, start_offset=0, end_offset=0, topic_id=topic_id)
        with self._writing:
            self._logs[topic, partition] = log
        return log

    def delete_partition(self, topic: str, partition: int) -> None:
        """Deletes the partition with one rename; :meth:`purge_deleted` frees the space later.

        Its log must have been closed. Regions that are being sent stay readable.
        """
        for error in self.delete_partitions([(topic, partition)]):
            raise error

    def delete_partitions(self, partitions: Sequence[TopicPartition]) -> list[StorageError]:
        """As :meth:`delete_partition`, with one sync for all of them. Returns the errors of the disk."""
        refused: list[StorageError] = []
        for topic, partition in partitions:
            path = self.partition_path(topic, partition)
            self.forget(topic, partition)
            suffix = f"-{partition}.{uuid.uuid4().hex}{_DELETED_SUFFIX}"
            try:
                # A long topic name is truncated to leave room for the suffix.
                disk.rename(path, path.with_name(topic[: _MAX_FILE_NAME - len(suffix)] + suffix))
            except FileNotFoundError:
                pass  # it was never used
            except OSError as error:
                refused.append(StorageError("delete", path, error))
        try:
            # Otherwise, after a power failure, deleted records could reappear in a new topic of the same name.
            disk.sync_directory(self.path)
        except OSError as error:
            refused.append(StorageError("delete partitions in", self.path, error))
        return refused

    def purge_deleted(self) -> None:
        """Remove the files of deleted partitions. For a worker thread."""
        with self._purging:
            for path in sorted(self.path.glob(f"*{_DELETED_SUFFIX}")):
                # Only Kafka's form of the name: users may keep other directories here, such as photos-to-delete.
                if _DELETED.search(path.name) and path.is_dir():
                    for file in sorted(path.iterdir()):
                        disk.unlink(file)
                    disk.remove_directory(path)

    # Checkpoints. Other partitions keep their offsets; deleted logs are omitted.

    def write_recovery_points(self, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        """Store how far the logs are flushed. Recovery does not check records below that."""
        # They no longer contain the ends of the logs.
        self._has_all_offsets = False
        self._write(self._recovery_points, logs, lambda log: log.recovery_point)

    def write_start_offsets(self, logs: Mapping[TopicPartition, PartitionLog], *, makes_room: bool = False) -> None:
        """Store where the logs start. Call it after `delete_records_before`, before the response.

        In that case the write frees space and may use the reserve file.
        """
        replace_file = self.reserve.replace_file if makes_room else disk.replace_file
        self._write(self._start_offsets, logs, lambda log: log.start_offset or None, replace_file)

    def write_cleaner_offsets(self, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        """Store how far the logs are compacted. The keys of earlier records are not read again."""
        self._write(self._cleaner_offsets, logs, lambda log: log.first_dirty_offset)

    def forget(self, topic: str, partition: int) -> None:
        """Removes a partition from the checkpoints, so that its entries do not apply to a new one of the same name.

        Until :meth:`write_forgotten`, this is only in memory.
        """
        with self._writing:
            self._logs.pop((topic, partition), None)
            for file in self._checkpoints:
                file.forget((topic, partition))

    def forget_all_but(self, partitions: Container[TopicPartition]) -> None:
        """As :meth:`forget`, at startup, because a crash may have happened between a deletion and its checkpoints."""
        with self._writing:
            for file in self._checkpoints:
                file.forget_all_but(partitions)

    def write_forgotten(self) -> None:
        """Call this before a partition is created, because the files may still have an entry for its name."""
        for file in self._checkpoints:
            if file.names_deleted_partitions:
                self._write(file, {}, lambda _: None)

    def _write(
        self,
        file: OffsetCheckpoint,
        logs: Mapping[TopicPartition, PartitionLog],
        offset_of: Callable[[PartitionLog], int | None],
        replace_file: ReplaceFile = disk.replace_file,
    ) -> None:
        try:
            # The offsets are read while holding the lock, so that an older one never overwrites a newer one.
            with self._writing:
                present = {key: offset_of(log) for key, log in logs.items() if self._logs.get(key) is log}
                file.write(present, replace_file)
        except OSError as error:
            raise StorageError("write", file.path, error) from error

    def close(self, logs: Mapping[TopicPartition, PartitionLog], *, clean: bool = True) -> None:
        """Close all logs, write the marker of a clean shutdown, and release the directory."""
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
    """In sequence if they are few, otherwise in parallel, because they wait for the disk."""
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
    """The marker of a clean shutdown, ours or Apache Kafka's. None if it is missing or invalid."""
    try:
        marker = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        if isinstance(json.loads(marker or b"{}"), dict):  # Kafka's was empty before KIP-966
            return marker
    except ValueError:
        pass
    _logger.error("%s is damaged; every log is recovered as after a crash", path)
    return None


def _take_lock(path: Path) -> int:
    fd = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        # flock belongs to the open file and is released when the process ends. The second lock is the one that Apache
        # Kafka uses.
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
