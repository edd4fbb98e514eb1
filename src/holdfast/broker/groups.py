"""Drives the coordinator: gives it requests and the time, stores what it wants stored, says what it says."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from holdfast.broker.dispatch import RequestContext
from holdfast.broker.journal import Fact, GroupJournal
from holdfast.broker.ledger import LedgerWriter
from holdfast.broker.log_lines import say
from holdfast.broker.partition import Partition
from holdfast.broker.slices import Work
from holdfast.coordinator.context import GroupConfig
from holdfast.coordinator.coordinator import GroupCoordinator
from holdfast.coordinator.effects import Append, Effects
from holdfast.coordinator.ledger import Event, EventKind
from holdfast.coordinator.members import Client
from holdfast.coordinator.presence import Presence
from holdfast.log import LogError, RecordListTooLarge, RecordTooLarge, StorageError
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.errors import WireError

if TYPE_CHECKING:
    from holdfast.broker.connection import Connection
    from holdfast.broker.server import Broker

logger = logging.getLogger(__name__)

LOAD_CHUNK: Final = 1_000
"""Records of the journal that are taken in at a time, so that the event loop serves others in between."""

MANY_RECORDS: Final = 100_000
"""When so many were loaded they are put out of the garbage collector's sight: each of its full searches would otherwise
go through all of them, and stop the event loop for that long."""

FIRED_AT_ONCE: Final = 4
"""So many deadlines of groups are met before it is looked whether others should have their turn."""

NOTED: Final = frozenset(
    {
        EventKind.REBALANCE_STARTED,
        EventKind.ASSIGNED,
        EventKind.SESSION_EXPIRED,
        EventKind.DROPPED,
        EventKind.FENCED,
        EventKind.TOOK_OVER,
        EventKind.REGISTRATION_EXPIRED,
        EventKind.ASSIGNMENT_FAILED,
        EventKind.DELETED,
    }
)
"""Events of groups that are logged as well."""


class Ticket:
    """The place of a request's answer: there already, or to be waited for."""

    __slots__ = ("_future", "answered", "response")

    def __init__(self) -> None:
        self.answered = False
        self.response: Any = None
        self._future: asyncio.Future[Any] | None = None

    def answer(self, response: Any) -> None:
        if self.answered:
            return
        self.answered = True
        self.response = response
        if self._future is not None and not self._future.done():
            self._future.set_result(response)

    async def wait(self) -> Any:
        if not self.answered:
            self._future = asyncio.get_running_loop().create_future()
            await self._future
        return self.response


class Groups:
    def __init__(self, broker: Broker) -> None:
        config = broker.config
        self._broker = broker
        self.journal = GroupJournal(
            broker.topics, config.offsets_topic_num_partitions, config.offsets_topic_segment_bytes
        )
        self._ledger = LedgerWriter(broker.topics, broker.changes, broker.flusher)
        self.coordinator = GroupCoordinator(
            GroupConfig(
                min_session_timeout_ms=config.group_min_session_timeout_ms,
                max_session_timeout_ms=config.group_max_session_timeout_ms,
                initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
                max_size=config.group_max_size,
                offset_metadata_max_chars=config.offset_metadata_max_bytes,
                offsets_retention_ms=config.offsets_retention_minutes * 60_000,
            ),
            self.journal.partition_count,
            self._size_of,
        )
        self._wall_minus_clock_ms = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._is_firing = False

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins to read the journal; until a group's part of it is read, its requests get Kafka's loading answers."""
        clock = self._broker.clock
        self._wall_minus_clock_ms = self._broker.now_ms() - int(clock.now() * 1000)
        clock.on_tick(self._tick)
        self._broker.topics.on_deleted = self._topic_deleted
        self._broker.topics.on_grown = self._topic_grown
        if self.journal.exists:
            partitions = range(self.journal.partition_count)
            self.coordinator.begin_loading(partitions)
            self._tasks.append(asyncio.create_task(self._load(partitions)))
        self._tasks.append(asyncio.create_task(self._expire_offsets()))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def now_ms(self) -> int:
        """The coordinator's time: near the wall clock's, but it stands still while this process does.

        So a pause of ours ends nobody's session.
        """
        return int(self._broker.clock.now() * 1000) + self._wall_minus_clock_ms

    def _tick(self) -> None:
        now_ms = self.now_ms()
        deadline_ms = self.coordinator.next_deadline_ms()
        if self._is_firing or deadline_ms is None or deadline_ms > now_ms:
            return
        self._is_firing = True
        rest = self._broker.slices.begin(self._fire(now_ms))
        if isinstance(rest, Coroutine):
            self._broker.changes.start(rest)

    def _fire(self, until_ms: int) -> Work[None]:
        """The sessions of thousands of members may end in one tick: a few at a time, and others are served between."""
        try:
            while (deadline_ms := self.coordinator.next_deadline_ms()) is not None and deadline_ms <= until_ms:
                self._perform(self.coordinator.fire_timers(self.now_ms(), FIRED_AT_ONCE))
                yield
        finally:
            self._is_firing = False

    async def _load(self, partitions: range) -> None:
        with _no_search_for_cycles():
            loaded = sum([await self._load_partition(index) for index in partitions])
        if loaded >= MANY_RECORDS:
            gc.freeze()

    async def _load_partition(self, index: int) -> int:
        """Returns how many records there were."""
        loaded = 0
        records = self.journal.replay(index)
        error: Exception | None = None
        while error is None:
            chunk, error = await asyncio.to_thread(_take, records)
            if not chunk:
                break
            for key, value in chunk:
                self.coordinator.load_record(key, value)
            loaded += len(chunk)
        if error is not None:
            # What was read so far is served, as Kafka does; the rest of this partition's groups start over.
            logger.error("the journal of groups could not be read to its end: %s", error)
        self._perform(self.coordinator.finish_loading(index, self.now_ms()))
        return loaded

    async def _expire_offsets(self) -> None:
        while True:
            await asyncio.sleep(self._broker.config.offsets_retention_check_interval_ms / 1000)
            self._perform(self.coordinator.expire_offsets(self._broker.now_ms()))

    # -- requests ------------------------------------------------------------------------------------------------------

    def ask(self, command: Callable[[Ticket, int], Effects]) -> Any:
        """The answer if it is there at once, else a coroutine that waits for it."""
        if not self.journal.exists:
            return self._ask_later(command)
        ticket = Ticket()
        self._perform(command(ticket, self.now_ms()))
        return ticket.response if ticket.answered else ticket.wait()

    async def _ask_later(self, command: Callable[[Ticket, int], Effects]) -> Any:
        """The first request of the first group makes the journal."""
        await self.journal.ensure()
        answer = self.ask(command)
        return await answer if isinstance(answer, Coroutine) else answer

    def perform(self, command: Callable[[int], Effects]) -> None:
        """For a command that has several tickets."""
        self._perform(command(self.now_ms()))

    @staticmethod
    def client(context: RequestContext) -> Client:
        """Who asks, and over which connection."""
        connection, client_id = context.connection, context.client_id or ""
        known = connection.group_client
        software = connection.client_software
        if known is None or known.client_id != client_id or known.software != software:
            presence = Presence() if known is None else known.presence
            # Java prints addresses with a slash in front, and tools have got used to it.
            known = connection.group_client = Client(client_id, f"/{connection.client_host}", presence, software)
        return known

    def connection_lost(self, connection: Connection) -> None:
        client = connection.group_client
        if client is not None and client.presence is not None:
            self._perform(self.coordinator.connection_lost(client.presence, self.now_ms()))

    @staticmethod
    def fresh_id() -> str:
        return str(uuid.uuid4())

    # -- effects -------------------------------------------------------------------------------------------------------

    def _topic_deleted(self, name: str) -> None:
        self._perform(self.coordinator.topics_deleted([name], self.now_ms()))

    def _topic_grown(self, name: str, before: int) -> None:
        self._perform(self.coordinator.topic_grew(name, before, self.now_ms()))

    def _size_of(self, topic: str) -> int:
        found = self._broker.topics.get(topic)
        return 0 if found is None else len(found.partitions)

    def _perform(self, effects: Effects) -> None:
        """Also what follows from them, in a loop: a thousand commands may wait for one append and fail after it."""
        self._say(effects)
        following = deque(effects.appends)
        while following:
            effects_after = self._store(following.popleft())
            if effects_after is not None:
                self._say(effects_after)
                following.extend(effects_after.appends)

    def _say(self, effects: Effects) -> None:
        for ticket, response in effects.replies:
            assert isinstance(ticket, Ticket)
            ticket.answer(response)
        if effects.events:
            _log_noted(effects.events)
            self._ledger.write(effects.events, self._broker.now_ms())

    def _store(self, append: Append) -> Effects | None:
        """What follows from the append; None while that is not known."""
        try:
            partition = self.journal.append(append.group_id, append.records, self._broker.now_ms())
        except (LogError, WireError) as error:
            # WireError: a fact that no record can hold. The group must hear of it too, or it would wait for ever.
            if isinstance(error, StorageError):
                self._broker.disk_state.failed(error)
            else:
                say(logger, "group fact not stored", logging.ERROR, group=append.group_id[:100], error=str(error))
            return self.coordinator.append_failed(append, _mapped(error), self.now_ms())
        if self._broker.disk_state.is_full:
            self._broker.disk_state.worked()
        partition.notify()
        self._broker.flusher.written(partition)
        if partition.config.flush == "always":
            self._broker.changes.start(self._finish_after_flush(append, partition))
            return None
        return self.coordinator.append_done(append, self.now_ms())

    async def _finish_after_flush(self, append: Append, partition: Partition) -> None:
        try:
            await self._broker.flusher.flushed(partition)
        except LogError as error:
            self._perform(self.coordinator.append_failed(append, _mapped(error), self.now_ms()))
        else:
            self._perform(self.coordinator.append_done(append, self.now_ms()))


def _log_noted(events: Sequence[Event]) -> None:
    """What an operator asks the log about; the ledger has it all."""
    for event in events:
        if event.kind in NOTED:
            say(
                logger,
                f"group: {event.kind}",
                group=event.group_id[:100],
                generation=event.generation,
                cause=event.cause[:200] or None,
                member=event.instance_id or event.member_id,
                members=event.members,
                stood_still_ms=event.stood_still_ms,
                moved_partitions=event.moved_partitions,
                changed_owner=event.changed_owner,
            )


@contextlib.contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """While many facts are taken in, which all stay: going through them again and again takes a quarter of a load."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _take(records: Iterator[Fact]) -> tuple[list[Fact], Exception | None]:
    """The next ones, none at the end; and what keeps those behind them from being read."""
    taken: list[Fact] = []
    try:
        taken.extend(islice(records, LOAD_CHUNK))
    except (LogError, WireError, OSError) as error:
        return taken, error
    return taken, None


def _mapped(error: LogError | WireError) -> ErrorCode:
    """What a client is told when its group's facts could not be stored, as Kafka maps it."""
    if isinstance(error, RecordTooLarge | RecordListTooLarge | WireError):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NOT_COORDINATOR if isinstance(error, StorageError) else ErrorCode.COORDINATOR_NOT_AVAILABLE
