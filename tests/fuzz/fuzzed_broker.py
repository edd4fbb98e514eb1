"""A broker without sockets, files and time: the real connections, handlers, groups and coordinator around it.

What is ours here is what the coordinator is driven by: a clock that is moved, a group log in memory whose appends and
flushes fail when asked to, and peers that send bytes. Everything else is the broker's own code.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any, Final, cast

import holdfast.broker.api.handlers  # noqa: F401  # registers every handler
from holdfast.broker.api.handlers.api_versions import UNSUPPORTED_VERSION
from holdfast.broker.api.pre_auth_handlers import PRE_AUTH_HANDLERS
from holdfast.broker.api.registry import HANDLERS
from holdfast.broker.api.services import Services
from holdfast.broker.clock import PauseAwareClock
from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.config.dynamic import DynamicBrokerConfig
from holdfast.broker.config.topic import TopicConfig
from holdfast.broker.groups.group_log import GroupLogError, PartitionOwner
from holdfast.broker.groups.service import GroupCoordinatorService
from holdfast.broker.network.connections import Connections
from holdfast.broker.network.environment import ConnectionEnvironment
from holdfast.broker.network.framing import SCRATCH_BYTES
from holdfast.broker.network.request_memory import RequestMemory
from holdfast.broker.storage.disk_health import DiskHealth
from holdfast.broker.storage.partition import Partition
from holdfast.broker.storage.topics import Topic
from holdfast.broker.util.shielded_tasks import ShieldedTasks
from holdfast.broker.util.slices import SliceScheduler
from holdfast.coordinator.events.group_event import GroupEvent
from holdfast.coordinator.runtime.effects import Record
from holdfast.log import PartitionLog
from holdfast.log.inspection import run_to_completion
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.errors import WireError
from holdfast.wire.group_records import (
    GroupRecordKey,
    GroupRecordValue,
    HighestGenerationKey,
    decode_record,
    encode_key,
    encode_value,
    partition_for,
)
from holdfast.wire.message import sliced_encoder

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

    last_tick = property(now)


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

    def partition_count(self, name: str) -> int:
        topic = self._names.get(name)
        return 0 if topic is None else len(topic.partitions)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._names.values())


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

    @staticmethod
    def _error() -> GroupLogError:
        return GroupLogError(ErrorCode.NOT_COORDINATOR, "No space left on device")

    def append(self, write: Callable[[], None]) -> asyncio.Future[None]:
        """Done at once, unless flushes are slow."""
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.outcomes and not self.outcomes.pop(0):
            stored.set_exception(self._error())
            return stored
        write()
        if self.slow:
            self.flushes.append(stored)
        else:
            stored.set_result(None)
        return stored

    def release(self, *, failing: bool = False) -> None:
        """The oldest flush is done."""
        if self.flushes:
            flush = self.flushes.pop(0)
            if failing:
                self.in_doubt = True
                flush.set_exception(self._error())
            else:
                flush.set_result(None)


class MemoryGroupLog:
    is_created = True
    partition_count = _CONFIG.offsets_topic_num_partitions

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.records: list[list[tuple[bytes, bytes | None]]] = [[] for _ in range(self.partition_count)]

    async def create_if_missing(self) -> None:
        pass

    def start(self, owner: PartitionOwner) -> None:
        pass

    def append(self, group_id: str, records: Sequence[Record], now_ms: int) -> asyncio.Future[None]:
        try:
            written = [(encode_key(key), None if value is None else encode_value(value)) for key, value in records]
        except WireError as error:  # a record that the format cannot hold, as in `LocalGroupLog`
            refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            refused.set_exception(GroupLogError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
            return refused
        partition = self.records[partition_for(group_id, self.partition_count)]
        return self._disk.append(lambda: partition.extend(written))

    def replay(self, partition: int) -> Iterator[list[tuple[GroupRecordKey, GroupRecordValue | None]]]:
        for key, value in self.records[partition]:
            decoded = decode_record(key, value)
            assert decoded is not None
            yield [decoded]

    def replay_failed(self, partition: int, reason: str) -> bool:
        return True

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
    def keys(self) -> list[GroupRecordKey]:
        """What is stored of any group, once everything that is gone is forgotten."""
        self.drop_tombstones()
        keys = [key for index in range(self.partition_count) for records in self.replay(index) for key, _ in records]
        return [key for key in keys if not isinstance(key, HighestGenerationKey)]

    def forget_groups(self) -> None:
        """Only how far generations went is left, as after the deletion of every group."""
        self.drop_tombstones()
        highest = encode_key(HighestGenerationKey())
        self.records = [[(key, value) for key, value in records if key == highest] for records in self.records]


class DiscardingLedger:
    """Events are written down as always, and then discarded."""

    def write(self, events: list[GroupEvent], now_ms: int) -> None:
        for event in events:
            event.to_json()
            event.group_id.encode()


class MemoryGroups(GroupCoordinatorService):
    def __init__(self, broker: FuzzedBroker, ids: Iterator[int]) -> None:
        super().__init__(
            _CONFIG,
            broker.memory_group_log,
            DiscardingLedger(),
            broker.clock,
            partition_count=broker.topics.partition_count,
            slices=broker.slices,
            tasks=broker.tasks,
            wall_ms=broker.now_ms,
        )
        self._topic_size = broker.topics.partition_count
        self._ids = ids

    def new_uuid(self) -> str:  # type: ignore[override]  # the broker's are random; these are found again
        return str(next(self._ids))

    def tick(self) -> None:
        """Everything that is due in one go: whether a slice is over depends on the machine."""
        run_to_completion(self._fire_timers(self.now_ms()))

    def load(self, partition: int) -> None:
        """What `partitions_gained` does for one partition, in one step."""
        for records in self.group_log.replay(partition):
            self.coordinator.replay(records)
        self._apply(self.coordinator.load_finished(partition, self.now_ms()))

    def sweep(self) -> None:
        self._apply(self.coordinator.expire_offsets(self.now_ms()))

    def last_partition_is_new(self, topic: str) -> None:
        self.topic_grown(topic, self._topic_size(topic) - 1)


class MemoryConfig(DynamicBrokerConfig):
    async def alter(self, config: BrokerConfig) -> None:
        self.current = config


class FuzzedBroker:
    """The parts of a broker that handlers and connections use."""

    def __init__(self) -> None:
        self.config = MemoryConfig(_CONFIG)
        self.tasks = ShieldedTasks()
        self.slices = SliceScheduler()
        self.request_memory = RequestMemory(_CONFIG.queued_max_request_bytes)
        self.moved_clock = MovedClock()
        self.clock = cast(PauseAwareClock, self.moved_clock)
        self.faulty_disk = Disk()
        self.topics = MemoryTopics()
        self.memory_group_log = MemoryGroupLog(self.faulty_disk)
        self._ids = itertools.count(1)
        self.connections = Connections(
            self.config,
            self.clock,
            self.request_memory,
            lambda connection: self.memory_groups.connection_lost(connection),
        )
        self.restart_groups()

    def now_ms(self) -> int:
        return self.moved_clock.ms

    def restart_groups(self) -> None:
        self.memory_groups = MemoryGroups(self, self._ids)
        services = Services(
            dynamic_config=self.config,
            data=cast(Any, SimpleNamespace(cluster_id="fuzzed")),
            topics=cast(Any, self.topics),
            producer_ids=cast(Any, None),
            flusher=cast(Any, None),
            disk_health=DiskHealth(),
            groups=self.memory_groups,
            user_changes=None,
            tasks=self.tasks,
            slices=self.slices,
            now_ms=self.now_ms,
        )
        self.environment = ConnectionEnvironment(
            owner=self.connections,
            services=services,
            handlers=HANDLERS,
            pre_auth_handlers=PRE_AUTH_HANDLERS,
            unsupported_api_versions=UNSUPPORTED_VERSION,
            authorizer=None,
            config=self.config,
            clock=self.clock,
            slices=self.slices,
            memory=self.request_memory,
            scratch=_SCRATCH,
        )


async def run_until_idle() -> None:
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


@cache
def make_sliced_encoders() -> None:
    """They are made on first use, which is when a response takes longer than a slice: sooner or later on a busy
    machine, and then they look like a leak."""
    for handler in HANDLERS.values():
        lowest, highest = handler.api.response.VERSIONS
        for version in range(lowest, highest + 1):
            sliced_encoder(handler.api.response, version)


def collect_garbage() -> None:
    """Also what the event loop closes: a request that a disconnect interrupted between two slices leaves an
    asynchronous generator behind, which the garbage collector hands to the loop."""
    gc.collect()
    if _loops:
        _loops[0].run_until_complete(run_until_idle())
        gc.collect()


_loops: list[asyncio.AbstractEventLoop] = []


def _loop() -> asyncio.AbstractEventLoop:
    if not _loops:
        _loops.append(asyncio.new_event_loop())
    return _loops[0]
