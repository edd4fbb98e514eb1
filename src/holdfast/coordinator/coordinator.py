"""The one way in: commands come with the time, effects come out.

    effects = coordinator.heartbeat(request, client, ticket, now_ms)
    … perform them: give the replies, store the appends …
    effects = coordinator.append_done(append, now_ms)   # or append_failed

Everything that can be asked of groups starts here with what is the same for all groups: the group id, whether the
group is still being loaded, whether it exists. What follows is in the module of its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from holdfast.coordinator import (
    batch_join,
    calls,
    departures,
    describing,
    growth,
    intake,
    joining,
    offsets,
    presence,
    rebalance,
    registration,
    sessions,
    standbys,
    syncing,
)
from holdfast.coordinator.answers import join_error, sync_error
from holdfast.coordinator.batches import Batch
from holdfast.coordinator.context import Context, GroupConfig
from holdfast.coordinator.departures import Leave
from holdfast.coordinator.effects import Append, Effects, Record
from holdfast.coordinator.extensions import Extensions
from holdfast.coordinator.group import Group
from holdfast.coordinator.joining import LONGEST_STRING, MOST_BYTES_PER_CHAR, Join
from holdfast.coordinator.ledger import EventKind
from holdfast.coordinator.members import Client, Member
from holdfast.coordinator.offsets import Commit, OffsetDeletion, TopicPartition
from holdfast.coordinator.presence import Presence
from holdfast.coordinator.registration import Announcement
from holdfast.coordinator.states import COMPLETING, DEAD, EMPTY
from holdfast.coordinator.syncing import Sync
from holdfast.coordinator.topic_sizes import SizeOf
from holdfast.wire.apis.add_members_to_group import AddMembersToGroupRequest, AddMembersToGroupResponse
from holdfast.wire.apis.cancel_registration import CancelRegistrationRequest, CancelRegistrationResponse
from holdfast.wire.apis.describe_groups import DescribedGroup
from holdfast.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from holdfast.wire.apis.join_group import JoinGroupRequest
from holdfast.wire.apis.join_groups import AS_JOIN_GROUP_VERSION, JoinGroupsRequest
from holdfast.wire.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from holdfast.wire.apis.list_groups import ListedGroup
from holdfast.wire.apis.sync_group import SyncGroupRequest
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import (
    ExtensionsKey,
    GenerationKey,
    GroupMetadataKey,
    GroupRecordKey,
    GroupRecordValue,
    HighestGenerationKey,
    HighestGenerationValue,
    OffsetCommitKey,
    OffsetCommitValue,
    partition_for,
)

FIRST_SYNC_WITH_PROTOCOL = 5
FIRST_COMMIT_WITH_NOT_FOUND = 9


def _has_unstorable_name(request: JoinGroupRequest, client: Client) -> bool:
    names = [request.group_id, request.group_instance_id or "", request.protocol_type, client.client_id]
    names += [protocol.name for protocol in request.protocols]
    return not all(map(_is_storable, names))


def _is_storable(name: str) -> bool:
    """Whether a string of the journal can hold it."""
    return len(name) * MOST_BYTES_PER_CHAR <= LONGEST_STRING or len(name.encode()) <= LONGEST_STRING


class GroupCoordinator:
    def __init__(self, config: GroupConfig, partition_count: int, size_of: SizeOf = lambda _topic: 0) -> None:
        self._ctx = Context(config, size_of)
        departures.expel_the_silent(self._ctx)
        self._groups: dict[str, Group] = {}
        self._partition_count = partition_count
        self._loading: set[int] = set()
        self._highest_deleted = 0
        """The highest generation of any deleted group: a new group starts above it, so that no commit of a member of
        the old one can pass for one of the new."""
        self._deleted_while_loading: set[str] = set()
        """Topics that went while the offsets of some groups were not known yet."""
        self._to_wake: dict[int, set[str]] = {}
        """The groups that are being loaded, by partition."""

    # -- effects -------------------------------------------------------------------------------------------------------

    def _drain(self, now_ms: int) -> Effects:
        answered, self._ctx.answered = self._ctx.answered, []
        for batch in dict.fromkeys(answered):
            if not batch.unanswered:
                batch_join.deliver(self._ctx, batch, now_ms)
        effects, self._ctx.effects = self._ctx.effects, Effects()
        return effects

    def append_done(self, append: Append, now_ms: int) -> Effects:
        """The records are stored: they become facts, and what waited for them is said."""
        group = self._groups.get(append.group_id)
        if group is not None:
            group.busy = False
            for key, value in append.records:
                self._apply(group, key, value)
            append.then(now_ms)
            self._go_on(group, now_ms)
            self._forget_if_nothing(group)
        return self._drain(now_ms)

    def append_failed(self, append: Append, code: ErrorCode, now_ms: int) -> Effects:
        """Nothing was stored, so nothing has changed."""
        group = self._groups.get(append.group_id)
        if group is not None:
            group.busy = False
            append.otherwise(code, now_ms)
            self._go_on(group, now_ms)
        return self._drain(now_ms)

    @staticmethod
    def _go_on(group: Group, now_ms: int) -> None:
        while group.waiting and not group.busy:
            group.waiting.popleft()(now_ms)

    def _apply(self, group: Group, key: GroupRecordKey, value: GroupRecordValue | None) -> None:
        if isinstance(key, HighestGenerationKey):
            if isinstance(value, HighestGenerationValue):
                self._highest_deleted = max(self._highest_deleted, value.generation)
        else:
            group.apply(key, value)

    # -- loading -------------------------------------------------------------------------------------------------------

    def begin_loading(self, partitions: Iterable[int]) -> None:
        self._loading.update(partitions)

    def load_record(self, key: GroupRecordKey, value: GroupRecordValue | None) -> None:
        """One record of the journal, in order."""
        if isinstance(key, HighestGenerationKey):
            if isinstance(value, HighestGenerationValue):
                self._highest_deleted = max(self._highest_deleted, value.generation)
            return
        group = self._groups.get(key.group)
        if group is None:
            if value is None:
                return
            group = self._groups[key.group] = Group(key.group)
            self._to_wake.setdefault(self._partition_of(key.group), set()).add(key.group)
        if isinstance(key, GroupMetadataKey) and value is None:
            # The end of the group: what was before it must not count for a later one of the same name.
            ended = group.stored
            group = self._groups[key.group] = Group(key.group)
            group.stored.offsets = ended.offsets
            group.stored.extensions = ended.extensions
            group.stored.has_extensions_record = ended.has_extensions_record
            return
        group.apply(key, value)

    def finish_loading(self, partition: int, now_ms: int) -> Effects:
        """The partition's journal is read: its groups take part again, with fresh sessions for all members."""
        self._loading.discard(partition)
        for group in [self._groups[group_id] for group_id in self._to_wake.pop(partition, ())]:
            stored = group.stored
            if not group.is_stored:
                del self._groups[group.id]
                continue
            if not (stored.has_record or stored.has_generation_record):
                # Only offsets, perhaps committed after a group of this name was deleted: as a new group.
                stored.generation = self._highest_deleted
            is_sound = group.wake()
            for member in group.roster:
                sessions.refresh(self._ctx, group, member, now_ms)
            if group.state is COMPLETING:
                group.rebalance_began_ms = now_ms
                rebalance.await_syncs(self._ctx, group, now_ms)
            calls.again(self._ctx, group, now_ms)
            registration.watch(self._ctx, group)
            intake.review(self._ctx, group, now_ms)
            if not is_sound:
                rebalance.prepare(self._ctx, group, now_ms, cause="a member was stored twice")
            elif len(group.roster) > self._ctx.config.max_size:
                rebalance.prepare(self._ctx, group, now_ms, cause="more members than group.max.size")
            self._forget_topics(group, self._deleted_while_loading, now_ms)
        if not self._loading:
            self._deleted_while_loading.clear()
        return self._drain(now_ms)

    def _partition_of(self, group_id: str) -> int:
        return partition_for(group_id, self._partition_count)

    def is_loading(self, group_id: str) -> bool:
        return bool(self._loading) and self._partition_of(group_id) in self._loading

    # -- time ----------------------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        return self._ctx.timers.next_ms()

    def fire_timers(self, now_ms: int, most: int | None = None) -> Effects:
        """What is due happens; with `most`, no more than so much of it at a time."""
        self._ctx.timers.fire(now_ms, most)
        return self._drain(now_ms)

    # -- membership ----------------------------------------------------------------------------------------------------

    def join_group(
        self,
        request: JoinGroupRequest,
        api_version: int,
        client: Client,
        ticket: object,
        fresh_id: str,
        now_ms: int,
    ) -> Effects:
        refusal = self._join_refusal(request, client)
        if refusal is not None:
            self._ctx.reply(ticket, join_error(refusal, request.member_id, api_version))
            return self._drain(now_ms)
        command = Join.of(request, api_version, client, ticket, fresh_id)
        return self._run(self._group(request.group_id), partial(joining.join, command=command), now_ms)

    def _join_refusal(self, request: JoinGroupRequest, client: Client) -> ErrorCode | None:
        config = self._ctx.config
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if self.is_loading(request.group_id):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if _has_unstorable_name(request, client):
            return ErrorCode.INVALID_REQUEST
        if request.member_id and request.group_id not in self._groups:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return None

    def join_groups(
        self,
        request: JoinGroupsRequest,
        client: Client,
        tickets: Sequence[object],
        fresh_ids: Sequence[str],
        now_ms: int,
    ) -> Effects:
        """Members of one process: each has a ticket of its own, and is answered as JoinGroup v9 would answer it."""
        commands: list[Join] = []
        batch = Batch(tickets)
        for entry, slot, fresh_id in zip(batch_join.entries(request), batch.slots, fresh_ids, strict=True):
            refusal = self._join_refusal(entry, client)
            if refusal is not None:
                self._ctx.reply(slot, join_error(refusal, entry.member_id, AS_JOIN_GROUP_VERSION))
            else:
                commands.append(Join.of(entry, AS_JOIN_GROUP_VERSION, client, slot, fresh_id))
        if not commands:
            return self._drain(now_ms)
        group = batch.group = self._group(request.group_id)
        group.batches.append(batch)
        return self._run(group, partial(batch_join.join, commands=commands), now_ms)

    def connection_lost(self, lost: Presence, now_ms: int) -> Effects:
        """A connection is closed over which members were heard."""
        for group, member in presence.lost(lost):

            def follow(now_ms: int, group: Group = group, member: Member = member) -> None:
                if member.is_away:
                    registration.connection_lost(self._ctx, group, member, now_ms)
                    intake.connection_lost(self._ctx, group, member, now_ms)
                    standbys.connection_lost(self._ctx, group, member, now_ms)

            self._ctx.when_free(group, follow, now_ms)
        return self._drain(now_ms)

    def sync_group(
        self, request: SyncGroupRequest, api_version: int, client: Client, ticket: object, now_ms: int
    ) -> Effects:
        group = self._groups.get(request.group_id)
        refusal = None
        nulls = request.protocol_type is None or request.protocol_name is None
        if api_version >= FIRST_SYNC_WITH_PROTOCOL and nulls:
            refusal = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        elif not request.group_id:
            refusal = ErrorCode.INVALID_GROUP_ID
        elif self.is_loading(request.group_id):
            # Kafka's clients do not expect "loading" here; with this they join again, and then they wait. Holdfast's
            # own, which is the one that asks for the epoch, sends the SyncGroup again.
            own = request.wants_epoch
            refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if own else ErrorCode.REBALANCE_IN_PROGRESS
        elif group is None or group.state is EMPTY:
            refusal = ErrorCode.UNKNOWN_MEMBER_ID
        if refusal is not None or group is None:
            self._ctx.reply(ticket, sync_error(refusal or ErrorCode.UNKNOWN_MEMBER_ID))
            return self._drain(now_ms)
        command = Sync(request, api_version, client, ticket)
        return self._run(group, partial(syncing.sync, command=command), now_ms)

    def heartbeat(self, request: HeartbeatRequest, client: Client, ticket: object, now_ms: int) -> Effects:
        group = self._groups.get(request.group_id)
        code = None
        if not request.group_id:
            code = ErrorCode.INVALID_GROUP_ID
        elif self.is_loading(request.group_id):
            code = ErrorCode.NONE  # clients do not expect "loading" here, and nobody's session runs yet
        elif group is None:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        if code is not None or group is None:
            self._ctx.reply(ticket, HeartbeatResponse(error_code=code or ErrorCode.NONE))
            return self._drain(now_ms)

        def beat(ctx: Context, group: Group, now_ms: int) -> None:
            answer = departures.heartbeat(ctx, group, request, client, now_ms)
            ctx.reply(ticket, HeartbeatResponse(error_code=answer))

        return self._run(group, beat, now_ms)

    def leave_group(
        self,
        request: LeaveGroupRequest,
        api_version: int,
        client: Client,
        ticket: object,
        now_ms: int,
        *,
        is_logged: bool = False,
    ) -> Effects:
        refusal = None
        if not request.group_id:
            refusal = ErrorCode.INVALID_GROUP_ID
        elif self.is_loading(request.group_id):
            refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if refusal is not None:
            self._ctx.reply(ticket, LeaveGroupResponse(error_code=refusal))
            return self._drain(now_ms)
        command = Leave(request, api_version, client, ticket, is_logged)
        group = self._groups.get(request.group_id)
        if group is None:
            departures.leave(self._ctx, None, command, now_ms)
            return self._drain(now_ms)
        return self._run(group, partial(departures.leave, command=command), now_ms)

    # -- offsets -------------------------------------------------------------------------------------------------------

    def commit_offsets(self, command: Commit, api_version: int, now_ms: int) -> Effects:
        """The reply to the ticket is an error code for each partition."""
        group = self._known(command.group_id)
        refusal = None
        if self.is_loading(command.group_id):
            refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        elif not _is_storable(command.group_id):
            refusal = ErrorCode.INVALID_GROUP_ID
        elif group is None and command.generation >= 0:
            later = api_version >= FIRST_COMMIT_WITH_NOT_FOUND
            refusal = ErrorCode.GROUP_ID_NOT_FOUND if later else ErrorCode.ILLEGAL_GENERATION
        if refusal is not None:
            self._ctx.reply(command.ticket, dict.fromkeys((key for key, _ in command.offsets), refusal))
            return self._drain(now_ms)
        return self._run(self._group(command.group_id), partial(offsets.commit, command=command), now_ms)

    def fetch_offsets(self, group_id: str, ticket: object, now_ms: int) -> Effects:
        """The reply to the ticket is (error, all committed offsets of the group). Membership is not asked for."""
        if self.is_loading(group_id):
            self._ctx.reply(ticket, (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, {}))
            return self._drain(now_ms)
        group = self._groups.get(group_id)
        if group is None:
            self._ctx.reply(ticket, (ErrorCode.NONE, {}))
            return self._drain(now_ms)

        def fetch(ctx: Context, group: Group, now_ms: int) -> None:  # noqa: ARG001
            found: dict[TopicPartition, OffsetCommitValue] = {} if group.is_dead else group.stored.offsets
            ctx.reply(ticket, (ErrorCode.NONE, found))

        return self._run(group, fetch, now_ms)

    def delete_offsets(self, group_id: str, wanted: Sequence[TopicPartition], ticket: object, now_ms: int) -> Effects:
        group = self._known(group_id)
        refusal = None
        if not group_id:
            refusal = ErrorCode.INVALID_GROUP_ID
        elif self.is_loading(group_id):
            refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        elif group is None:
            refusal = ErrorCode.GROUP_ID_NOT_FOUND
        if refusal is not None or group is None:
            self._ctx.reply(ticket, OffsetDeletion(refusal or ErrorCode.GROUP_ID_NOT_FOUND, {}))
            return self._drain(now_ms)
        return self._run(group, partial(offsets.delete, wanted=wanted, ticket=ticket), now_ms)

    def expire_offsets(self, now_ms: int) -> Effects:
        """The sweep: old offsets go, and groups of which nothing is left."""
        for group in list(self._groups.values()):
            if not group.busy and not self.is_loading(group.id):
                self._sweep(group, now_ms)
        return self._drain(now_ms)

    def _sweep(self, group: Group, now_ms: int) -> None:
        doomed = offsets.expired(group, self._ctx.config.offsets_retention_ms, now_ms)
        if doomed and len(doomed) < len(group.stored.offsets):
            offsets.forget(self._ctx, group, doomed, lambda _code: None)
        elif self._is_left_alone(group) and len(doomed) == len(group.stored.offsets):
            cause = "nothing is left of it"
            self._bury(group, now_ms, cause=cause, then=lambda _code: None, keep_configs=True)
        elif doomed:
            offsets.forget(self._ctx, group, doomed, lambda _code: None)

    @staticmethod
    def _is_left_alone(group: Group) -> bool:
        """Nobody is in it, nobody is expected, and there is something to forget."""
        nobody = group.state is EMPTY and not (group.roster.pending or group.extensions.registered)
        return nobody and (group.has_history or not group.is_stored)

    def topics_deleted(self, names: Iterable[str], now_ms: int) -> Effects:
        """Offsets of a topic that is gone mean nothing, and would be wrong for a new one of the same name."""
        gone = set(names)
        for name in gone:
            self._ctx.topics.deleted(name)
        if self._loading:
            self._deleted_while_loading |= gone
        for group in list(self._groups.values()):
            if not self.is_loading(group.id):
                self._forget_topics(group, gone, now_ms)
        return self._drain(now_ms)

    def _forget_topics(self, group: Group, gone: set[str], now_ms: int) -> None:
        def forget(now_ms: int) -> None:  # noqa: ARG001
            doomed = [key for key in group.stored.offsets if key[0] in gone]
            offsets.forget(self._ctx, group, doomed, lambda _code: None)

        if any(key[0] in gone for key in group.stored.offsets):
            self._ctx.when_free(group, forget, now_ms)

    def topic_grew(self, name: str, before: int, now_ms: int) -> Effects:
        """It had `before` partitions until now, 0 if it was not there."""
        self._ctx.topics.grew(name, before, now_ms)
        for group in list(self._groups.values()):
            growth.topic_grew(self._ctx, group, name, now_ms)
        return self._drain(now_ms)

    # -- administration ------------------------------------------------------------------------------------------------

    def describe_group(self, group_id: str, api_version: int, *, with_extensions: bool = False) -> DescribedGroup:
        if self.is_loading(group_id):
            return DescribedGroup(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, group_id=group_id)
        group = self._known(group_id)
        described = describing.describe(group, group_id, api_version)
        if group is not None and with_extensions:
            described.extensions = describing.extensions(group)
        return described

    def list_groups(self, states: Sequence[str], types: Sequence[str]) -> tuple[ErrorCode, list[ListedGroup]]:
        """What is loaded, also while the rest is loading."""
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self._loading else ErrorCode.NONE
        loaded = [
            group for group in self._groups.values() if not (self.is_loading(group.id) or group.is_only_configured)
        ]
        return code, describing.list_groups(loaded, states, types)

    def delete_group(self, group_id: str, ticket: object, now_ms: int) -> Effects:
        """The reply to the ticket is an error code."""
        group = self._known(group_id)
        if self.is_loading(group_id):
            self._ctx.reply(ticket, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return self._drain(now_ms)
        if group is None:
            self._ctx.reply(ticket, ErrorCode.GROUP_ID_NOT_FOUND)
            return self._drain(now_ms)

        def delete(ctx: Context, group: Group, now_ms: int) -> None:
            if group.is_dead:
                ctx.reply(ticket, ErrorCode.GROUP_ID_NOT_FOUND)
            elif group.state is not EMPTY:
                ctx.reply(ticket, ErrorCode.NON_EMPTY_GROUP)
            else:
                self._bury(group, now_ms, cause="deleted by request", then=lambda code: ctx.reply(ticket, code))

        return self._run(group, delete, now_ms)

    def _bury(
        self,
        group: Group,
        now_ms: int,
        *,
        cause: str,
        then: Callable[[ErrorCode], None],
        keep_configs: bool = False,
    ) -> None:
        """The end of an empty group, with all that is stored of it; its configs may stay for the next of its name."""
        stored = group.stored
        records: list[Record] = [(OffsetCommitKey(group.id, topic, index), None) for topic, index in stored.offsets]
        if stored.has_generation_record:
            records.append((GenerationKey(group.id), None))
        if stored.has_record:
            records.append((GroupMetadataKey(group.id), None))
        kept = keep_configs and group.extensions.has_configs
        if stored.has_extensions_record and not kept:
            records.append((ExtensionsKey(group.id), None))
        # Raised before it is stored, so that of several deletions under way the last one stores the highest of all; and
        # stored with every group that had members, so that each partition knows enough for its own groups.
        self._highest_deleted = max(self._highest_deleted, stored.generation)
        if stored.has_record or stored.has_generation_record:
            records.append((HighestGenerationKey(), HighestGenerationValue(self._highest_deleted)))

        def buried(now_ms: int) -> None:
            for timer in group.roster.pending.values():
                timer.cancel()
            group.roster.pending.clear()
            group.enter(DEAD)
            if group.registration_timer is not None:
                group.registration_timer.cancel()
            if self._groups.get(group.id) is group:
                del self._groups[group.id]
                if kept:
                    configured = self._group(group.id).stored
                    configured.extensions, configured.has_extensions_record = group.extensions, True
            self._ctx.tell(EventKind.DELETED, group, now_ms, cause=cause)
            then(ErrorCode.NONE)

        if records:
            self._ctx.store(group, records, buried, lambda code, _now: then(code))
        else:
            buried(now_ms)

    # -- beyond Kafka --------------------------------------------------------------------------------------------------

    def add_members(self, request: AddMembersToGroupRequest, client: Client, ticket: object, now_ms: int) -> Effects:
        """KIP-469: static members are about to join."""
        command = Announcement(request.group_instance_ids, request.wait_ms, client, ticket)
        message = registration.wrong_with(command)
        refusal = None if message is None else ErrorCode.INVALID_REQUEST
        if not request.group_id or not _is_storable(request.group_id):
            refusal = ErrorCode.INVALID_GROUP_ID
        elif self.is_loading(request.group_id):
            refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if refusal is not None:
            self._ctx.reply(ticket, AddMembersToGroupResponse(error_code=refusal, error_message=message))
            return self._drain(now_ms)
        return self._run(self._group(request.group_id), partial(registration.add, command=command), now_ms)

    def cancel_registration(
        self, request: CancelRegistrationRequest, client: Client, ticket: object, now_ms: int
    ) -> Effects:
        group = self._known(request.group_id)
        refusal = None
        if self.is_loading(request.group_id):
            refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        elif group is None:
            refusal = ErrorCode.GROUP_ID_NOT_FOUND
        if refusal is not None or group is None:
            self._ctx.reply(ticket, CancelRegistrationResponse(error_code=refusal or ErrorCode.GROUP_ID_NOT_FOUND))
            return self._drain(now_ms)
        ids = request.group_instance_ids
        command = partial(registration.cancel, instance_ids=ids, client=client, ticket=ticket)
        return self._run(group, command, now_ms)

    def group_extensions(self, group_id: str) -> Extensions | ErrorCode:
        """The configs of a group, whether or not there is one of that name."""
        if self.is_loading(group_id):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        group = self._groups.get(group_id)
        return Extensions() if group is None else group.extensions

    def configured_groups(self) -> list[str] | ErrorCode:
        """The names under which configs are set, whether or not there is such a group."""
        if self._loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return [name for name, group in self._groups.items() if group.extensions.has_configs]

    def configure_group(
        self, group_id: str, changes: Mapping[str, int], client: Client, ticket: object, now_ms: int
    ) -> Effects:
        """The reply to the ticket is an error code. `changes` are fields of `Extensions`."""
        refusal = None
        if not group_id or not _is_storable(group_id):
            refusal = ErrorCode.INVALID_GROUP_ID
        elif self.is_loading(group_id):
            refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if refusal is not None:
            self._ctx.reply(ticket, refusal)
            return self._drain(now_ms)

        def configure(ctx: Context, group: Group, now_ms: int) -> None:  # noqa: ARG001
            standbys.configure(ctx, group, changes, client, lambda code: ctx.reply(ticket, code))

        return self._run(self._group(group_id), configure, now_ms)

    # -- running -------------------------------------------------------------------------------------------------------

    def _known(self, group_id: str) -> Group | None:
        group = self._groups.get(group_id)
        return None if group is None or group.is_only_configured else group

    def _group(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = Group(group_id, generation=self._highest_deleted)
        return group

    def _run(self, group: Group, command: Callable[..., Any], now_ms: int) -> Effects:
        """Runs a command of the group, now or after the append that is under way."""

        def run(now_ms: int) -> None:
            command(self._ctx, group, now_ms=now_ms)

        self._ctx.when_free(group, run, now_ms)
        self._forget_if_nothing(group)
        return self._drain(now_ms)

    def _forget_if_nothing(self, group: Group) -> None:
        """The command was refused, or the last of what was known of the group has ended."""
        if group.is_nothing and self._groups.get(group.id) is group:
            del self._groups[group.id]
