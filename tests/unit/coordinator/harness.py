"""A coordinator on the harness: a clock that is moved by hand and a group log that is a list.

    harness = CoordinatorHarness()
    handle = harness.join(instance="A")       # a handle; its reply is None while the request is parked
    harness.advance(200)                      # time passes, timers fire
    assert handle.code == ErrorCode.NONE

After every command the harness checks what must always hold: no request is answered twice and none is forgotten, every
answer can be written in the version that was asked and says only what is stored, the counters equal a recount, and
any member that waits for something has a deadline. `CoordinatorHarness(checked=False)` is for measuring.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

from holdfast.coordinator.classic.group import Group, JoinPhase
from holdfast.coordinator.classic.member import Client, RejoinRequest, Role
from holdfast.coordinator.classic.pending_members import pending_member_timer
from holdfast.coordinator.classic.rebalance import JOIN_PHASE
from holdfast.coordinator.classic.session import NEW_MEMBER_JOIN_TIMEOUT_MS
from holdfast.coordinator.classic.state_machine import COMPLETING, DEAD, EMPTY, PREPARING, STABLE
from holdfast.coordinator.classic.sync_barrier import PENDING_SYNC
from holdfast.coordinator.coordinator import GroupCoordinator
from holdfast.coordinator.events.group_event import EventKind, GroupEvent
from holdfast.coordinator.extensions.admission import REGISTRATION
from holdfast.coordinator.extensions.standby_takeover import vacancy_timer
from holdfast.coordinator.extensions.targeted_rejoin import rejoin_timer
from holdfast.coordinator.offsets.commit import Commit
from holdfast.coordinator.runtime.batched_replies import BatchEntry
from holdfast.coordinator.runtime.context import GroupConfig
from holdfast.coordinator.runtime.effects import Append, Effects
from holdfast.types import TopicPartition
from holdfast.wire.apis.add_members_to_group import AddMembersToGroupRequest
from holdfast.wire.apis.cancel_registration import CancelRegistrationRequest
from holdfast.wire.apis.describe_groups import DescribedGroup, GroupExtensions
from holdfast.wire.apis.heartbeat import HeartbeatRequest
from holdfast.wire.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from holdfast.wire.apis.join_groups import JoinGroupsMember, JoinGroupsRequest
from holdfast.wire.apis.leave_group import LeaveGroupRequest, MemberIdentity
from holdfast.wire.apis.sync_group import AssignmentFailure, SyncGroupRequest, SyncGroupRequestAssignment
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import OffsetCommitValue, decode_record, encode_key, encode_value, partition_for
from holdfast.wire.message import encode
from tests.unit.coordinator.durability_checker import DurabilityChecker

GROUP: Final = "g"
DELAY_MS: Final = 200
MIN_SESSION_MS: Final = 100
SESSION_MS: Final = 3_000
REBALANCE_MS: Final = 1_500
RETENTION_MS: Final = 100_000
RANGE_AND_ROUNDROBIN: Final = ("range", "roundrobin")
STORAGE_FAILED: Final = ErrorCode.NOT_COORDINATOR
JAVA: Final = "apache-kafka-java"
"""A client that honours SkipAssignment, as most in these tests."""
SOME_CLIENT: Final = Client("cid", "/127.0.0.1", software=JAVA)
"""A client whose connection is not looked at."""


class Handle:
    """A request and, once there is one, its answer."""

    def __init__(
        self, what: str, api_version: int | None = None, *, group: str = GROUP, request: object = None
    ) -> None:
        self.what = what
        self.api_version = api_version
        self.group = group
        self.request = request
        self.reply: Any = None

    def answer(self, reply: Any) -> None:
        assert self.reply is None, f"{self.what} was answered twice: {self.reply}, then {reply}"
        assert reply is not None
        if self.api_version is not None:
            encode(reply, self.api_version)
        self.reply = reply

    @property
    def is_pending(self) -> bool:
        return self.reply is None

    @property
    def code(self) -> ErrorCode:
        assert self.reply is not None, f"{self.what} is not answered yet"
        return ErrorCode(self.reply.error_code)

    @property
    def codes(self) -> list[ErrorCode]:
        """The results of a LeaveGroup's entries, or of a commit's partitions."""
        if isinstance(self.reply, dict):
            return [ErrorCode(code) for code in self.reply.values()]
        return [ErrorCode(member.error_code) for member in self.reply.members]

    @property
    def member_id(self) -> str:
        return str(self.reply.member_id)

    @property
    def generation(self) -> int:
        return int(self.reply.generation_id)

    def __repr__(self) -> str:
        return f"{self.what} -> {self.reply}"


class CoordinatorHarness:
    def __init__(
        self,
        *,
        max_size: int = 2**31 - 1,
        delay_ms: int = DELAY_MS,
        metadata_max_chars: int = 4_096,
        partition_count: int = 50,
        checked: bool = True,
    ) -> None:
        self.config = GroupConfig(
            min_session_timeout_ms=MIN_SESSION_MS,
            initial_rebalance_delay_ms=delay_ms,
            max_size=max_size,
            offset_metadata_max_chars=metadata_max_chars,
            offsets_retention_ms=RETENTION_MS,
        )
        self.now = 1_000_000
        self.group_log: dict[int, list[tuple[bytes, bytes | None]]] = {}
        self.events: list[GroupEvent] = []
        self.warnings: list[str] = []
        self.paused_appends: list[Append] = []
        self.open: set[Handle] = set()
        """Asked and not answered yet."""
        self.listener: Callable[[Handle], None] = lambda _handle: None
        """Hears every answer at the moment it is given."""
        self.durability = DurabilityChecker({})
        self.topics: dict[str, int] = {}
        """How many partitions each topic has; one that is not here does not exist."""
        self._partition_count = partition_count
        self._checked = checked
        self._failures: list[ErrorCode] = []
        self._appends_are_paused = False
        self._fresh = itertools.count(1)
        self.coordinator = self._new_coordinator()

    def _new_coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(self.config, self._partition_count, lambda topic: self.topics.get(topic, 0))

    # -- the group log -------------------------------------------------------------------------------------------------

    def fail_appends(self, code: ErrorCode = STORAGE_FAILED, *, count: int = 1, after: int = 0) -> None:
        """Lets the next `count` appends fail, once `after` more have gone well."""
        self._failures = [ErrorCode.NONE] * after + [code] * count

    def pause_appends(self) -> None:
        """Appends wait from now on, as they do for the disk with flush=always."""
        self._appends_are_paused = True

    @property
    def appends_are_paused(self) -> bool:
        return self._appends_are_paused

    def resume_appends(self) -> None:
        """All that was held is stored, and nothing is held any more."""
        self._appends_are_paused = False
        while self.paused_appends:
            self._append(self.paused_appends.pop(0))

    def complete_one_append(self) -> None:
        self._append(self.paused_appends.pop(0))

    def restart(self, *, only_load: bool = False) -> None:
        """kill -9: what is parked is lost, what was stored is read back."""
        self.paused_appends.clear()
        self.open.clear()
        self.durability = DurabilityChecker(self.group_log)
        self._failures.clear()
        self._appends_are_paused = False
        self.coordinator = self._new_coordinator()
        self.coordinator.load_started(range(self._partition_count))
        if not only_load:
            self.finish_loading()

    def finish_loading(self) -> None:
        for partition in range(self._partition_count):
            self.replay(partition)
            self._perform(self.coordinator.load_finished(partition, self.now))

    def replay(self, partition: int) -> None:
        for key, value in self.group_log.get(partition, ()):
            decoded = decode_record(key, value)
            assert decoded is not None
            self.coordinator.replay([decoded])

    def partition_of(self, group: str = GROUP) -> int:
        return partition_for(group, self._partition_count)

    def lose(self, group: str = GROUP) -> None:
        """Another broker serves the partition of the group from now on."""
        self._perform(self.coordinator.unload([self.partition_of(group)], self.now))

    def regain(self, group: str = GROUP) -> None:
        """The partition of the group is served here again."""
        partition = self.partition_of(group)
        self.coordinator.load_started([partition])
        self.replay(partition)
        self._perform(self.coordinator.load_finished(partition, self.now))

    def compact(self, *, keep_tombstones: bool = True) -> None:
        """As the log cleaner: the last record of every key, in order."""
        for partition, records in self.group_log.items():
            last = {key: index for index, (key, _) in enumerate(records)}
            self.group_log[partition] = [
                (key, value)
                for index, (key, value) in enumerate(records)
                if last[key] == index and (keep_tombstones or value is not None)
            ]

    def _perform(self, effects: Effects) -> None:
        for handle, reply in effects.replies:
            assert isinstance(handle, Handle)
            handle.answer(reply)
            self._check_reply(handle)
        self.events.extend(effects.events)
        self.warnings.extend(effects.warnings)
        for append in effects.appends:
            if self._appends_are_paused:
                self.paused_appends.append(append)
            else:
                self._append(append)
        if self._checked:
            self._check()

    def _check_reply(self, handle: Handle) -> None:
        self.open.discard(handle)
        # While the group log is loading, a heartbeat is answered without a look at the group, as in Kafka.
        if self._checked and not self.coordinator.is_loading(handle.group):
            group = self.group_or_none(handle.group)
            # Some of them may be about to get an assignment as an effect of the same command.
            members = group.members.all_members if group is not None else ()
            not_active = frozenset(member.id for member in members if member.role is not Role.ACTIVE)
            self.durability.check_reply(handle.group, handle.request, handle.reply, not_active)
            self.listener(handle)

    def _request(self, what: str, group: str, request: object = None, version: int | None = None) -> Handle:
        handle = Handle(what, version, group=group, request=request)
        self.open.add(handle)
        return handle

    def _append(self, append: Append) -> None:
        code = self._failures.pop(0) if self._failures else ErrorCode.NONE
        if code is not ErrorCode.NONE:
            self._perform(self.coordinator.append_failed(append, code, self.now))
            return
        partition = self.group_log.setdefault(partition_for(append.group.id, self._partition_count), [])
        for key, value in append.records:
            partition.append((encode_key(key), None if value is None else encode_value(value)))
            self.durability.read(key, value)
        self._perform(self.coordinator.append_done(append, self.now))

    # -- time ----------------------------------------------------------------------------------------------------------

    def advance(self, ms: int) -> None:
        end = self.now + ms
        for _ in range(100_000):
            deadline = self.coordinator.next_deadline_ms()
            if deadline is None or deadline > end:
                self.now = end
                return
            self.now = max(self.now, deadline)
            self._perform(self.coordinator.fire_timers(self.now))
        raise AssertionError("the timers do not come to rest")

    # -- requests ------------------------------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        version: int = 9,
        protocols: Sequence[str] = RANGE_AND_ROUNDROBIN,
        metadata: bytes = b"metadata",
        offered: Sequence[tuple[str, bytes]] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        group: str = GROUP,
        client: Client | None = None,
    ) -> Handle:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms if version >= 1 else -1,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name, said)
                for name, said in (offered or [(name, metadata) for name in protocols])
            ],
        )
        handle = self._request(f"JoinGroup v{version} {member_id!r} {instance!r}", group, request, version)
        fresh_id = f"{next(self._fresh):08d}"
        self._perform(self.coordinator.join_group(request, version, client or SOME_CLIENT, fresh_id, handle, self.now))
        return handle

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance: str | None = None,
        version: int = 5,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
        group: str = GROUP,
        client: Client | None = None,
        wants_epoch: bool = False,
        resync_from_epoch: int = -1,
        failure: AssignmentFailure | None = None,
    ) -> Handle:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type if version >= 5 else None,
            protocol_name=protocol_name if version >= 5 else None,
            assignments=[SyncGroupRequestAssignment(*item) for item in (assignments or {}).items()],
            wants_epoch=wants_epoch,
            resync_from_epoch=resync_from_epoch,
            failure=failure,
        )
        handle = self._request(f"SyncGroup v{version} {member_id!r} {instance!r}", group, request, version)
        self._perform(self.coordinator.sync_group(request, version, client or SOME_CLIENT, handle, self.now))
        return handle

    def heartbeat(
        self,
        member_id: str,
        generation: int,
        *,
        instance: str | None = None,
        group: str = GROUP,
        client: Client | None = None,
    ) -> ErrorCode:
        """The answer at once; for heartbeats while appends are slow see `heartbeat_later`."""
        return self.heartbeat_later(member_id, generation, instance=instance, group=group, client=client).code

    def heartbeat_later(
        self,
        member_id: str,
        generation: int,
        *,
        instance: str | None = None,
        group: str = GROUP,
        client: Client | None = None,
    ) -> Handle:
        request = HeartbeatRequest(group, generation, member_id, instance)
        handle = self._request(f"Heartbeat {member_id!r} {instance!r}", group, request, 4)
        self._perform(self.coordinator.heartbeat(request, client or SOME_CLIENT, handle, self.now))
        return handle

    def leave(self, *entries: tuple[str, str | None], version: int = 5, group: str = GROUP) -> Handle:
        if version >= 3:
            request = LeaveGroupRequest(group, "", [MemberIdentity(*entry) for entry in entries])
        else:
            request = LeaveGroupRequest(group, entries[0][0])
        handle = self._request(f"LeaveGroup v{version} {entries}", group, request, version)
        self._perform(self.coordinator.leave_group(request, version, SOME_CLIENT, handle, self.now))
        return handle

    def commit(
        self,
        offsets: Mapping[TopicPartition, int | OffsetCommitValue],
        *,
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        version: int = 9,
        group: str = GROUP,
    ) -> Handle:
        handle = self._request(f"OffsetCommit v{version} {member_id!r} {instance!r}", group)
        values = {
            key: value if isinstance(value, OffsetCommitValue) else self.offset(value) for key, value in offsets.items()
        }
        command = Commit(group, generation, member_id, instance, SOME_CLIENT, handle, values)
        handle.request = command
        self._perform(self.coordinator.commit_offsets(command, version, self.now))
        return handle

    def offset(
        self, offset: int, metadata: str = "", *, leader_epoch: int = -1, expires_ms: int = -1
    ) -> OffsetCommitValue:
        return OffsetCommitValue(
            offset=offset,
            leader_epoch=leader_epoch,
            metadata=metadata,
            commit_timestamp=self.now,
            expire_timestamp=expires_ms,
        )

    def fetch(self, group: str = GROUP) -> dict[TopicPartition, int]:
        code, offsets = self.fetch_later(group).reply
        assert code is ErrorCode.NONE
        return {key: value.offset for key, value in offsets.items()}

    def fetch_later(self, group: str = GROUP) -> Handle:
        handle = self._request("OffsetFetch", group)
        self._perform(self.coordinator.fetch_offsets(group, handle, self.now))
        return handle

    def delete_offsets(self, *wanted: TopicPartition, group: str = GROUP) -> Handle:
        handle = self._request("OffsetDelete", group)
        self._perform(self.coordinator.delete_offsets(group, wanted, handle, self.now))
        return handle

    def delete(self, group: str = GROUP) -> ErrorCode:
        return ErrorCode(self.delete_later(group).reply)

    def delete_later(self, group: str = GROUP) -> Handle:
        handle = self._request("DeleteGroups", group)
        self._perform(self.coordinator.delete_group(group, handle, self.now))
        return handle

    def sweep(self) -> None:
        self._perform(self.coordinator.expire_offsets(self.now))

    def topics_deleted(self, *names: str) -> None:
        self._perform(self.coordinator.topics_deleted(names, self.now))

    def topic_grew(self, name: str, to: int = 100) -> None:
        before, self.topics[name] = self.topics.get(name, 0), to
        self._perform(self.coordinator.topic_grew(name, before, self.now))

    # -- beyond Kafka --------------------------------------------------------------------------------------------------

    def join_all(self, *members: JoinGroupsMember, group: str = GROUP, client: Client | None = None) -> list[Handle]:
        """JoinGroups: a handle for each of its members."""
        request = JoinGroupsRequest(group, SESSION_MS, REBALANCE_MS, "consumer", list(members))
        handles = [self._request(f"JoinGroups {member.group_instance_id!r}", group, request, 9) for member in members]
        fresh_ids = [f"{next(self._fresh):08d}" for _ in members]
        self._perform(self.coordinator.join_groups(request, client or SOME_CLIENT, handles, fresh_ids, self.now))
        return handles

    def add_members(self, *instance_ids: str, wait_ms: int = 60_000, group: str = GROUP) -> Handle:
        request = AddMembersToGroupRequest(group, list(instance_ids), wait_ms)
        handle = self._request(f"AddMembersToGroup {instance_ids}", group, request, 0)
        self._perform(self.coordinator.add_members(request, SOME_CLIENT, handle, self.now))
        return handle

    def cancel(self, *instance_ids: str, group: str = GROUP) -> Handle:
        """CancelRegistration; of all, if none is named."""
        request = CancelRegistrationRequest(group, list(instance_ids) or None)
        handle = self._request(f"CancelRegistration {instance_ids}", group, request, 0)
        self._perform(self.coordinator.cancel_registration(request, SOME_CLIENT, handle, self.now))
        return handle

    def configure(self, *, group: str = GROUP, **changes: int) -> Handle:
        """GROUP configs, by the names of their fields in `Extensions`; the reply is an error code."""
        handle = self._request(f"IncrementalAlterConfigs {changes}", group, changes)
        self._perform(self.coordinator.configure_group(group, changes, SOME_CLIENT, handle, self.now))
        return handle

    def disconnect(self, client: Client) -> None:
        """The client's connection closes."""
        assert client.connection is not None
        self._perform(self.coordinator.connection_closed(client.connection, self.now))

    def extensions(self, group: str = GROUP) -> GroupExtensions:
        found = self.coordinator.describe_group(group, 5, with_extensions=True).extensions
        assert found is not None
        return found

    # -- looking at it -------------------------------------------------------------------------------------------------

    def describe(self, group: str = GROUP, version: int = 5) -> DescribedGroup:
        return self.coordinator.describe_group(group, version)

    def state(self, group: str = GROUP) -> str:
        return self.describe(group).group_state

    def generation(self, group: str = GROUP) -> int:
        return self.group(group).generation

    def group(self, group: str = GROUP) -> Group:
        return self.coordinator._groups[group]

    def group_or_none(self, group: str = GROUP) -> Group | None:
        return self.coordinator._groups.get(group)

    def groups(self) -> Iterable[Group]:
        return self.coordinator._groups.values()

    def events_of(self, kind: EventKind) -> list[GroupEvent]:
        return [event for event in self.events if event.kind is kind]

    @property
    def queued_timers(self) -> int:
        return len(self.coordinator._ctx.timers._heap)

    # -- what must always hold -----------------------------------------------------------------------------------------

    def _check(self) -> None:
        for group in self.groups():
            check_group(group, self.now)
        self._check_open_requests()

    def _check_open_requests(self) -> None:
        """Any member that asked and has no answer is parked with a member, or waits for an append of the group."""
        asked: dict[str, set[object]] = {}
        for handle in self.open:
            asked.setdefault(handle.group, set()).add(handle)
        # A request whose append is in flight when its group is unloaded is answered when the append ends.
        unloaded = {
            append.group.id for append in self.paused_appends if append.group is not self.group_or_none(append.group.id)
        }
        known = all(self.group_or_none(group) or group in unloaded for group in asked)
        assert known, "the group is gone, and somebody waits for it"
        for group in self.groups():
            if not (group.append_in_flight or group.id in unloaded):
                parked = [
                    parked.reply_handle
                    for m in group.members
                    for parked in (m.awaiting_join, m.awaiting_sync_response)
                    if parked
                ]
                entries = [entry for batch in group.ext.unanswered_batches for entry in batch.entries]
                unheard = [entry for entry in entries if entry.response is not None]
                parked = [one.reply_handle if isinstance(one, BatchEntry) else one for one in (*parked, *unheard)]
                assert asked.get(group.id, set()) == set(parked), "somebody waits for an answer, and nobody knows"


def check_group(group: Group, now_ms: int) -> None:
    """The counters equal a recount, no member is in two lists, and a state has what belongs to it."""
    _check_members(group)
    _check_state(group)
    if not group.append_in_flight:
        _check_idle(group, now_ms)


def _check_members(group: Group) -> None:
    present, members = group.members, list(group.members.all_members)
    assert all(
        member.awaiting_join is None and member.awaiting_sync_response is None for member in present.standbys.values()
    )
    assert all((member.role is Role.STANDBY) is (member.id in present.standbys) for member in members)
    assert present.awaiting_join_count == sum(member.awaiting_join is not None for member in members)
    instances = [member.instance_id for member in members if member.is_static]
    assert len(instances) == len(set(instances)), "an instance id has two holders"
    for member in members:
        assert present.get(member.id) is member
        assert member.instance_id is None or present.static_member(member.instance_id) is member
        session = group.timers.get(member)
        assert session is not None and (session.action is not None or group.queued_commands), "immortal"
    names = {protocol.name for member in members for protocol in member.protocols}
    for name in names:
        votes = sum(any(protocol.name == name for protocol in member.protocols) for member in members)
        assert present._votes[name] == votes
    assert set(present._votes) == names
    assert not present.pending_member_ids.keys() & {member.id for member in members}, "pending and a member at once"


def _check_state(group: Group) -> None:
    members = list(group.members)
    if group.state in (EMPTY, DEAD):
        assert not members and not group.members.standbys
    if group.state is not STABLE:
        assert not group.ext.vacancies
        assert all(member.rejoin is RejoinRequest.NONE for member in group.members.all_members)
    if group.state in (COMPLETING, STABLE):
        assert members or group.ext.vacancies
        leaders = {member.id for member in members}
        leaders |= {vacancy.member.id for vacancy in group.ext.vacancies if vacancy.was_leader}
        assert group.leader_id in leaders
        assert group.members.awaiting_join_count == 0
        assert group.members.pending_sync_members <= {member.id for member in members}


def _check_idle(group: Group, now_ms: int) -> None:
    """No append is under way: nothing waits for one, what is stored is what is, and every wait has an end."""
    assert not group.queued_commands
    members, stored = list(group.members), group.stored
    for member in group.members.all_members:
        is_new = member.role is Role.NEW
        limit_ms = NEW_MEMBER_JOIN_TIMEOUT_MS if is_new else member.session_timeout_ms
        # A parked join is alive by that. It may have asked for a shorter session, which begins when it is answered.
        latest_ms = None if member.awaiting_join is not None and not is_new else now_ms + limit_ms
        assert _is_due(group, member, latest_ms), "a member lives for longer than its session"
    pending = map(pending_member_timer, group.members.pending_member_ids)
    assert all(_is_due(group, key) for key in pending), "an id is waited for for ever"
    assert all(timer.action is not None for timer in group.timers.values()), "a timer that has fired is kept"
    assert (group.join_phase is JoinPhase.NONE) is (group.state is not PREPARING), "a join phase in another state"
    if group.state is PREPARING:
        assert _is_due(group, JOIN_PHASE), "a join phase without an end"
    if group.extensions.registered:
        assert _is_due(group, REGISTRATION), "members are expected for ever"
    if group.state is not COMPLETING:
        assert not any(member.awaiting_sync_response for member in members)
    if group.state in (COMPLETING, STABLE):
        kept = {member.member_id: member for member in stored.members}
        owners = [*members, *(vacancy.member for vacancy in group.ext.vacancies)]
        assert {m.id: m.instance_id for m in owners} == {m: kept[m].group_instance_id for m in kept}
        assert all(_is_due(group, vacancy_timer(one)) for one in group.ext.vacancies), "a vacancy is kept for ever"
        asked = [member for member in members if member.rejoin is not RejoinRequest.NONE]
        assert all(_is_due(group, rejoin_timer(member)) for member in asked), "a member is asked to rejoin for ever"
        pending_sync = [member for member in members if member.id in group.members.pending_sync_members]
        late = [member for member in pending_sync if not member.missed_join_phase]
        assert not late or _is_due(group, PENDING_SYNC), "members are waited for for ever"
    if group.state is COMPLETING:
        assert group.leader_id in group.members.pending_sync_members, (
            "the leader has synced, and its assignment is nowhere"
        )
    if group.state is STABLE:
        assert all(member.assignment == kept[member.id].assignment for member in members)
        assert group.leader_id == stored.leader_id


def _is_due(group: Group, key: Hashable, latest_ms: int | None = None) -> bool:
    timer = group.timers.get(key)
    return timer is not None and timer.action is not None and (latest_ms is None or timer.at_ms <= latest_ms)
