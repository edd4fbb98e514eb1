"""Runs the coordinator: passes it requests and the time, appends its records to the group log, and delivers its
replies."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from holdfast.broker.clock import PauseAwareClock, wall_clock_ms
from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.groups.event_log import EventLog
from holdfast.broker.groups.group_log import GroupLog, GroupLogError
from holdfast.broker.metrics import NO_METRICS, Metrics
from holdfast.broker.structured_log import log_event
from holdfast.broker.util.pending_answer import PendingAnswer
from holdfast.broker.util.shielded_tasks import ShieldedTasks
from holdfast.broker.util.slices import SliceScheduler, Work
from holdfast.coordinator.classic.member import Client, MemberConnection
from holdfast.coordinator.coordinator import GroupCoordinator
from holdfast.coordinator.events.group_event import EventKind, GroupEvent
from holdfast.coordinator.runtime.context import GroupConfig
from holdfast.coordinator.runtime.effects import Append, Effects
from holdfast.types import TopicPartition
from holdfast.wire.apis.heartbeat import HeartbeatRequest
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import GroupRecord, OffsetCommitValue

logger = logging.getLogger(__name__)

LOAD_CHUNK: Final = 1_000
"""Records of the log that are replayed at a time; requests are served in between."""

MANY_RECORDS: Final = 100_000
"""After this many replayed records, all of them are frozen (`gc.freeze`). Otherwise each full garbage collection would
visit all of them and block the event loop."""

TIMERS_PER_STEP: Final = 4
"""Timers of groups that fire before other work may run."""

LOGGED_EVENTS: Final = frozenset(
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
"""Events of groups that are also logged."""


class GroupSession(Protocol):
    """What groups know of the session of a client."""

    client_host: str
    client_software: str
    group_client: Client | None
    """The client of its last group request; the service keeps it here."""


class GroupRequestContext(Protocol):
    """What groups know of a request, beside its content."""

    @property
    def session(self) -> GroupSession: ...

    @property
    def client_id(self) -> str | None: ...


class PendingReply(PendingAnswer):
    """The reply to a request: complete already, or completed later."""

    __slots__ = ("_on_complete", "is_complete", "response")

    def __init__(self) -> None:
        self.is_complete = False
        self.response: Any = None
        self._on_complete: Callable[[Any], None] | None = None

    def complete(self, response: Any) -> None:
        if self.is_complete:
            return
        self.is_complete = True
        self.response = response
        if self._on_complete is not None:
            self._on_complete(response)

    def on_complete(self, action: Callable[[Any], None] | None) -> None:
        self._on_complete = action
        if self.is_complete and action is not None:
            action(self.response)

    async def wait(self) -> Any:
        if not self.is_complete:
            completed = asyncio.Event()
            self.on_complete(lambda _: completed.set())
            await completed.wait()
        return self.response


class GroupCoordinatorService:
    def __init__(
        self,
        config: BrokerConfig,
        group_log: GroupLog,
        event_log: EventLog,
        clock: PauseAwareClock,
        *,
        partition_count: Callable[[str], int],
        slices: SliceScheduler,
        tasks: ShieldedTasks,
        metrics: Metrics = NO_METRICS,
        wall_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """`partition_count` returns the number of partitions of a topic, or 0 if it does not exist."""
        self.group_log = group_log
        self._event_log = event_log
        self._clock = clock
        self._slices = slices
        self._shielded = tasks
        self._metrics = metrics if metrics.is_enabled else None
        self._wall_ms = wall_ms
        self._expiry_seconds = config.offsets_retention_check_interval_ms / 1000
        self.coordinator = GroupCoordinator(
            GroupConfig(
                min_session_timeout_ms=config.group_min_session_timeout_ms,
                max_session_timeout_ms=config.group_max_session_timeout_ms,
                initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
                max_size=config.group_max_size,
                offset_metadata_max_chars=config.offset_metadata_max_bytes,
                offsets_retention_ms=config.offsets_retention_minutes * 60_000,
            ),
            group_log.partition_count,
            partition_count,
        )
        self._wall_minus_clock_ms = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._loads: dict[int, asyncio.Task[None]] = {}
        """The task that loads a partition. An older task that still reads it must stop."""
        self._is_firing = False

    # -- start and stop ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the timers and the replay of the log."""
        self._wall_minus_clock_ms = self._wall_ms() - int(self._clock.now() * 1000)
        self._clock.on_tick(self._tick)
        self.group_log.start(self)
        self._start_task(self._expire_offsets())

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def partitions_awaited(self, partitions: Sequence[int]) -> None:
        self.coordinator.load_started(partitions)

    def partitions_gained(self, partitions: Sequence[int]) -> None:
        """Until a partition is replayed, requests of its groups get Kafka's responses for a loading coordinator."""
        self.coordinator.load_started(partitions)
        self._loads.update(dict.fromkeys(partitions, self._start_task(self._load(partitions))))

    def partitions_lost(self, partitions: Sequence[int]) -> None:
        """From now on, requests of their groups get NOT_COORDINATOR, including requests that wait. The local log never
        loses a partition."""
        for index in partitions:
            self._loads.pop(index, None)
        self._apply(self.coordinator.unload(partitions, self.now_ms()))

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def now_ms(self) -> int:
        """The coordinator's time: close to wall-clock time, but stopped while this process is paused.

        So a pause of the broker ends no session.
        """
        return int(self._clock.now() * 1000) + self._wall_minus_clock_ms

    def _tick(self) -> None:
        now_ms = self.now_ms()
        deadline_ms = self.coordinator.next_deadline_ms()
        if self._is_firing or deadline_ms is None or deadline_ms > now_ms:
            return
        self._is_firing = True
        rest = self._slices.start(self._fire_timers(now_ms))
        if isinstance(rest, Coroutine):
            self._shielded.start(rest)

    def _fire_timers(self, until_ms: int) -> Work[None]:
        """Thousands of sessions may expire in one tick. They are processed a few at a time, and requests are served in
        between."""
        try:
            while (deadline_ms := self.coordinator.next_deadline_ms()) is not None and deadline_ms <= until_ms:
                self._apply(self.coordinator.fire_timers(self.now_ms(), TIMERS_PER_STEP))
                yield
        finally:
            self._is_firing = False

    async def _load(self, partitions: Sequence[int]) -> None:
        with _gc_paused():
            loaded = sum([await self._load_partition(index) for index in partitions])
        if loaded >= MANY_RECORDS:
            gc.freeze()

    async def _load_partition(self, index: int) -> int:
        """Returns the number of records. Stops if the partition is lost meanwhile, even if it has been gained again."""
        task, loaded = asyncio.current_task(), 0
        records = self.group_log.replay(index)
        error: Exception | None = None
        while error is None:
            chunk, error = await asyncio.to_thread(_next_chunk, records)
            if self._loads.get(index) is not task:
                return loaded
            if not chunk:
                break
            try:
                for some in chunk:
                    self.coordinator.replay(some)
                    loaded += len(some)
            except Exception as failure:
                # A bug. The other partitions are loaded.
                logger.exception("a record of the group log cannot be replayed")
                error = failure
        if error is not None:
            logger.error("cannot read partition %d of the group log to its end: %s", index, error)
            if not self.group_log.replay_failed(index, str(error)):
                return loaded
        del self._loads[index]
        self._apply(self.coordinator.load_finished(index, self.now_ms()))
        return loaded

    async def _expire_offsets(self) -> None:
        while True:
            await asyncio.sleep(self._expiry_seconds)
            try:
                self._apply(self.coordinator.expire_offsets(self._wall_ms()))
            except Exception:
                # A bug. The task continues, because without it no offset would ever expire.
                logger.exception("expired offsets are not removed; this is tried again at its next time")

    # -- requests ------------------------------------------------------------------------------------------------------

    def submit(self, command: Callable[..., Effects], *arguments: object) -> Any:
        """Calls `command(*arguments, reply, now_ms)`. Returns the reply, or a coroutine that waits for it."""
        if not self.group_log.is_created:
            return self._submit_after_create(command, *arguments)
        reply = PendingReply()
        self._apply(command(*arguments, reply, self.now_ms()))
        return reply.response if reply.is_complete else reply.wait()

    def submit_without_task(self, command: Callable[..., Effects], *arguments: object) -> Any:
        """As `submit`, but returns the pending reply itself, for requests of which thousands wait at once."""
        if not self.group_log.is_created:
            return self._submit_after_create(command, *arguments)
        reply = PendingReply()
        self._apply(command(*arguments, reply, self.now_ms()))
        return reply.response if reply.is_complete else reply

    def heartbeat(self, request: HeartbeatRequest, client: Client) -> Any:
        """Returns the error code, or a coroutine that waits for the response.

        As `submit`, without the steps that only other requests need, because heartbeats are the most frequent requests.
        """
        coordinator, now_ms = self.coordinator, self.now_ms()
        code = coordinator.answer_heartbeat(request, client, now_ms) if self.group_log.is_created else None
        if code is None:
            return self.submit(coordinator.heartbeat, request, client)
        effects = coordinator.take_effects(now_ms)
        if effects is not None:
            self._apply(effects)
        return code

    async def committed(self, group_id: str) -> tuple[ErrorCode, Mapping[TopicPartition, OffsetCommitValue]]:
        """The committed offsets of a group."""
        answer = self.submit(self.coordinator.fetch_offsets, group_id)
        found: tuple[ErrorCode, Mapping[TopicPartition, OffsetCommitValue]]
        found = await answer if isinstance(answer, Coroutine) else answer
        return found

    async def _submit_after_create(self, command: Callable[..., Effects], *arguments: object) -> Any:
        """The first request of the first group creates the log."""
        await self.group_log.create_if_missing()
        answer = self.submit(command, *arguments)
        return await answer if isinstance(answer, Coroutine) else answer

    def execute(self, command: Callable[[int], Effects]) -> None:
        """For a command with several replies. The caller waits for them."""
        self._apply(command(self.now_ms()))

    @staticmethod
    def client_of(context: GroupRequestContext) -> Client:
        """The client behind a request, with its connection."""
        session, client_id = context.session, context.client_id or ""
        known = session.group_client
        software = session.client_software
        if known is None or known.client_id != client_id or known.software != software:
            connection = MemberConnection() if known is None else known.connection
            # Java prints addresses with a slash in front, and tools expect it.
            known = session.group_client = Client(client_id, f"/{session.client_host}", connection, software)
        return known

    def connection_lost(self, session: GroupSession) -> None:
        client = session.group_client
        if client is not None and client.connection is not None:
            self._apply(self.coordinator.connection_closed(client.connection, self.now_ms()))

    @staticmethod
    def new_uuid() -> str:
        return str(uuid.uuid4())

    # -- effects -------------------------------------------------------------------------------------------------------

    def topic_deleted(self, name: str) -> None:
        self._apply(self.coordinator.topics_deleted([name], self.now_ms()))

    def topic_grown(self, name: str, before: int) -> None:
        self._apply(self.coordinator.topic_grew(name, before, self.now_ms()))

    def _apply(self, effects: Effects) -> None:
        """Performs the effects and those that follow from them. It is a loop, because a thousand commands may wait for
        one append and fail after it."""
        self._deliver(effects)
        following = deque(effects.appends)
        while following:
            effects_after = self._append(following.popleft())
            if effects_after is not None:
                self._deliver(effects_after)
                following.extend(effects_after.appends)

    def _deliver(self, effects: Effects) -> None:
        for reply, response in effects.replies:
            assert isinstance(reply, PendingReply)
            reply.complete(response)
        for warning in effects.warnings:
            logger.warning("%s", warning)
        if effects.events:
            if self._metrics is not None:
                for event in effects.events:
                    self._metrics.group_event(event.kind, event.cause.code)
            _log_events(effects.events)
            try:
                self._event_log.write(effects.events, self._wall_ms())
            except Exception:  # no group may wait for its events
                logger.exception("%d group events are not stored", len(effects.events))

    def _append(self, append: Append) -> Effects | None:
        """The effects that follow from the append; None while it is not stored."""
        try:
            stored = self.group_log.append(append.group.id, append.records, self._wall_ms())
        except Exception:  # whatever it is, the group has to know, or it would wait for ever
            logger.exception("appending to the group log failed")
            return self.coordinator.append_failed(append, ErrorCode.UNKNOWN_SERVER_ERROR, self.now_ms())
        if stored.done():
            return self._stored(append, stored)
        stored.add_done_callback(partial(self._stored_later, append))
        return None

    def _stored_later(self, append: Append, stored: asyncio.Future[None]) -> None:
        if not stored.cancelled():
            self._apply(self._stored(append, stored))

    def _stored(self, append: Append, stored: asyncio.Future[None]) -> Effects:
        error = stored.exception()
        if error is None:
            return self.coordinator.append_done(append, self.now_ms())
        if not isinstance(error, GroupLogError):
            logger.error("appending to the group log failed", exc_info=error)
        code = error.code if isinstance(error, GroupLogError) else ErrorCode.UNKNOWN_SERVER_ERROR
        return self.coordinator.append_failed(append, code, self.now_ms())


def _log_events(events: Sequence[GroupEvent]) -> None:
    """Logs the events that operators look for. The event log has all of them."""
    for event in events:
        if event.kind in LOGGED_EVENTS:
            log_event(
                logger,
                f"group: {event.kind}",
                group=event.group_id[:100],
                generation=event.generation,
                cause=event.cause.sentence[:200],
                member=event.instance_id or event.member_id,
                members=event.members,
                unassigned_ms=event.unassigned_ms,
                moved_partitions=event.moved_partitions,
                changed_owner=event.changed_owner,
            )


@contextlib.contextmanager
def _gc_paused() -> Iterator[None]:
    """Suspends garbage collection while many records are replayed. All of them stay in memory, and collections would
    take a quarter of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _next_chunk(records: Iterator[Sequence[GroupRecord]]) -> tuple[list[Sequence[GroupRecord]], Exception | None]:
    """The next records, none at the end, and the error that ended the reading."""
    taken: list[Sequence[GroupRecord]] = []
    count = 0
    try:
        while count < LOAD_CHUNK and (some := next(records, None)) is not None:
            taken.append(some)
            count += len(some)
    except Exception as error:  # noqa: BLE001  # whatever it is, the other partitions are loaded
        return taken, error
    return taken, None
