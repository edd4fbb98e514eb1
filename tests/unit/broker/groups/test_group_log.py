"""The group service on a log that is not the local disk's: stored later, gained partition by partition, or refused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

from holdfast.broker.clock import PauseAwareClock
from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.groups.group_log import GroupLog, GroupLogError, PartitionOwner
from holdfast.broker.groups.service import GroupCoordinatorService, PendingReply
from holdfast.broker.metrics import NoMetrics
from holdfast.broker.util.shielded_tasks import ShieldedTasks
from holdfast.broker.util.slices import SliceScheduler
from holdfast.coordinator.classic.member import Client
from holdfast.coordinator.events.group_event import EventKind, GroupEvent
from holdfast.coordinator.offsets.commit import Commit
from holdfast.coordinator.runtime.effects import Effects
from holdfast.wire.apis.heartbeat import HeartbeatRequest
from holdfast.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import GroupRecord, OffsetCommitKey, OffsetCommitValue, partition_for

ORDERS = ("orders", 0)
PARTITIONS = 4


class RemoteLog:
    """In memory. The test says when an append is stored, and which partitions are ours."""

    def __init__(self) -> None:
        self.partition_count = PARTITIONS
        self.is_created = False
        self.creations = 0
        self.records: list[list[GroupRecord]] = [[] for _ in range(PARTITIONS)]
        self.appends: list[tuple[asyncio.Future[None], int, list[GroupRecord]]] = []
        self.owner: PartitionOwner | None = None
        self.may_read = threading.Event()
        """A replay waits for the event that is here when it starts."""
        self.may_read.set()

    async def create_if_missing(self) -> None:
        await asyncio.sleep(0)
        self.creations += not self.is_created
        self.is_created = True

    def start(self, owner: PartitionOwner) -> None:
        self.owner = owner

    def append(self, group_id: str, records: Sequence[GroupRecord], now_ms: int) -> asyncio.Future[None]:
        assert now_ms > 0
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.appends.append((stored, partition_for(group_id, PARTITIONS), list(records)))
        return stored

    def store(self) -> None:
        """The oldest append is stored."""
        stored, partition, records = self.appends.pop(0)
        self.records[partition] += records
        stored.set_result(None)

    def refuse(self, code: ErrorCode) -> None:
        self.appends.pop(0)[0].set_exception(GroupLogError(code, "the broker is fenced"))

    def replay(self, partition: int) -> Iterator[Sequence[GroupRecord]]:
        return self._read(list(self.records[partition]), self.may_read)

    def replay_failed(self, partition: int, reason: str) -> bool:
        return True

    @staticmethod
    def _read(records: Sequence[GroupRecord], may_read: threading.Event) -> Iterator[Sequence[GroupRecord]]:
        assert may_read.wait(10)
        yield records


class Events:
    def __init__(self) -> None:
        self.kinds: list[str] = []

    def write(self, events: list[GroupEvent], now_ms: int) -> None:
        self.kinds += [event.kind for event in events]


def service_on(log: GroupLog, events: Events | None = None) -> GroupCoordinatorService:
    made = GroupCoordinatorService(
        BrokerConfig(),
        log,
        events or Events(),
        PauseAwareClock(asyncio.get_running_loop()),
        partition_count=lambda _topic: 1,
        slices=SliceScheduler(),
        tasks=ShieldedTasks(),
        metrics=NoMetrics(),
    )
    made.start()
    return made


def commit(service: GroupCoordinatorService, offset: int) -> Coroutine[Any, Any, Any]:
    def command(reply: PendingReply, now_ms: int) -> Effects:
        offsets = {ORDERS: OffsetCommitValue(offset, -1, "", now_ms)}
        request = Commit("g", -1, "", None, Client("c", "/h"), reply, offsets)
        return service.coordinator.commit_offsets(request, 9, now_ms)

    answer: Coroutine[Any, Any, Any] = service.submit(command)
    return answer


def committed(service: GroupCoordinatorService) -> tuple[ErrorCode, list[int]]:
    code, found = service.submit(service.coordinator.fetch_offsets, "g")
    return code, [value.offset for value in found.values()]


async def answered(answer: Any) -> Any:
    return await answer if isinstance(answer, Coroutine) else answer


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 20))


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def loaded(service: GroupCoordinatorService) -> None:
    while service.coordinator.is_loading("g"):  # noqa: ASYNC110  # the coordinator has no events to wait for
        await asyncio.sleep(0.001)


async def loads_ended(service: GroupCoordinatorService, *, running: int) -> None:
    """All but so many."""
    expiry = 1
    while len(service._tasks) > expiry + running:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def test_the_first_request_creates_the_log_and_a_reply_waits_for_its_records() -> None:
    async def scenario() -> None:
        log = RemoteLog()
        service = service_on(log)

        first, second = (asyncio.ensure_future(commit(service, offset)) for offset in (1, 2))
        await turns()

        assert log.creations == 1
        assert not first.done() and not second.done(), "nothing is acknowledged before it is stored"
        assert len(log.appends) == 1, "commands of a group wait for the append before them"
        log.store()
        assert await first == {ORDERS: ErrorCode.NONE}
        assert not second.done()
        log.store()
        assert await second == {ORDERS: ErrorCode.NONE}
        await service.stop()

    run(scenario())


def test_a_log_that_refuses_an_append_decides_what_the_client_gets() -> None:
    async def scenario() -> None:
        log = RemoteLog()
        log.is_created = True
        service = service_on(log)
        refused = asyncio.ensure_future(commit(service, 1))
        await turns()

        log.refuse(ErrorCode.NOT_COORDINATOR)

        assert await refused == {ORDERS: ErrorCode.NOT_COORDINATOR}
        assert service.submit(service.coordinator.fetch_offsets, "g") == (ErrorCode.NONE, {}), "nothing has changed"
        await service.stop()

    run(scenario())


def test_an_append_that_ends_in_another_error_is_answered_and_logged() -> None:
    async def scenario() -> None:
        log = RemoteLog()
        log.is_created = True
        service = service_on(log)
        failed = asyncio.ensure_future(commit(service, 1))
        await turns()

        log.appends.pop(0)[0].set_exception(RuntimeError("a bug"))

        assert await failed == {ORDERS: ErrorCode.UNKNOWN_SERVER_ERROR}
        await service.stop()

    run(scenario())


class BrokenOnce(RemoteLog):
    """Its first append fails in an unexpected way."""

    def append(self, group_id: str, records: Sequence[GroupRecord], now_ms: int) -> asyncio.Future[None]:
        if not self.appends:
            self.appends.append((asyncio.get_running_loop().create_future(), 0, []))
            raise OSError("too many open files")
        return super().append(group_id, records, now_ms)


def test_an_append_that_raises_is_answered_and_does_not_block_the_group() -> None:
    async def scenario() -> None:
        log = BrokenOnce()
        log.is_created = True
        service = service_on(log)

        assert await answered(commit(service, 1)) == {ORDERS: ErrorCode.UNKNOWN_SERVER_ERROR}

        following = asyncio.ensure_future(commit(service, 2))
        await turns()
        log.appends.pop(0)
        log.store()
        assert await following == {ORDERS: ErrorCode.NONE}
        assert committed(service) == (ErrorCode.NONE, [2])
        await service.stop()

    run(scenario())


class Unreplayable(RemoteLog):
    """The records of one partition are not records."""

    def __init__(self, broken: int) -> None:
        super().__init__()
        self.broken = broken

    def replay(self, partition: int) -> Iterator[Sequence[GroupRecord]]:
        if partition == self.broken:
            return iter([[("no key", "no value")]])  # type: ignore[list-item]  # this is the point
        return super().replay(partition)


def test_a_partition_that_cannot_be_replayed_does_not_keep_the_others_from_loading() -> None:
    async def scenario() -> None:
        partition = partition_for("g", PARTITIONS)
        log = Unreplayable((partition + 1) % PARTITIONS)
        log.is_created = True
        log.records[partition] = [(OffsetCommitKey("g", *ORDERS), OffsetCommitValue(7, -1, "", 1))]
        service = service_on(log)
        assert log.owner is service

        log.owner.partitions_gained([log.broken, partition])
        await loaded(service)
        await loads_ended(service, running=0)

        assert committed(service) == (ErrorCode.NONE, [7])
        await service.stop()

    run(scenario())


class AllOrNothing(Unreplayable):
    def replay_failed(self, partition: int, reason: str) -> bool:
        assert reason
        return partition != self.broken


def test_a_log_that_is_read_in_part_is_not_served_if_it_must_be_whole() -> None:
    async def scenario() -> None:
        partition = partition_for("g", PARTITIONS)
        log = AllOrNothing(partition)
        log.is_created = True
        service = service_on(log)
        assert log.owner is service

        log.owner.partitions_gained([partition])
        await loads_ended(service, running=0)

        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert service.submit(service.coordinator.fetch_offsets, "g") == (loading, {})
        await service.stop()

    run(scenario())


def test_groups_of_a_partition_are_served_once_it_is_gained_and_replayed() -> None:
    async def scenario() -> None:
        log = RemoteLog()
        log.is_created = True
        partition = partition_for("g", PARTITIONS)
        log.records[partition] = [(OffsetCommitKey("g", *ORDERS), OffsetCommitValue(7, -1, "", 1))]
        service = service_on(log)
        assert log.owner is service

        log.owner.partitions_gained([partition])

        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert service.submit(service.coordinator.fetch_offsets, "g") == (loading, {})
        await loaded(service)
        code, found = service.submit(service.coordinator.fetch_offsets, "g")
        assert (code, found[ORDERS].offset) == (ErrorCode.NONE, 7)
        await service.stop()

    run(scenario())


def test_a_partition_that_is_lost_is_not_served_until_it_is_gained_again() -> None:
    async def scenario() -> None:
        log, events = RemoteLog(), Events()
        log.is_created = True
        partition = partition_for("g", PARTITIONS)
        service = service_on(log, events)
        stored, in_flight, queued = (asyncio.ensure_future(commit(service, offset)) for offset in (1, 2, 3))
        await turns()
        log.store()
        await turns()

        service.partitions_lost([partition])

        assert await stored == {ORDERS: ErrorCode.NONE}
        assert await queued == {ORDERS: ErrorCode.NOT_COORDINATOR}
        assert committed(service) == (ErrorCode.NOT_COORDINATOR, [])
        assert not in_flight.done(), "it may be stored or not"
        log.store()
        assert await in_flight == {ORDERS: ErrorCode.NOT_COORDINATOR}
        assert log.appends == []

        service.partitions_gained([partition])
        await loaded(service)

        assert committed(service) == (ErrorCode.NONE, [2])
        assert events.kinds == []
        await service.stop()

    run(scenario())


def test_a_partition_that_is_lost_while_it_is_loaded_is_not_served() -> None:
    async def scenario() -> None:
        log = RemoteLog()
        log.is_created = True
        partition = partition_for("g", PARTITIONS)
        log.records[partition] = [(OffsetCommitKey("g", *ORDERS), OffsetCommitValue(7, -1, "", 1))]
        service = service_on(log)
        log.may_read.clear()
        service.partitions_gained([partition])
        await turns()

        service.partitions_lost([partition])
        log.may_read.set()
        await loads_ended(service, running=0)

        assert committed(service) == (ErrorCode.NOT_COORDINATOR, [])
        await service.stop()

    run(scenario())


def test_a_load_that_still_reads_when_the_partition_is_gained_again_has_no_say() -> None:
    async def scenario() -> None:
        log = RemoteLog()
        log.is_created = True
        partition = partition_for("g", PARTITIONS)
        old, new = (OffsetCommitValue(offset, -1, "", 1) for offset in (7, 8))
        log.records[partition] = [(OffsetCommitKey("g", *ORDERS), old)]
        service = service_on(log)
        first, second = log.may_read, threading.Event()
        first.clear()
        service.partitions_gained([partition])
        await turns()
        service.partitions_lost([partition])
        log.may_read, log.records[partition] = second, [(OffsetCommitKey("g", *ORDERS), new)]
        service.partitions_gained([partition])
        await turns()

        first.set()
        await loads_ended(service, running=1)

        assert committed(service) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
        second.set()
        await loaded(service)
        assert committed(service) == (ErrorCode.NONE, [8])
        await service.stop()

    run(scenario())


# -- heartbeats --------------------------------------------------------------------------------------------------------


def test_a_heartbeat_waits_for_an_append_of_its_group_and_only_then() -> None:
    async def scenario() -> None:
        log = RemoteLog()
        log.is_created = True
        service, request = service_on(log), HeartbeatRequest("g", 1, "nobody")
        assert service.heartbeat(request, Client("c", "/h")) is ErrorCode.UNKNOWN_MEMBER_ID
        committing = asyncio.ensure_future(commit(service, 1))
        await turns()

        waiting = asyncio.ensure_future(service.heartbeat(request, Client("c", "/h")))
        await turns()
        assert not waiting.done()
        log.store()

        assert (await waiting).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        await committing

    run(scenario())


def test_the_effects_of_a_heartbeat_are_performed() -> None:
    async def scenario() -> None:
        log, events, client = RemoteLog(), Events(), Client("c", "/h")
        log.is_created = True
        service = service_on(log, events)
        join = JoinGroupRequest("g", 30_000, 30_000, "", "A", "consumer", [JoinGroupRequestProtocol("range", b"")])
        reply = service.submit_without_task(service.coordinator.join_group, join, 9, client, "1")
        log.store()
        joined = await reply.wait()
        assert service.heartbeat(HeartbeatRequest("g", 1, joined.member_id, "A"), client) is ErrorCode.NONE
        assert EventKind.FENCED not in events.kinds

        answer = service.heartbeat(HeartbeatRequest("g", 1, "another", "A"), client)

        assert answer is ErrorCode.FENCED_INSTANCE_ID
        assert EventKind.FENCED in events.kinds

    run(scenario())
