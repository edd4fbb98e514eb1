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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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


class NewTopic(NamedTuple):
    """A topic to be made."""

    name: str
    partition_count: int
    overrides: Mapping[str, str]


class _Resolved:
    """What topics go by. Most have the same overrides, none, and resolving them takes longer than all the rest."""

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
            log.wake()
    except LogError as error:
        # A full disk, most likely: whoever needs one of them is told, and tries again.
        logger.warning("a new partition has no directory yet: %s", error)


async def _end_of(work: asyncio.Future[None]) -> None:
    # A thread cannot be cancelled, and one that has not begun must not be: the disk would not be as it should.
    await asyncio.shield(work)


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
        resolved = _Resolved(self._config)
        for name, entry in entries.items():
            topic = Topic(name, decode_topic_id(entry["id"]).bytes, _valid_overrides(name, entry["configs"]))
            topic.partitions = self._open_partitions(topic, int(entry["partitions"]), resolved)
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
        (topic,) = await self.create_all([NewTopic(name, partition_count, overrides)])
        return topic

    async def create_all(self, wanted: Sequence[NewTopic]) -> list[Topic | None]:
        """The new topics, each of another name; None for one that exists. All are made, or with a LogError none."""
        return await self._changes.to_the_end(self._create_all(wanted))

    async def grow(self, topic: Topic, partition_count: int) -> bool:
        """False if the topic was deleted meanwhile, or has as many partitions already."""
        (grown,) = await self.grow_all([(topic, partition_count)])
        return grown

    async def grow_all(self, wanted: Sequence[tuple[Topic, int]]) -> list[bool]:
        """As :meth:`grow`, for several topics; all of them grow, or with a LogError none."""
        return await self._changes.to_the_end(self._grow_all(wanted))

    async def set_overrides(self, topic: Topic, overrides: dict[str, str]) -> bool:
        """False if the topic was deleted meanwhile. To compute them from the present ones, hold `configuring`."""
        return await self._changes.to_the_end(self._set_overrides(topic, overrides))

    async def delete(self, topic: Topic) -> bool:
        """False if somebody else deleted it first."""
        (deleted,) = await self.delete_all([topic])
        return deleted

    async def delete_all(self, doomed: Sequence[Topic]) -> list[bool]:
        """As :meth:`delete`, for several topics; all of them go, or with a LogError none."""
        return await self._changes.to_the_end(self._delete_all(doomed))

    async def _create_all(self, wanted: Sequence[NewTopic]) -> list[Topic | None]:
        async with self._changing:
            topics = [
                None if one.name in self._names else Topic(one.name, uuid.uuid4().bytes, dict(one.overrides))
                for one in wanted
            ]
            counts = {topic: one.partition_count for topic, one in zip(topics, wanted, strict=True) if topic}
            made = await self._make_partitions(counts) if counts else {}
            for topic, partitions in made.items():
                topic.partitions = partitions
                self._publish(topic)
                say(
                    logger,
                    "topic created",
                    topic=topic.name,
                    partitions=len(partitions),
                    configs=_told(topic.overrides),
                )
                self.on_grown(topic.name, 0)
                await asyncio.sleep(0)
            return topics

    async def _grow_all(self, wanted: Sequence[tuple[Topic, int]]) -> list[bool]:
        async with self._changing:
            counts = {
                topic: partition_count
                for topic, partition_count in wanted
                if self._names.get(topic.name) is topic and partition_count > len(topic.partitions)
            }
            made = await self._make_partitions(counts) if counts else {}
            for topic, partitions in made.items():
                before = topic.partitions
                # Nobody sees them before the groups hear of them: an assignment between the two would be misread.
                topic.partitions = [*before, *partitions]
                say(logger, "topic grown", topic=topic.name, partitions=len(topic.partitions))
                self.on_grown(topic.name, len(before))
                await asyncio.sleep(0)
            return [topic in counts for topic, _ in wanted]

    async def _make_partitions(self, counts: Mapping[Topic, int]) -> dict[Topic, list[Partition]]:
        """Those that the topics have not got yet, on disk and in the file; all of them, or none."""
        await asyncio.to_thread(self._data.write_forgotten)
        await self._store(self._entries_with(counts))
        try:
            made = await asyncio.to_thread(self._open_all, counts)
        except LogError:
            await self._undo(counts)
            raise
        # The file is what counts; the directories are made meanwhile, or by whoever is faster and needs one.
        logs = [partition.log for partitions in made.values() for partition in partitions]
        making = asyncio.get_running_loop().run_in_executor(None, _make_directories, logs)
        self._changes.start(_end_of(making))
        return made

    async def _undo(self, counts: Mapping[Topic, int]) -> None:
        """Nobody was told of the new partitions, so they must not be there after a restart."""
        try:
            await self._store(self._entries(), makes_room=True)
        except LogError as error:
            for topic in counts:
                logger.error("what could not be made of topic %s will be there after a restart: %s", topic.name, error)
        await asyncio.to_thread(self._remove_unused, counts)

    async def _set_overrides(self, topic: Topic, overrides: dict[str, str]) -> bool:
        async with self._changing:
            if self._names.get(topic.name) is not topic:
                return False
            changed = Topic(topic.name, topic.id, dict(overrides), topic.partitions)
            await self._store(self._entries_with({changed: len(topic.partitions)}))
            topic.overrides = changed.overrides
            self._configure([topic])
            say(logger, "topic configured", topic=topic.name, configs=_told(overrides) or "none")
            return True

    def reconfigure(self, config: BrokerConfig) -> None:
        """The broker's own configs have changed, and with them what topics have not set themselves."""
        self._config = config
        self._configure(self._names.values())

    def _configure(self, topics: Iterable[Topic]) -> None:
        resolved = _Resolved(self._config)
        for topic in topics:
            configs = resolved.configs_of(topic)
            for partition in topic.partitions:
                partition.configure(*configs)

    async def _delete_all(self, doomed: Sequence[Topic]) -> list[bool]:
        async with self._changing:
            going = [topic for topic in doomed if self._names.get(topic.name) is topic]
            if going:
                await self._store(self._entries_without(going), makes_room=True)
                # From here on the topics are gone, whatever the disk says to the rest.
                for topic in going:
                    self._withdraw(topic)
                refused = await asyncio.to_thread(self._give_up_directories, going)
                # Removing files takes longer than all the rest, and nobody waits for it.
                purging = asyncio.get_running_loop().run_in_executor(None, self._purge, going, refused)
                self._changes.start(_end_of(purging))
                for topic in going:
                    say(logger, "topic deleted", topic=topic.name)
                    self.on_deleted(topic.name)
                    await asyncio.sleep(0)
            gone = set(going)
            return [topic in gone for topic in doomed]

    def _withdraw(self, topic: Topic) -> None:
        del self._names[topic.name]
        del self._ids[topic.id]
        for partition in topic.partitions:
            partition.deleted = True
            partition.notify()

    # -- on disk -------------------------------------------------------------------------------------------------------

    # The entries are made when the file is written, in a worker: of ten thousand topics they and their text take a
    # tenth of a second. No topic changes meanwhile, because whoever changes one holds `_changing`.

    def _entries(self) -> Iterator[_Entry]:
        for topic in self._names.values():
            yield _Entry(topic.name, topic.id, len(topic.partitions), topic.overrides)

    def _entries_with(self, counts: Mapping[Topic, int]) -> Iterator[_Entry]:
        """With these topics as they shall be."""
        yield from self._entries_without(counts)
        for topic, partition_count in counts.items():
            yield _Entry(topic.name, topic.id, partition_count, topic.overrides)

    def _entries_without(self, topics: Iterable[Topic]) -> Iterator[_Entry]:
        names = {topic.name for topic in topics}
        return (entry for entry in self._entries() if entry.name not in names)

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

    def _open_all(self, counts: Mapping[Topic, int]) -> dict[Topic, list[Partition]]:
        """The partitions that the topics have not got yet."""
        resolved = _Resolved(self._config)
        return {topic: self._open_partitions(topic, count, resolved, is_new=True) for topic, count in counts.items()}

    def _open_partitions(
        self, topic: Topic, partition_count: int, resolved: _Resolved, *, is_new: bool = False
    ) -> list[Partition]:
        config, log_config = resolved.configs_of(topic)
        return [
            Partition(topic.name, index, self._open_log(topic, index, log_config, is_new=is_new), config)
            for index in range(len(topic.partitions), partition_count)
        ]

    def _open_log(self, topic: Topic, index: int, config: LogConfig, *, is_new: bool) -> PartitionLog:
        if self._data.knows(topic.name, index):
            # Nobody can have changed whose directory it is since it was closed properly.
            return self._data.open_log(topic.name, index, config, now_ms=self._now_ms())
        directory = self._data.partition_path(topic.name, index)
        if is_new and not directory.exists():
            topic_id = uuid.UUID(bytes=topic.id)
            return self._data.new_log(topic.name, index, config, topic_id, now_ms=self._now_ms())
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

    def _give_up_directories(self, topics: Sequence[Topic]) -> list[StorageError]:
        """They get names that no topic has; returns what the disk refused. Such a directory is set aside later."""
        for topic in topics:
            for partition in topic.partitions:
                partition.log.close(clean=False)
        keys = [(partition.topic_name, partition.index) for topic in topics for partition in topic.partitions]
        return self._data.delete_partitions(keys)

    def _purge(self, topics: Sequence[Topic], errors: Sequence[StorageError]) -> None:
        """What the disk refuses is done later: a directory is purged at the next start, and what the checkpoints tell
        of the topics goes before one of their names is made."""
        refused: list[LogError | OSError] = [*errors]
        # The checkpoints come last: on a full disk they have room when the files are gone.
        steps = self._data.purge_deleted, self._data.write_forgotten, self._data.reserve.fill
        for step in steps:
            try:
                step()
            except (LogError, OSError) as error:
                refused.append(error)
        if refused:
            names, first = ",".join(topic.name for topic in topics[:10]), str(refused[0])
            say(logger, "topic deleted, but not all of its traces", logging.WARNING, topic=names, error=first)

    def _remove_unused(self, counts: Mapping[Topic, int]) -> None:
        """What is left of partitions that could not all be made. One with records in it is not ours to remove."""
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
            logger.error("what could not be made of topic %s cannot be removed: %s", names, error)

    @staticmethod
    def _is_unused(directory: Path) -> bool:
        return directory.is_dir() and not any(path.stat().st_size for path in directory.glob("*.log"))

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
