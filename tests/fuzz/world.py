"""A broker without sockets, files and time: the real connections, handlers, groups and coordinator around it.

What is ours here is what the coordinator is driven by: a clock that is moved, a journal in memory whose appends and
flushes fail when told to, and peers that send bytes. Everything else is the broker's own code.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast

import holdfast.broker.handlers  # noqa: F401  # registers every handler
from holdfast.broker.changes import Changes
from holdfast.broker.clock import PauseAwareClock
from holdfast.broker.config import BrokerConfig
from holdfast.broker.framing import SCRATCH_BYTES
from holdfast.broker.groups import Groups
from holdfast.broker.handlers.api_versions import unsupported_version
from holdfast.broker.journal import GroupJournal
from holdfast.broker.ledger import LedgerWriter
from holdfast.broker.memory import RequestMemory
from holdfast.broker.partition import Partition
from holdfast.broker.server import Broker
from holdfast.broker.topic_config import TopicConfig
from holdfast.broker.topics import Topic
from holdfast.coordinator.effects import Record
from holdfast.coordinator.ledger import Event
from holdfast.log import PartitionLog, StorageError
from holdfast.log.inspection import at_once
from holdfast.wire.group_records import (
    GroupRecordKey,
    GroupRecordValue,
    HighestGenerationKey,
    decode_record,
    encode_key,
    encode_value,
    partition_for,
)

SETTINGS: Final = {
    "group.min.session.timeout.ms": "100",
    "group.initial.rebalance.delay.ms": "200",
    "group.max.size": "4",
    "offsets.topic.num.partitions": "2",
    "auto.create.topics.enable": "false",
    "queued.max.request.bytes": "100000",
    "socket.request.max.bytes": "50000",
}
TOPICS: Final = {"t": (b"T" * 16, 3), "u": (b"U" * 16, 1)}
"""Names, ids and how many partitions."""
START_MS: Final = 1_000_000
MAX_ROUNDS: Final = 10_000
"""In so many steps of the event loop, or timers, everything has come to rest."""

_CONFIG: Final = BrokerConfig.of(SETTINGS)
_SCRATCH: Final = memoryview(bytearray(SCRATCH_BYTES))


class MovedClock:
    """As `PauseAwareClock`, for those who only ask for the time."""

    def __init__(self) -> None:
        self.ms = START_MS

    def now(self) -> float:
        # In the middle of the millisecond, so that no rounding leads to another one.
        return (self.ms + 0.5) / 1000

    coarse = property(now)


class MemoryTopics:
    def __init__(self) -> None:
        self._names: dict[str, Topic] = {}
        config = TopicConfig.resolve(_CONFIG, {})
        for name, (topic_id, count) in TOPICS.items():
            # Nobody who may be asked here looks into a log.
            partitions = [Partition(name, index, cast(PartitionLog, None), config) for index in range(count)]
            self._names[name] = Topic(name, topic_id, {}, partitions)

    def get(self, name: str) -> Topic | None:
        return self._names.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        return next((topic for topic in self if topic.id == topic_id), None)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._names.values())


class _Home:
    """Where a group's records are, as far as `Groups` looks at it."""

    def __init__(self, flush: str) -> None:
        self.config = self
        self.flush = flush

    def notify(self) -> None:
        pass


class Disk:
    """Appends and flushes, and what becomes of them."""

    def __init__(self) -> None:
        self.outcomes: list[bool] = []
        """Of the next appends, in order; later ones succeed."""
        self.slow = False
        """Flushes wait to be released."""
        self.flushes: list[asyncio.Future[None]] = []
        self.in_doubt = False
        """A flush failed: its records may be found again or not, and nobody can say what is stored."""

    def check(self) -> None:
        if self.outcomes and not self.outcomes.pop(0):
            raise self.error()

    @staticmethod
    def error() -> StorageError:
        return StorageError("write", Path("journal"), OSError(28, "No space left on device"))

    # -- as the flusher ------------------------------------------------------------------------------------------------

    def written(self, _partition: Any) -> None:
        pass

    def flushed(self, _partition: Any) -> asyncio.Future[None]:
        flush: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.flushes.append(flush)
        return flush

    def release(self, *, failing: bool = False) -> None:
        """The oldest flush is done."""
        if self.flushes:
            flush = self.flushes.pop(0)
            if failing:
                self.in_doubt = True
                flush.set_exception(self.error())
            else:
                flush.set_result(None)


class MemoryJournal:
    exists = True
    partition_count = _CONFIG.offsets_topic_num_partitions

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.records: list[list[tuple[bytes, bytes | None]]] = [[] for _ in range(self.partition_count)]

    def append(self, group_id: str, records: Sequence[Record], now_ms: int) -> Any:
        written = [(encode_key(key), None if value is None else encode_value(value)) for key, value in records]
        self._disk.check()
        self.records[partition_for(group_id, self.partition_count)] += written
        return _Home("always" if self._disk.slow else "background")

    def replay(self, index: int) -> Iterator[tuple[GroupRecordKey, GroupRecordValue | None]]:
        for key, value in self.records[index]:
            decoded = decode_record(key, value)
            assert decoded is not None
            yield decoded

    def compact(self) -> None:
        """As the log cleaner, tombstones included once they are the last of their key."""
        for index, records in enumerate(self.records):
            latest = dict(records)
            order = {key: place for place, (key, _) in enumerate(records)}
            self.records[index] = [(key, latest[key]) for key in sorted(latest, key=order.__getitem__)]

    def drop_tombstones(self) -> None:
        self.compact()
        self.records = [[(key, value) for key, value in records if value is not None] for records in self.records]

    @property
    def facts(self) -> list[GroupRecordKey]:
        """What is stored of any group, once everything that is gone is forgotten."""
        self.drop_tombstones()
        keys = [key for index in range(self.partition_count) for key, _ in self.replay(index)]
        return [key for key in keys if not isinstance(key, HighestGenerationKey)]

    def forget_groups(self) -> None:
        """Only how far generations went is left, as after the deletion of every group."""
        self.drop_tombstones()
        highest = encode_key(HighestGenerationKey())
        self.records = [[(key, value) for key, value in records if key == highest] for records in self.records]


class ForgetfulLedger:
    """Events are written down as always, and nobody keeps them."""

    def write(self, events: list[Event], now_ms: int) -> None:
        for event in events:
            event.to_json()
            event.group_id.encode()


class MemoryGroups(Groups):
    def __init__(self, broker: Broker, journal: MemoryJournal, ids: Iterator[int]) -> None:
        super().__init__(broker)
        self.journal = cast(GroupJournal, journal)
        self._ledger = cast(LedgerWriter, ForgetfulLedger())
        self._ids = ids

    def fresh_id(self) -> str:  # type: ignore[override]  # the broker's are random; these are found again
        return str(next(self._ids))

    def tick(self) -> None:
        """Everything that is due in one go: whether a slice is over depends on the machine."""
        at_once(self._fire(self.now_ms()))

    def load(self, partition: int) -> None:
        """What `Groups.start` does for one partition, in one step."""
        for key, value in self.journal.replay(partition):
            self.coordinator.load_record(key, value)
        self._perform(self.coordinator.finish_loading(partition, self.now_ms()))

    def sweep(self) -> None:
        self._perform(self.coordinator.expire_offsets(self.now_ms()))

    def topic_deleted(self, name: str) -> None:
        self._topic_deleted(name)

    def topic_grown(self, name: str) -> None:
        """Its last partition is taken for a new one."""
        self._topic_grown(name, self._size_of(name) - 1)


class FuzzedBroker(Broker):
    """The broker as handlers and connections see it."""

    def __init__(self) -> None:
        super().__init__(_CONFIG, Path("nowhere"))
        self.scratch = _SCRATCH
        self.changes = Changes()
        self.memory = RequestMemory(_CONFIG.queued_max_request_bytes)
        self.unsupported_api_versions = unsupported_version()
        self.moved_clock = MovedClock()
        self.clock = cast(PauseAwareClock, self.moved_clock)
        self.moody_disk = Disk()
        self.flusher = cast(Any, self.moody_disk)
        self.topics = cast(Any, MemoryTopics())
        self.memory_journal = MemoryJournal(self.moody_disk)
        self._ids = itertools.count(1)
        self.restart_groups()

    cluster_id = property(lambda _self: "fuzzed")

    def now_ms(self) -> int:  # type: ignore[override]  # the wall clock is moved along
        return self.moved_clock.ms

    async def alter_configs(self, config: BrokerConfig) -> None:
        self.config = config

    def restart_groups(self) -> None:
        self.memory_groups = MemoryGroups(self, self.memory_journal, self._ids)
        self.groups = self.memory_groups


async def come_to_rest() -> None:
    """Lets every task run until all of them wait for something that only the input can bring."""
    ready = cast(Any, asyncio.get_running_loop())._ready
    for _ in range(MAX_ROUNDS):
        if not ready:
            return
        await asyncio.sleep(0)
    raise AssertionError("the tasks do not come to rest")


def run_to_the_end(main: Callable[[], Any]) -> None:
    """Runs a coroutine on an event loop that is kept for the next input; an exception that nobody took is raised."""
    loop = _loop()
    lost: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _loop, context: lost.append(context))
    loop.run_until_complete(main())
    if lost:
        raise AssertionError(f"{lost[0].get('message')}") from lost[0].get("exception")


_loops: list[asyncio.AbstractEventLoop] = []


def _loop() -> asyncio.AbstractEventLoop:
    if not _loops:
        _loops.append(asyncio.new_event_loop())
    return _loops[0]
