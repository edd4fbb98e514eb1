"""The topics: their names, ids and configs, and their partitions on disk.

`topics.json` is the source of truth. It is replaced as a whole, before the directories of a new topic are created and
before those of a deleted one are removed. After a crash in between, the next start completes the change: it creates
missing partition directories (empty), and renames directories that belong to no topic of the file with the suffix
`-stray`. Such a directory is never removed, because it may hold the only copy of records.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from google_crc32c import value as crc32c

from holdfast.broker.config.broker import BrokerConfig, ConfigError
from holdfast.broker.config.topic import TopicConfig, validate_override
from holdfast.broker.storage.partition import Partition
from holdfast.broker.structured_log import log_event
from holdfast.broker.util.shielded_tasks import ShieldedTasks
from holdfast.coordinator.events.group_event import LEDGER_TOPIC
from holdfast.log import DataDirectory, LogConfig, LogError, PartitionLog, StorageError, disk
from holdfast.log.checkpoint import ReplaceFile
from holdfast.log.partition_metadata import decode_topic_id, encode_topic_id, read_topic_id, write_topic_id

logger = logging.getLogger(__name__)

TOPICS_FILE: Final = "topics.json"
STRAY: Final = "-stray"
MAX_NAME_LENGTH: Final = 249
MAX_FILE_NAME_LENGTH: Final = 255
_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
OFFSETS_TOPIC: Final = "__consumer_offsets"
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, LEDGER_TOPIC, "__transaction_state"})


class TopicsFileError(Exception):
    """`topics.json` cannot be read; the text says what to do."""


def invalid_name(name: str) -> str | None:
    """Why a topic cannot have this name, in Kafka's words, or None."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if not _LEGAL_NAME.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def _format_overrides(overrides: Mapping[str, str]) -> str | None:
    """A topic's own configs as one field of a log line."""
    return ",".join(f"{name}={value}" for name, value in sorted(overrides.items())) or None


@dataclass(slots=True, eq=False)
class Topic:
    name: str
    id: bytes
    overrides: dict[str, str]
    partitions: list[Partition] = field(default_factory=list)

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    def partition(self, index: int) -> Partition | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


def _valid_overrides(topic: str, stored: Mapping[str, str]) -> dict[str, str]:
    """Without invalid overrides. The broker's default is used instead, so that the data can be read."""
    valid: dict[str, str] = {}
    for name, value in stored.items():
        try:
            validate_override(name, value)
        except ConfigError as error:
            log_event(logger, "topic config ignored", logging.WARNING, topic=topic, error=error)
        else:
            valid[name] = value
    return valid


class _Entry(NamedTuple):
    """A topic in the file."""

    name: str
    id: bytes
    partition_count: int
    overrides: Mapping[str, str]


def _to_json(entry: _Entry) -> tuple[str, dict[str, Any]]:
    topic_id = encode_topic_id(uuid.UUID(bytes=entry.id))
    return entry.name, {"id": topic_id, "partitions": entry.partition_count, "configs": dict(entry.overrides)}


class NewTopic(NamedTuple):
    """A topic to be created."""

    name: str
    partition_count: int
    overrides: Mapping[str, str]


class _ConfigCache:
    """The configs of topics, cached by their overrides. Most topics have none, and resolving configs is the most
    expensive step."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._found: dict[frozenset[tuple[str, str]], tuple[TopicConfig, LogConfig]] = {}

    def configs_of(self, topic: Topic) -> tuple[TopicConfig, LogConfig]:
        overrides = frozenset(topic.overrides.items())
        found = self._found.get(overrides)
        if found is None:
            config = TopicConfig.resolve(self._config, topic.overrides)
            found = self._found[overrides] = config, config.to_log_config()
        return found


def _make_directories(logs: Sequence[PartitionLog]) -> None:
    try:
        for log in logs:
            log.load()
    except LogError as error:
        # The disk is probably full. The first use of such a partition tries again.
        logger.warning("a new partition has no directory yet: %s", error)


async def _shielded(work: asyncio.Future[None]) -> None:
    # A thread cannot be cancelled, and one that has not started must not be: the disk would be inconsistent.
    await asyncio.shield(work)


def _crc_of(topics: Mapping[str, Any]) -> int:
    """A checksum that detects a changed digit in a partition count or a retention time."""
    return int(crc32c(json.dumps(topics, sort_keys=True).encode()))


class Topics:
    """All topics by name and by id. Changes are serialized, and are on disk before they are visible."""

    def __init__(
        self, data: DataDirectory, config: BrokerConfig, changes: ShieldedTasks, now_ms: Callable[[], int]
    ) -> None:
        self._data = data
        self._config = config
        self._now_ms = now_ms
        self._names: dict[str, Topic] = {}
        self._ids: dict[bytes, Topic] = {}
        self._change_lock = asyncio.Lock()
        self._tasks = changes
        self.on_deleted: Callable[[str], None] = lambda _name: None
        self.on_grown: Callable[[str, int], None] = lambda _name, _before: None
        """Also called for a new topic, which had no partitions before."""
        self.config_lock = asyncio.Lock()
        """Held from reading a topic's overrides to storing new ones, so that no concurrent change is lost."""

    # -- queries -------------------------------------------------------------------------------------------------------

    def get(self, name: str) -> Topic | None:
        return self._names.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        return self._ids.get(topic_id)

    def partition_count(self, name: str) -> int:
        """0 if there is no such topic."""
        topic = self._names.get(name)
        return 0 if topic is None else len(topic.partitions)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._names.values())

    def __len__(self) -> int:
        return len(self._names)

    def partitions(self) -> Iterator[Partition]:
        # A copy, because worker threads iterate over it while the event loop creates and deletes topics.
        for topic in tuple(self._names.values()):
            yield from topic.partitions

    # -- starting and stopping -----------------------------------------------------------------------------------------

    def load(self) -> None:
        """Reads the file and opens every log, cutting torn tails. Runs before the broker listens, in any thread."""
        entries = self._read_file()
        known = {(name, index) for name, entry in entries.items() for index in range(int(entry["partitions"]))}
        self._data.forget_all_but(known)
        for key, directory in self._data.partitions().items():
            if key not in known:
                self._quarantine(directory)
        resolved = _ConfigCache(self._config)
        for name, entry in entries.items():
            topic = Topic(name, decode_topic_id(entry["id"]).bytes, _valid_overrides(name, entry["configs"]))
            topic.partitions = self._open_partitions(topic, int(entry["partitions"]), resolved)
            self._publish(topic)
        try:
            self.write_checkpoints()
        except StorageError as error:
            # Start also on a full disk, because topics can only be deleted while the broker runs.
            logger.warning("%s", error)

    def _read_file(self) -> dict[str, Any]:
        path = self._data.path / TOPICS_FILE
        try:
            content = json.loads(path.read_text())
            entries = dict(content["topics"])
            if content.get("crc32c", (crc := _crc_of(entries))) != crc:
                raise ValueError("its CRC does not match; remove the field crc32c if you have edited it")
            for entry in entries.values():
                decode_topic_id(entry["id"]), int(entry["partitions"]), dict(entry["configs"])
            return entries
        except FileNotFoundError:
            # The file is written before the first partition, so partitions without it mean that it was lost.
            if self._data.partitions():
                raise TopicsFileError(
                    f"{self._data.path} holds partitions but no {TOPICS_FILE}; restore it, or use another directory"
                ) from None
            return {}
        except (ValueError, KeyError, TypeError) as error:
            raise TopicsFileError(f"{path} is damaged ({error}); restore it from a backup before starting") from error

    def logs(self) -> dict[tuple[str, int], PartitionLog]:
        return {(partition.topic_name, partition.index): partition.log for partition in self.partitions()}

    def write_checkpoints(self) -> None:
        """How far the logs are flushed and where they start. Entries of deleted partitions are removed, or a new topic
        of the same name would get the start offset of the old one."""
        logs = self.logs()
        self._data.write_recovery_points(logs)
        self._data.write_start_offsets(logs)
        self._data.write_forgotten()
        self._data.reserve.fill()

    # -- changes -------------------------------------------------------------------------------------------------------
    # Each change runs to its end even if its client disconnects, so that file, memory and directories agree.

    async def create(self, name: str, partition_count: int, overrides: dict[str, str]) -> Topic | None:
        """The new topic, or None if one of that name exists."""
        (topic,) = await self.create_all([NewTopic(name, partition_count, overrides)])
        return topic

    async def create_all(self, wanted: Sequence[NewTopic]) -> list[Topic | None]:
        """The new topics, which have different names; None for one that exists. Creates all of them, or none if it
        raises LogError."""
        return await self._tasks.run(self._create_all(wanted))

    async def grow(self, topic: Topic, partition_count: int) -> bool:
        """False if the topic was deleted meanwhile, or already has as many partitions."""
        (grown,) = await self.grow_all([(topic, partition_count)])
        return grown

    async def grow_all(self, wanted: Sequence[tuple[Topic, int]]) -> list[bool]:
        """As :meth:`grow`, for several topics. All of them grow, or none if it raises LogError."""
        return await self._tasks.run(self._grow_all(wanted))

    async def set_overrides(self, topic: Topic, overrides: dict[str, str]) -> bool:
        """False if the topic was deleted meanwhile. To compute them from the current ones, hold `config_lock`."""
        return await self._tasks.run(self._set_overrides(topic, overrides))

    async def delete(self, topic: Topic) -> bool:
        """False if it was deleted already."""
        (deleted,) = await self.delete_all([topic])
        return deleted

    async def delete_all(self, to_delete: Sequence[Topic]) -> list[bool]:
        """As :meth:`delete`, for several topics. All of them are deleted, or none if it raises LogError."""
        return await self._tasks.run(self._delete_all(to_delete))

    async def _create_all(self, wanted: Sequence[NewTopic]) -> list[Topic | None]:
        async with self._change_lock:
            topics = [
                None if one.name in self._names else Topic(one.name, uuid.uuid4().bytes, dict(one.overrides))
                for one in wanted
            ]
            counts = {topic: one.partition_count for topic, one in zip(topics, wanted, strict=True) if topic}
            made = await self._make_partitions(counts) if counts else {}
            for topic, partitions in made.items():
                topic.partitions = partitions
                self._publish(topic)
                log_event(
                    logger,
                    "topic created",
                    topic=topic.name,
                    partitions=len(partitions),
                    configs=_format_overrides(topic.overrides),
                )
                self.on_grown(topic.name, 0)
                await asyncio.sleep(0)
            return topics

    async def _grow_all(self, wanted: Sequence[tuple[Topic, int]]) -> list[bool]:
        async with self._change_lock:
            counts = {
                topic: partition_count
                for topic, partition_count in wanted
                if self._names.get(topic.name) is topic and partition_count > len(topic.partitions)
            }
            made = await self._make_partitions(counts) if counts else {}
            for topic, partitions in made.items():
                before = topic.partitions
                # They become visible together with the notice to the groups: an assignment between the two would be
                # misread.
                topic.partitions = [*before, *partitions]
                log_event(logger, "topic grown", topic=topic.name, partitions=len(topic.partitions))
                self.on_grown(topic.name, len(before))
                await asyncio.sleep(0)
            return [topic in counts for topic, _ in wanted]

    async def _make_partitions(self, counts: Mapping[Topic, int]) -> dict[Topic, list[Partition]]:
        """The partitions that the topics do not have yet, on disk and in the file; all of them, or none."""
        await asyncio.to_thread(self._data.write_forgotten)
        await self._store(self._entries_with(counts))
        try:
            made = await asyncio.to_thread(self._open_all, counts)
        except LogError:
            await self._undo(counts)
            raise
        # The file is authoritative. The directories are created meanwhile, or by the first use of a partition.
        logs = [partition.log for partitions in made.values() for partition in partitions]
        making = asyncio.get_running_loop().run_in_executor(None, _make_directories, logs)
        self._tasks.start(_shielded(making))
        return made

    async def _undo(self, counts: Mapping[Topic, int]) -> None:
        """The client did not get a success response, so the new partitions must not exist after a restart."""
        try:
            await self._store(self._entries(), makes_room=True)
        except LogError as error:
            for topic in counts:
                logger.error("topic %s could not be created, but will exist after a restart: %s", topic.name, error)
        await asyncio.to_thread(self._remove_unused, counts)

    async def _set_overrides(self, topic: Topic, overrides: dict[str, str]) -> bool:
        async with self._change_lock:
            if self._names.get(topic.name) is not topic:
                return False
            changed = Topic(topic.name, topic.id, dict(overrides), topic.partitions)
            await self._store(self._entries_with({changed: len(topic.partitions)}))
            topic.overrides = changed.overrides
            self._configure([topic])
            log_event(logger, "topic configured", topic=topic.name, configs=_format_overrides(overrides) or "none")
            return True

    def reconfigure(self, config: BrokerConfig) -> None:
        """The broker's configs have changed, and with them the defaults of all topics."""
        self._config = config
        self._configure(self._names.values())

    def _configure(self, topics: Iterable[Topic]) -> None:
        resolved = _ConfigCache(self._config)
        for topic in topics:
            configs = resolved.configs_of(topic)
            for partition in topic.partitions:
                partition.configure(*configs)

    async def _delete_all(self, to_delete: Sequence[Topic]) -> list[bool]:
        async with self._change_lock:
            deleting = [topic for topic in to_delete if self._names.get(topic.name) is topic]
            if deleting:
                await self._store(self._entries_without(deleting), makes_room=True)
                # From here on the topics are deleted, even if the disk fails during the rest.
                for topic in deleting:
                    self._unpublish(topic)
                refused = await asyncio.to_thread(self._mark_directories_deleted, deleting)
                # Removing files takes the longest, and no request waits for it.
                purging = asyncio.get_running_loop().run_in_executor(None, self._purge, deleting, refused)
                self._tasks.start(_shielded(purging))
                for topic in deleting:
                    log_event(logger, "topic deleted", topic=topic.name)
                    self.on_deleted(topic.name)
                    await asyncio.sleep(0)
            gone = set(deleting)
            return [topic in gone for topic in to_delete]

    def _unpublish(self, topic: Topic) -> None:
        del self._names[topic.name]
        del self._ids[topic.id]
        for partition in topic.partitions:
            partition.deleted = True
            partition.wake_fetchers()

    # -- on disk -------------------------------------------------------------------------------------------------------

    # The entries are made when the file is written, in a worker thread: for ten thousand topics, they and their text
    # take a tenth of a second. No topic changes meanwhile, because every change holds `_change_lock`.

    def _entries(self) -> Iterator[_Entry]:
        for topic in self._names.values():
            yield _Entry(topic.name, topic.id, len(topic.partitions), topic.overrides)

    def _entries_with(self, counts: Mapping[Topic, int]) -> Iterator[_Entry]:
        """With these topics in their new state."""
        yield from self._entries_without(counts)
        for topic, partition_count in counts.items():
            yield _Entry(topic.name, topic.id, partition_count, topic.overrides)

    def _entries_without(self, topics: Iterable[Topic]) -> Iterator[_Entry]:
        names = {topic.name for topic in topics}
        return (entry for entry in self._entries() if entry.name not in names)

    async def _store(self, entries: Iterator[_Entry], *, makes_room: bool = False) -> None:
        """A change that frees space may use the reserve file. Others may not, or it would soon be used up."""
        replace_file = self._data.reserve.replace_file if makes_room else disk.replace_file
        await asyncio.to_thread(self._write_file, entries, replace_file)

    def _write_file(self, entries: Iterator[_Entry], replace_file: ReplaceFile) -> None:
        path = self._data.path / TOPICS_FILE
        topics = dict(map(_to_json, entries))
        text = json.dumps({"version": 1, "topics": topics, "crc32c": _crc_of(topics)}, indent=1)
        try:
            replace_file(path, text.encode())
        except OSError as error:
            raise StorageError("write", path, error) from error

    def _open_all(self, counts: Mapping[Topic, int]) -> dict[Topic, list[Partition]]:
        """The partitions that the topics do not have yet."""
        resolved = _ConfigCache(self._config)
        return {topic: self._open_partitions(topic, count, resolved, is_new=True) for topic, count in counts.items()}

    def _open_partitions(
        self, topic: Topic, partition_count: int, resolved: _ConfigCache, *, is_new: bool = False
    ) -> list[Partition]:
        config, log_config = resolved.configs_of(topic)
        return [
            Partition(topic.name, index, self._open_log(topic, index, log_config, is_new=is_new), config)
            for index in range(len(topic.partitions), partition_count)
        ]

    def _open_log(self, topic: Topic, index: int, config: LogConfig, *, is_new: bool) -> PartitionLog:
        if self._data.knows(topic.name, index):
            # After a clean shutdown the directory cannot belong to another topic.
            return self._data.open_log(topic.name, index, config, now_ms=self._now_ms())
        directory = self._data.partition_path(topic.name, index)
        if is_new and not directory.exists():
            topic_id = uuid.UUID(bytes=topic.id)
            return self._data.new_log(topic.name, index, config, topic_id, now_ms=self._now_ms())
        try:
            owner = read_topic_id(directory)
            if owner is not None and owner.bytes != topic.id:
                self._quarantine(directory)
                self._data.forget(topic.name, index)
            log = self._data.open_log(topic.name, index, config, now_ms=self._now_ms())
            if owner is None or owner.bytes != topic.id:
                write_topic_id(directory, uuid.UUID(bytes=topic.id))
        except OSError as error:
            raise StorageError("open", directory, error) from error
        return log

    def _publish(self, topic: Topic) -> None:
        self._names[topic.name] = topic
        self._ids[topic.id] = topic

    def _mark_directories_deleted(self, topics: Sequence[Topic]) -> list[StorageError]:
        """Renames them to names that no topic has; a directory that cannot be renamed is quarantined later.

        Returns the errors.
        """
        for topic in topics:
            for partition in topic.partitions:
                partition.log.close(clean=False)
        keys = [(partition.topic_name, partition.index) for topic in topics for partition in topic.partitions]
        return self._data.delete_partitions(keys)

    def _purge(self, topics: Sequence[Topic], errors: Sequence[StorageError]) -> None:
        """A step that fails here is repeated later: a directory is purged at the next start, and the topics' entries in
        the checkpoints are removed before a topic of the same name is created."""
        refused: list[LogError | OSError] = [*errors]
        # The checkpoints are written last, because on a full disk there is room for them after the files are removed.
        steps = self._data.purge_deleted, self._data.write_forgotten, self._data.reserve.fill
        for step in steps:
            try:
                step()
            except (LogError, OSError) as error:
                refused.append(error)
        if refused:
            names, first = ",".join(topic.name for topic in topics[:10]), str(refused[0])
            log_event(logger, "topic deleted; some of its files remain", logging.WARNING, topic=names, error=first)

    def _remove_unused(self, counts: Mapping[Topic, int]) -> None:
        """Removes partitions of a failed creation. One with records in it is left alone."""
        try:
            unused = [
                (topic.name, index)
                for topic, partition_count in counts.items()
                for index in range(len(topic.partitions), partition_count)
                if self._is_unused(self._data.partition_path(topic.name, index))
            ]
            for error in self._data.delete_partitions(unused):
                raise error
            self._data.purge_deleted()
        except (LogError, OSError) as error:
            names = ",".join(topic.name for topic in counts)
            logger.error("cannot remove the partitions of a failed creation of topic %s: %s", names, error)

    @staticmethod
    def _is_unused(directory: Path) -> bool:
        return directory.is_dir() and not any(path.stat().st_size for path in directory.glob("*.log"))

    def _quarantine(self, directory: Path) -> None:
        suffix = f".{uuid.uuid4().hex}{STRAY}"
        # A topic's name may be as long as a file name, so it is truncated to make room for the suffix.
        aside = directory.with_name(directory.name[: MAX_FILE_NAME_LENGTH - len(suffix)] + suffix)
        log_event(
            logger,
            "directory renamed; it belongs to no topic",
            logging.WARNING,
            name=directory.name,
            kept_as=aside.name,
        )
        disk.rename(directory, aside)
