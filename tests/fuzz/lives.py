"""Target `lives`: frames from several peers meet the broker's dispatch and the coordinator behind it.

An input is a list of steps: a request, loose bytes, time that passes, a disk that fails or hangs, a kill. After every
step the groups must be in order (`check_group`); at the end everybody falls silent, and then nothing may be left: no
member, no parked request, no timer, no group, no fact in the journal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from holdfast.broker.groups import Ticket
from holdfast.coordinator.coordinator import GroupCoordinator
from holdfast.coordinator.group import Group, Stored
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
from tests.fuzz.pace_and_growth import Leak
from tests.fuzz.peers import PeerConnection
from tests.fuzz.world import MAX_ROUNDS, TOPICS, FuzzedBroker, come_to_rest, run_to_the_end
from tests.unit.coordinator.bench import check_group

PEERS: Final = 5
MAX_STEPS: Final = 60
SPANS_MS: Final = (0, 1, 50, 99, 100, 200, 1_000, 3_000, 30_000, 300_000, 1_800_000, 86_400_000, 700_000_000)
FOREVER_MS: Final = 1 << 34
"""More than every time-out that a request can ask for, one after the other."""

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
    HANG_UP = 6
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
    Life().live(data)


class Life:
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

    def live(self, data: bytes) -> None:
        async def all_of_it() -> None:
            for step in parse(data):
                self._take(step)
                await come_to_rest()
                self._check()
            await self._all_fall_silent()

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
            case Act.HANG_UP:
                self._peer(step.choice).hang_up()
            case Act.SWEEP:
                groups.sweep()
            case Act.TOPIC_DELETED:
                groups.topic_deleted(list(TOPICS)[step.choice % len(TOPICS)])
            case Act.TOPIC_GROWN:
                groups.topic_grown(list(TOPICS)[step.choice % len(TOPICS)])
        broker.memory.evict_stalled(broker.clock.now())

    def _peer(self, number: int) -> PeerConnection:
        """The peer of that number; it connects anew when it was cut off."""
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
        disk = self.broker.moody_disk
        match choice % 5:
            case 0:
                self._disk_is_well()
            case 1:
                disk.outcomes = [True] * (choice // 5 % 3) + [False] * (1 + choice // 15 % 3)
            case 2:
                disk.slow = True
            case 3:
                disk.release()
            case 4:
                disk.release(failing=True)

    def _disk_is_well(self) -> None:
        disk = self.broker.moody_disk
        disk.slow, disk.outcomes = False, []
        while disk.flushes:
            disk.release()

    def _kill(self, *, compacted: bool, loaded: bool) -> None:
        """kill -9: connections and whatever was parked are gone, the journal is what it is."""
        for peer in self._peers.values():
            peer.hang_up()
        self._peers.clear()
        disk, journal = self.broker.moody_disk, self.broker.memory_journal
        for flush in disk.flushes:
            flush.cancel()
        disk.flushes, disk.slow, disk.outcomes = [], False, []
        if compacted:
            journal.compact()
        self.broker.restart_groups()
        self._unloaded = list(range(journal.partition_count))
        self.coordinator.begin_loading(self._unloaded)
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
            if had_members and not self.broker.moody_disk.in_doubt:
                assert group.generation >= self._generations.get(group.id, 0), f"generation of {group.id} went back"
                self._generations[group.id] = group.generation

    def _check_journal(self) -> None:
        """What a restart would find is what there is."""
        if self.broker.moody_disk.in_doubt or self.broker.moody_disk.flushes or self._unloaded:
            return
        journal, found = self.broker.memory_journal, GroupCoordinator(self.coordinator._ctx.config, 1)
        for index in range(journal.partition_count):
            for key, value in journal.replay(index):
                found.load_record(key, value)
        live = {group.id: _comparable(group.stored) for group in self._groups() if group.is_stored}
        read = {group.id: _comparable(group.stored) for group in found._groups.values() if group.is_stored}
        assert live == read

    async def _all_fall_silent(self) -> None:
        self._check_journal()
        self._disk_is_well()
        while self._unloaded:
            self._load_one()
        # One request behind the other: each may have to wait for the end of a session that the one before it began.
        for _ in range(MAX_STEPS):
            await come_to_rest()
            self._pass(FOREVER_MS)
            await come_to_rest()
            if not any(peer.waits for peer in self._peers.values() if peer.is_open):
                break
        self._pass(FOREVER_MS)
        self._check()
        self._nobody_is_left()
        self._delete_all()
        await come_to_rest()
        self._nothing_is_left()
        self._generations.clear()

    def _nobody_is_left(self) -> None:
        for group in self._groups():
            if len(group.roster) or group.roster.pending:
                raise Leak(f"group {group.id!r} still has members or ids that were handed out")
        if any(peer.waits for peer in self._peers.values() if peer.is_open):
            raise Leak("a request is parked for ever")
        if self.coordinator.next_deadline_ms() is not None:
            raise Leak("a timer runs for nobody")

    def _delete_all(self) -> None:
        groups = self.broker.memory_groups
        for group in self._groups():
            ticket = Ticket()
            groups._perform(self.coordinator.delete_group(group.id, ticket, groups.now_ms()))
            assert ticket.answered and ticket.response is ErrorCode.NONE, f"{group.id!r} cannot be deleted"
        for peer in self._peers.values():
            peer.hang_up()
        self._peers.clear()

    def _nothing_is_left(self) -> None:
        broker = self.broker
        left = {
            "groups": self._groups(),
            "facts in the journal": [] if broker.moody_disk.in_doubt else broker.memory_journal.facts,
            "connections": list(broker._connections),
            "booked memory": [broker.memory.used_bytes] if broker.memory.used_bytes else [],
            "changes under way": list(broker.changes._under_way),
        }
        for what, found in left.items():
            if found:
                raise Leak(f"{what} left: {found}")
        broker.moody_disk.in_doubt = False
        broker.memory_journal.forget_groups()


def _comparable(stored: Stored) -> Stored:
    """The number from which a group without members would count on is not stored with it."""
    return stored if stored.has_record or stored.has_generation_record else replace(stored, generation=0)
