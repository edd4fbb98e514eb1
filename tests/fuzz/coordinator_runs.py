"""Target `coordinator`: frames from several peers meet the broker's dispatch and the coordinator behind it.

An input is a list of steps: a request, loose bytes, time that passes, a disk that fails or hangs, a kill. After every
step the groups must be in order (`check_group`); at the end every peer falls silent, and then nothing may be left: no
member, no parked request, no timer, no group, no record in the group log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from holdfast.broker.groups.service import PendingReply
from holdfast.coordinator.classic.group import Group, PersistedGroup
from holdfast.coordinator.coordinator import GroupCoordinator
from holdfast.wire.apis.api_versions import API_VERSIONS
from holdfast.wire.apis.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT
from holdfast.wire.apis.delete_groups import DELETE_GROUPS
from holdfast.wire.apis.describe_cluster import DESCRIBE_CLUSTER
from holdfast.wire.apis.describe_groups import DESCRIBE_GROUPS
from holdfast.wire.apis.find_coordinator import FIND_COORDINATOR
from holdfast.wire.apis.heartbeat import HEARTBEAT
from holdfast.wire.apis.join_group import JOIN_GROUP
from holdfast.wire.apis.leave_group import LEAVE_GROUP
from holdfast.wire.apis.list_groups import LIST_GROUPS
from holdfast.wire.apis.metadata import METADATA
from holdfast.wire.apis.offset_commit import OFFSET_COMMIT
from holdfast.wire.apis.offset_delete import OFFSET_DELETE
from holdfast.wire.apis.offset_fetch import OFFSET_FETCH
from holdfast.wire.apis.sasl_authenticate import SASL_AUTHENTICATE
from holdfast.wire.apis.sasl_handshake import SASL_HANDSHAKE
from holdfast.wire.apis.sync_group import SYNC_GROUP
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.message import APIS
from tests.fuzz.fuzzed_broker import MAX_ROUNDS, TOPICS, FuzzedBroker, run_to_the_end, run_until_idle
from tests.fuzz.peer_connection import PeerConnection
from tests.fuzz.stall_and_leak_checks import Leak
from tests.unit.coordinator.harness import check_group

PEERS: Final = 5
MAX_STEPS: Final = 60
SPANS_MS: Final = (0, 1, 50, 99, 100, 200, 1_000, 3_000, 30_000, 300_000, 1_800_000, 86_400_000, 700_000_000)
FOREVER_MS: Final = 1 << 34
"""More than every timeout that a request can ask for, one after the other."""

GROUP_APIS: Final = (
    JOIN_GROUP,
    SYNC_GROUP,
    HEARTBEAT,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OFFSET_DELETE,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    FIND_COORDINATOR,
)
SERVED: Final = (
    *GROUP_APIS,
    API_VERSIONS,
    CONSUMER_GROUP_HEARTBEAT,
    DESCRIBE_CLUSTER,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
_NEEDS_FILES: Final = frozenset(APIS.keys() - {api.key for api in SERVED})
"""The keys of APIs for which this broker would need logs on disk; such requests are passed over."""

_STEP: Final = Struct(">BBH")
_SIZE: Final = Struct(">i")


class Act(IntEnum):
    REQUEST = 0
    BYTES = 1
    TIME = 2
    DISK = 3
    KILL = 4
    LOAD = 5
    DISCONNECT = 6
    SWEEP = 7
    TOPIC_DELETED = 8
    TOPIC_GROWN = 9


class Step(NamedTuple):
    act: Act
    choice: int = 0
    payload: bytes = b""


def parse(data: bytes) -> Iterator[Step]:
    position = 0
    for _ in range(MAX_STEPS):
        if len(data) - position < _STEP.size:
            return
        act, choice, length = _STEP.unpack_from(data, position)
        position += _STEP.size
        yield Step(Act(act % len(Act)), choice, data[position : position + length])
        position += length


def pack(steps: list[Step]) -> bytes:
    return b"".join(_STEP.pack(step.act, step.choice, len(step.payload)) + step.payload for step in steps)


def run(data: bytes) -> None:
    CoordinatorRun().execute(data)


class CoordinatorRun:
    """One broker, and what an input makes it go through. It can go through several, one after the other."""

    def __init__(self) -> None:
        self.broker = FuzzedBroker()
        self._peers: dict[int, PeerConnection] = {}
        self._faults: list[BaseException] = []
        self._unloaded: list[int] = []
        self._generations: dict[str, int] = {}

    @property
    def coordinator(self) -> GroupCoordinator:
        return self.broker.memory_groups.coordinator

    def execute(self, data: bytes) -> None:
        async def all_of_it() -> None:
            for step in parse(data):
                self._take(step)
                await run_until_idle()
                self._check()
            await self._expire_all_sessions()

        run_to_the_end(all_of_it)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _take(self, step: Step) -> None:
        broker, groups = self.broker, self.broker.memory_groups
        match step.act:
            case Act.REQUEST:
                self._peer(step.choice).receive(_SIZE.pack(len(step.payload)) + step.payload)
            case Act.BYTES:
                self._peer(step.choice).receive(step.payload)
            case Act.TIME:
                self._pass(SPANS_MS[step.choice % len(SPANS_MS)])
            case Act.DISK:
                self._disk(step.choice)
            case Act.KILL:
                self._kill(compacted=bool(step.choice & 1), loaded=not step.choice & 2)
            case Act.LOAD:
                self._load_one()
            case Act.DISCONNECT:
                self._peer(step.choice).disconnect()
            case Act.SWEEP:
                groups.sweep()
            case Act.TOPIC_DELETED:
                groups.topic_deleted(list(TOPICS)[step.choice % len(TOPICS)])
            case Act.TOPIC_GROWN:
                groups.last_partition_is_new(list(TOPICS)[step.choice % len(TOPICS)])
        broker.request_memory.evict_stalled(broker.clock.now())

    def _peer(self, number: int) -> PeerConnection:
        """The peer of that number; it connects again when it was cut off."""
        peer = self._peers.get(number % PEERS)
        if peer is None or not peer.is_open:
            peer = self._peers[number % PEERS] = PeerConnection(self.broker, self._faults.append, _NEEDS_FILES)
        return peer

    def _pass(self, span_ms: int) -> None:
        """Time passes, from deadline to deadline."""
        clock, groups = self.broker.moved_clock, self.broker.memory_groups
        end_ms = clock.ms + span_ms
        for _ in range(MAX_ROUNDS):
            deadline_ms = self.coordinator.next_deadline_ms()
            if deadline_ms is None or deadline_ms > end_ms:
                clock.ms = end_ms
                return
            clock.ms = max(clock.ms, deadline_ms)
            groups.tick()
        raise AssertionError("the timers do not come to rest")

    def _disk(self, choice: int) -> None:
        disk = self.broker.faulty_disk
        match choice % 5:
            case 0:
                self._disk_recovers()
            case 1:
                disk.outcomes = [True] * (choice // 5 % 3) + [False] * (1 + choice // 15 % 3)
            case 2:
                disk.slow = True
            case 3:
                disk.release()
            case 4:
                disk.release(failing=True)

    def _disk_recovers(self) -> None:
        disk = self.broker.faulty_disk
        disk.slow, disk.outcomes = False, []
        while disk.flushes:
            disk.release()

    def _kill(self, *, compacted: bool, loaded: bool) -> None:
        """kill -9: connections and whatever was parked are gone, the group log stays as it is."""
        for peer in self._peers.values():
            peer.disconnect()
        self._peers.clear()
        disk, group_log = self.broker.faulty_disk, self.broker.memory_group_log
        for flush in disk.flushes:
            flush.cancel()
        disk.flushes, disk.slow, disk.outcomes = [], False, []
        if compacted:
            group_log.compact()
        self.broker.restart_groups()
        self._unloaded = list(range(group_log.partition_count))
        self.coordinator.load_started(self._unloaded)
        while loaded and self._unloaded:
            self._load_one()

    def _load_one(self) -> None:
        if self._unloaded:
            self.broker.memory_groups.load(self._unloaded.pop(0))

    # -- what holds ----------------------------------------------------------------------------------------------------

    def _groups(self) -> list[Group]:
        return list(self.coordinator._groups.values())

    def _check(self) -> None:
        if self._faults:
            raise self._faults[0]
        for group in self._groups():
            if self.coordinator.is_loading(group.id):
                continue
            check_group(group, self.broker.moved_clock.ms)
            # Of a group that never had members nobody has seen a generation.
            had_members = group.stored.has_record or group.stored.has_generation_record
            if had_members and not self.broker.faulty_disk.in_doubt:
                assert group.generation >= self._generations.get(group.id, 0), f"generation of {group.id} went back"
                self._generations[group.id] = group.generation

    def _check_group_log(self) -> None:
        """What a restart would find is what there is."""
        if self.broker.faulty_disk.in_doubt or self.broker.faulty_disk.flushes or self._unloaded:
            return
        group_log, found = self.broker.memory_group_log, GroupCoordinator(self.coordinator._ctx.config, 1)
        for index in range(group_log.partition_count):
            for records in group_log.replay(index):
                found.replay(records)
        live = {group.id: _comparable(group.stored) for group in self._groups() if group.is_stored}
        read = {group.id: _comparable(group.stored) for group in found._groups.values() if group.is_stored}
        assert live == read

    async def _expire_all_sessions(self) -> None:
        self._check_group_log()
        self._disk_recovers()
        while self._unloaded:
            self._load_one()
        # One request behind the other: each may have to wait for the end of a session that the one before it began.
        for _ in range(MAX_STEPS):
            await run_until_idle()
            self._pass(FOREVER_MS)
            await self._finish_long_work()
            if not any(peer.is_pending for peer in self._peers.values() if peer.is_open):
                break
        self._pass(FOREVER_MS)
        self._check()
        self._check_no_members()
        self._delete_all()
        await run_until_idle()
        self._check_no_groups()
        self._generations.clear()

    async def _finish_long_work(self) -> None:
        """A request that takes long, as any may on a busy machine, delays the next one of its connection by the real
        clock, which no step of the input moves."""
        await run_until_idle()
        while self.broker.slices._running:  # noqa: ASYNC110  # the broker has no event for it
            await asyncio.sleep(0)
        await run_until_idle()

    def _check_no_members(self) -> None:
        for group in self._groups():
            if len(group.members) or group.members.pending_member_ids:
                raise Leak(f"group {group.id!r} still has members or ids that were handed out")
        if any(peer.is_pending for peer in self._peers.values() if peer.is_open):
            raise Leak("a request is parked for ever")
        if self.coordinator.next_deadline_ms() is not None:
            raise Leak("a timer runs for nobody")

    def _delete_all(self) -> None:
        groups = self.broker.memory_groups
        for group in self._groups():
            handle = PendingReply()
            groups._apply(self.coordinator.delete_group(group.id, handle, groups.now_ms()))
            assert handle.is_complete and handle.response is ErrorCode.NONE, f"{group.id!r} cannot be deleted"
        for peer in self._peers.values():
            peer.disconnect()
        self._peers.clear()

    def _check_no_groups(self) -> None:
        broker = self.broker
        left = {
            "groups": self._groups(),
            "records in the group log": [] if broker.faulty_disk.in_doubt else broker.memory_group_log.keys,
            "connections": list(broker.connections),
            "booked memory": [broker.request_memory.used_bytes] if broker.request_memory.used_bytes else [],
            "changes under way": list(broker.tasks._tasks),
        }
        for what, found in left.items():
            if found:
                raise Leak(f"{what} left: {found}")
        broker.faulty_disk.in_doubt = False
        broker.memory_group_log.forget_groups()


def _comparable(stored: PersistedGroup) -> PersistedGroup:
    """The number from which a group without members would count on is not stored with it."""
    return stored if stored.has_record or stored.has_generation_record else replace(stored, generation=0)
