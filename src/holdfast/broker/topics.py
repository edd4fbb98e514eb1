"""The topics: which there are, their partitions on disk, and the one file that says so.

`topics.json` is the truth. It is replaced whole and atomically, before the directories of a new topic are made and
before those of a deleted one are removed; whatever a crash leaves half done in between is dealt with at the next start:
a missing partition directory is made (empty), and a directory that belongs to no topic of the file is set aside under
a name ending in `-stray`, never removed: it is all that is left of somebody's records.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from google_crc32c import value as crc32c

from holdfast.broker.changes import Changes
from holdfast.broker.config import BrokerConfig, ConfigError
from holdfast.broker.log_lines import say
from holdfast.broker.partition import Partition
from holdfast.broker.topic_config import TopicConfig, validate_override
from holdfast.coordinator.ledger import LEDGER_TOPIC
from holdfast.log import DataDirectory, LogConfig, LogError, PartitionLog, StorageError, disk
from holdfast.log.checkpoint import ReplaceFile
from holdfast.log.partition_metadata import decode_topic_id, encode_topic_id, read_topic_id, write_topic_id

logger = logging.getLogger(__name__)

TOPICS_FILE: Final = "topics.json"
STRAY: Final = "-stray"
MAX_NAME: Final = 249
MAX_FILE_NAME: Final = 255
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
    if len(name) > MAX_NAME:
        return f"the length of '{name}' is longer than the max allowed length {MAX_NAME}"
    if not _LEGAL_NAME.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def _told(overrides: Mapping[str, str]) -> str | None:
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
    """Without what no topic config takes: the broker's own is used instead, and the data can be read."""
    valid: dict[str, str] = {}
    for name, value in stored.items():
        try:
            validate_override(name, value)
        except ConfigError as error:
            say(logger, "topic config ignored", logging.WARNING, topic=topic, error=error)
        else:
            valid[name] = value
    return valid


class _Entry(NamedTuple):
    """A topic as the file tells of it."""

    name: str
    id: bytes
    partition_count: int
    overrides: Mapping[str, str]


def _told_in_file(entry: _Entry) -> tuple[str, dict[str, Any]]:
    topic_id = encode_topic_id(uuid.UUID(bytes=entry.id))
    return entry.name, {"id": topic_id, "partitions": entry.partition_count, "configs": dict(entry.overrides)}


def _crc_of(topics: Mapping[str, Any]) -> int:
    """So that a changed digit is not taken for a number of partitions or a retention time."""
    return int(crc32c(json.dumps(topics, sort_keys=True).encode()))


class Topics:
    """All topics by name and by id. Changes are serialised and on disk before they are seen."""

    def __init__(self, data: DataDirectory, config: BrokerConfig, changes: Changes, now_ms: Callable[[], int]) -> None:
        self._data = data
        self._config = config
        self._now_ms = now_ms
        self._names: dict[str, Topic] = {}
        self._ids: dict[bytes, Topic] = {}
        self._changing = asyncio.Lock()
        self._changes = changes
        self.on_deleted: Callable[[str], None] = lambda _name: None
        self.on_grown: Callable[[str, int], None] = lambda _name, _before: None
        """Also of a topic that is new: until then it had no partitions."""
        self.configuring = asyncio.Lock()
        """Held from reading a topic's overrides to storing new ones, so that no change is lost to another."""

    # -- looking -------------------------------------------------------------------------------------------------------

    def get(self, name: str) -> Topic | None:
        return self._names.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        return self._ids.get(topic_id)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._names.values())

    def __len__(self) -> int:
        return len(self._names)

    def partitions(self) -> Iterator[Partition]:
        # A copy: worker threads go over it while the event loop creates and deletes topics.
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
                self._set_aside(directory)
        for name, entry in entries.items():
            topic = Topic(name, decode_topic_id(entry["id"]).bytes, _valid_overrides(name, entry["configs"]))
            topic.partitions = self._open_partitions(topic, int(entry["partitions"]))
            self._publish(topic)
        try:
            self.write_checkpoints()
        except StorageError as error:
            # On a full disk as well: only a broker that runs can be told what to delete.
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
            # The file comes before the first partition, so partitions without it mean that it was lost.
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
        """How far the logs are flushed and where they start; entries of partitions that are gone must not stay,
        or a new topic of the same name would begin where the old one was cut."""
        logs = self.logs()
        self._data.write_recovery_points(logs)
        self._data.write_start_offsets(logs)
        self._data.write_forgotten()
        self._data.reserve.fill()

    # -- changing ------------------------------------------------------------------------------------------------------
    # Each change runs to its end even if the client that asked for it goes away: file, memory and directories agree.

    async def create(self, name: str, partition_count: int, overrides: dict[str, str]) -> Topic | None:
        """The new topic, or None if one of that name exists."""
        return await self._changes.to_the_end(self._create(name, partition_count, overrides))

    async def grow(self, topic: Topic, partition_count: int) -> bool:
        """False if the topic was deleted meanwhile, or has as many partitions already."""
        return await self._changes.to_the_end(self._grow(topic, partition_count))

    async def set_overrides(self, topic: Topic, overrides: dict[str, str]) -> bool:
        """False if the topic was deleted meanwhile. To compute them from the present ones, hold `configuring`."""
        return await self._changes.to_the_end(self._set_overrides(topic, overrides))

    async def delete(self, topic: Topic) -> bool:
        """False if somebody else deleted it first."""
        return await self._changes.to_the_end(self._delete(topic))

    async def _create(self, name: str, partition_count: int, overrides: dict[str, str]) -> Topic | None:
        async with self._changing:
            if name in self._names:
                return None
            topic = Topic(name, uuid.uuid4().bytes, dict(overrides))
            topic.partitions = await self._make_partitions(topic, partition_count)
            self._publish(topic)
            say(logger, "topic created", topic=name, partitions=partition_count, configs=_told(overrides))
            self.on_grown(name, 0)
            return topic

    async def _grow(self, topic: Topic, partition_count: int) -> bool:
        async with self._changing:
            if self._names.get(topic.name) is not topic or partition_count <= len(topic.partitions):
                return False
            before, made = topic.partitions, await self._make_partitions(topic, partition_count)
            # Nobody sees the new ones before the groups hear of them: an assignment between the two would be misread.
            topic.partitions = [*before, *made]
            say(logger, "topic grown", topic=topic.name, partitions=partition_count)
            self.on_grown(topic.name, len(before))
            return True

    async def _make_partitions(self, topic: Topic, partition_count: int) -> list[Partition]:
        """Those that the topic has not got yet, on disk and in the file; all of them, or none."""
        await asyncio.to_thread(self._data.write_forgotten)
        await self._store(self._entries_with(topic, partition_count))
        try:
            return await asyncio.to_thread(self._open_partitions, topic, partition_count)
        except LogError:
            await self._undo(topic, partition_count)
            raise

    async def _undo(self, topic: Topic, partition_count: int) -> None:
        """Nobody was told of the new partitions, so they must not be there after a restart."""
        try:
            await self._store(self._entries(), makes_room=True)
        except LogError as error:
            logger.error("what could not be made of topic %s will be there after a restart: %s", topic.name, error)
        await asyncio.to_thread(self._remove_unused, topic, partition_count)

    async def _set_overrides(self, topic: Topic, overrides: dict[str, str]) -> bool:
        async with self._changing:
            if self._names.get(topic.name) is not topic:
                return False
            changed = Topic(topic.name, topic.id, dict(overrides), topic.partitions)
            await self._store(self._entries_with(changed, len(topic.partitions)))
            topic.overrides = changed.overrides
            self._configure([topic])
            say(logger, "topic configured", topic=topic.name, configs=_told(overrides) or "none")
            return True

    def reconfigure(self, config: BrokerConfig) -> None:
        """The broker's own configs have changed, and with them what topics have not set themselves."""
        self._config = config
        self._configure(self._names.values())

    def _configure(self, topics: Iterable[Topic]) -> None:
        # Most topics have the same overrides, none, and resolving them takes longer than all the rest.
        resolved: dict[frozenset[tuple[str, str]], tuple[TopicConfig, LogConfig]] = {}
        for topic in topics:
            overrides = frozenset(topic.overrides.items())
            if overrides not in resolved:
                config = TopicConfig.resolve(self._config, topic.overrides)
                resolved[overrides] = config, config.to_log_config()
            for partition in topic.partitions:
                partition.configure(*resolved[overrides])

    async def _delete(self, topic: Topic) -> bool:
        async with self._changing:
            if self._names.get(topic.name) is not topic:
                return False
            await self._store(self._entries_without(topic), makes_room=True)
            # From here on the topic is gone, whatever the disk says to the rest.
            del self._names[topic.name]
            del self._ids[topic.id]
            for partition in topic.partitions:
                partition.deleted = True
                partition.notify()
            try:
                await asyncio.to_thread(self._remove_directories, topic)
            finally:
                say(logger, "topic deleted", topic=topic.name)
                self.on_deleted(topic.name)
            return True

    # -- on disk -------------------------------------------------------------------------------------------------------

    # The entries are made when the file is written, in a worker: of ten thousand topics they and their text take a
    # tenth of a second. No topic changes meanwhile, because whoever changes one holds `_changing`.

    def _entries(self) -> Iterator[_Entry]:
        for topic in self._names.values():
            yield _Entry(topic.name, topic.id, len(topic.partitions), topic.overrides)

    def _entries_with(self, topic: Topic, partition_count: int) -> Iterator[_Entry]:
        """With this topic as it shall be."""
        yield from self._entries_without(topic)
        yield _Entry(topic.name, topic.id, partition_count, topic.overrides)

    def _entries_without(self, topic: Topic) -> Iterator[_Entry]:
        return (entry for entry in self._entries() if entry.name != topic.name)

    async def _store(self, entries: Iterator[_Entry], *, makes_room: bool = False) -> None:
        """What makes room may take from the reserve; what takes room may not, or it would soon be gone."""
        replace_file = self._data.reserve.replace_file if makes_room else disk.replace_file
        await asyncio.to_thread(self._write_file, entries, replace_file)

    def _write_file(self, entries: Iterator[_Entry], replace_file: ReplaceFile) -> None:
        path = self._data.path / TOPICS_FILE
        topics = dict(map(_told_in_file, entries))
        text = json.dumps({"version": 1, "topics": topics, "crc32c": _crc_of(topics)}, indent=1)
        try:
            replace_file(path, text.encode())
        except OSError as error:
            raise StorageError("write", path, error) from error

    def _open_partitions(self, topic: Topic, partition_count: int) -> list[Partition]:
        """Those that the topic has not got yet."""
        config = TopicConfig.resolve(self._config, topic.overrides)
        log_config = config.to_log_config()
        return [
            Partition(topic.name, index, self._open_log(topic, index, log_config), config)
            for index in range(len(topic.partitions), partition_count)
        ]

    def _open_log(self, topic: Topic, index: int, config: LogConfig) -> PartitionLog:
        if self._data.knows(topic.name, index):
            # Nobody can have changed whose directory it is since it was closed properly.
            return self._data.open_log(topic.name, index, config, now_ms=self._now_ms())
        directory = self._data.partition_path(topic.name, index)
        try:
            owner = read_topic_id(directory)
            if owner is not None and owner.bytes != topic.id:
                self._set_aside(directory)
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

    def _remove_directories(self, topic: Topic) -> None:
        """What the disk refuses is done later: a directory is set aside or purged at the next start, and what the
        checkpoints tell of the topic goes before one of its name is made."""
        # The checkpoints come last: on a full disk they have room when the files are gone.
        steps: list[Callable[[], None]] = [partial(self._remove_directory, partition) for partition in topic.partitions]
        steps += [self._data.purge_deleted, self.write_checkpoints]
        refused: list[LogError | OSError] = []
        for step in steps:
            try:
                step()
            except (LogError, OSError) as error:
                refused.append(error)
        if refused:
            level, first = logging.WARNING, str(refused[0])
            say(logger, "topic deleted, but not all of its traces", level, topic=topic.name, error=first)

    def _remove_directory(self, partition: Partition) -> None:
        partition.log.close(clean=False)
        self._data.delete_partition(partition.topic_name, partition.index)

    def _remove_unused(self, topic: Topic, partition_count: int) -> None:
        """What is left of partitions that could not all be made. One with records in it is not ours to remove."""
        try:
            for index in range(len(topic.partitions), partition_count):
                directory = self._data.partition_path(topic.name, index)
                if directory.is_dir() and not any(path.stat().st_size for path in directory.glob("*.log")):
                    self._data.delete_partition(topic.name, index)
            self._data.purge_deleted()
        except (LogError, OSError) as error:
            logger.error("what could not be made of topic %s cannot be removed: %s", topic.name, error)

    def _set_aside(self, directory: Path) -> None:
        suffix = f".{uuid.uuid4().hex}{STRAY}"
        # A topic's name may be as long as a file's, so something has to go to make room for the suffix.
        aside = directory.with_name(directory.name[: MAX_FILE_NAME - len(suffix)] + suffix)
        say(
            logger,
            "directory set aside; it belongs to no topic",
            logging.WARNING,
            name=directory.name,
            kept_as=aside.name,
        )
        disk.rename(directory, aside)
