"""The one way in: commands come with the time, effects come out.

    effects = coordinator.heartbeat(request, client, reply_handle, now_ms)
    … perform them: deliver the replies, append the records …
    effects = coordinator.append_done(append, now_ms)   # or append_failed

Every request of a group starts here with what is the same for all groups: whether the group id is valid, whether the
group is served here and loaded, whether it exists (`GroupRegistry.find`). Then its command runs, now or after the
append that is in flight. The commands are in the modules of their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from holdfast.coordinator import describe
from holdfast.coordinator.classic import heartbeat, join_group, leave_group, session, sync_group
from holdfast.coordinator.classic.commands import Heartbeat, Join, Leave, Sync
from holdfast.coordinator.classic.group import Group
from holdfast.coordinator.classic.hooks import Context
from holdfast.coordinator.classic.member import Client, Member, MemberConnection
from holdfast.coordinator.classic.responses import join_error, sync_error
from holdfast.coordinator.classic.state_machine import DISPATCH, EMPTY, RequestKind
from holdfast.coordinator.delete_group import DeleteGroup, delete_if_empty
from holdfast.coordinator.expire_offsets import expire_offsets
from holdfast.coordinator.extensions import (
    configs,
    join_groups,
    partition_growth,
    registration,
)
from holdfast.coordinator.extensions.hooks import EXTENSIONS
from holdfast.coordinator.group_extensions import Extensions
from holdfast.coordinator.group_queries import GroupQueries
from holdfast.coordinator.group_registry import GroupRegistry
from holdfast.coordinator.offsets import commit, delete
from holdfast.coordinator.offsets.commit import Commit
from holdfast.coordinator.offsets.delete import OffsetDeletion, append_tombstones
from holdfast.coordinator.resume import resume
from holdfast.coordinator.runtime.batched_replies import JoinBatch
from holdfast.coordinator.runtime.context import GroupConfig, QueuedRequest
from holdfast.coordinator.runtime.effects import Append, Effects, Record
from holdfast.coordinator.runtime.topic_metadata import PartitionCountOf
from holdfast.coordinator.stored_names import has_unstorable_name, is_storable
from holdfast.coordinator.unload import end_append, unload
from holdfast.types import TopicPartition
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
from holdfast.wire.group_records import OffsetCommitValue

C = TypeVar("C")

FIRST_SYNC_WITH_PROTOCOL: Final = 5
FIRST_COMMIT_WITH_NOT_FOUND: Final = 9


class GroupCoordinator:
    def __init__(
        self, config: GroupConfig, partition_count: int, partition_count_of: PartitionCountOf = lambda _topic: 0
    ) -> None:
        self._ctx = Context(config, partition_count_of, EXTENSIONS, leave_group.session_expired)
        self._registry = GroupRegistry(partition_count)
        self._groups = self._registry.groups
        self.queries: Final = GroupQueries(self._registry)
        self._answered_batches: list[JoinBatch] = []
        """Batches of which every entry has its response, unless that is taken back before the command ends."""
        self._topics_deleted_while_loading: set[str] = set()
        """Topics that were deleted while the offsets of some groups were not known yet."""

    # -- running -------------------------------------------------------------------------------------------------------

    def _run(self, group: Group, handler: Callable[[Context, Group, C, int], None], command: C, now_ms: int) -> Effects:
        """Runs a command of the group, now or after the append that is in flight."""
        if group.append_in_flight:
            group.queued_commands.append(QueuedRequest(handler, self._ctx, group, command))
        else:
            handler(self._ctx, group, command, now_ms)
        if group.state is EMPTY:
            self._registry.drop_if_unused(group)
        return self._drain(now_ms)

    def _reply(self, reply_handle: object, response: Any, now_ms: int) -> Effects:
        """Answers a request that is rejected before it reaches a group."""
        self._ctx.reply(reply_handle, response)
        return self._drain(now_ms)

    def _drain(self, now_ms: int) -> Effects:
        if self._answered_batches:
            join_groups.deliver_answered(self._ctx, self._groups, self._answered_batches, now_ms)
        effects, self._ctx.effects = self._ctx.effects, Effects()
        for append in effects.appends:
            append.began_ms = now_ms
        return effects

    def append_done(self, append: Append, now_ms: int) -> Effects:
        """The records are stored: they are replayed, and the responses that waited for them are sent."""
        group = self._groups.get(append.group.id)
        if group is None or group is not append.group:
            return self._end_append_of_unloaded(append, now_ms)
        group.append_in_flight = False
        session.extend_after_append(self._ctx, group, append.began_ms, now_ms)
        group.replay(append.records)
        append.on_stored(now_ms)
        self._run_queued(group, now_ms)
        if group.state is EMPTY:
            self._registry.drop_if_unused(group)
        return self._drain(now_ms)

    def append_failed(self, append: Append, code: ErrorCode, now_ms: int) -> Effects:
        """Nothing was stored, so nothing has changed."""
        group = self._groups.get(append.group.id)
        if group is None or group is not append.group:
            return self._end_append_of_unloaded(append, now_ms)
        group.append_in_flight = False
        session.extend_after_append(self._ctx, group, append.began_ms, now_ms)
        append.on_failed(code, now_ms)
        self._run_queued(group, now_ms)
        if group.state is EMPTY:
            self._registry.drop_if_unused(group)
        return self._drain(now_ms)

    def _end_append_of_unloaded(self, append: Append, now_ms: int) -> Effects:
        """The group was unloaded since; it may even be loaded again, as another object."""
        end_append(self._ctx, append, now_ms)
        return self._drain(now_ms)

    @staticmethod
    def _run_queued(group: Group, now_ms: int) -> None:
        while group.queued_commands and not group.append_in_flight:
            group.queued_commands.popleft()(now_ms)

    # -- loading -------------------------------------------------------------------------------------------------------

    def load_started(self, partitions: Iterable[int]) -> None:
        self._registry.load_started(partitions)

    def replay(self, records: Sequence[Record]) -> None:
        """The next records of the log."""
        self._registry.replay(records)

    def load_finished(self, partition: int, now_ms: int) -> Effects:
        """The partition's log is read: its groups are served again, with new sessions for all members."""
        for group in self._registry.load_finished(partition):
            resume(self._ctx, group, now_ms)
            self._delete_offsets_of_topics(group, self._topics_deleted_while_loading, now_ms)
        if not self._registry.is_anything_loading:
            self._topics_deleted_while_loading.clear()
        return self._drain(now_ms)

    def unload(self, partitions: Iterable[int], now_ms: int) -> Effects:
        """Another broker serves these partitions, until `load_started`. Every request that waits gets an error."""
        for group in self._registry.unload(partitions):
            unload(self._ctx, group)
        if not self._registry.is_anything_loading:
            self._topics_deleted_while_loading.clear()
        return self._drain(now_ms)

    def is_loading(self, group_id: str) -> bool:
        return self._registry.is_loading(group_id)

    # -- time ----------------------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        return self._ctx.timers.next_ms()

    def fire_timers(self, now_ms: int, limit: int | None = None) -> Effects:
        """Runs the timers that are due, at most `limit` of them."""
        self._ctx.timers.fire(now_ms, limit)
        return self._drain(now_ms)

    # -- membership ----------------------------------------------------------------------------------------------------

    def join_group(
        self,
        request: JoinGroupRequest,
        api_version: int,
        client: Client,
        fresh_id: str,
        reply_handle: object,
        now_ms: int,
    ) -> Effects:
        code = self._join_error(request, client)
        if code is not None:
            return self._reply(reply_handle, join_error(code, request.member_id, api_version), now_ms)
        command = Join.of(request, api_version, client, reply_handle, fresh_id)
        return self._run(self._registry.get_or_create(request.group_id), join_group.join, command, now_ms)

    def _join_error(self, request: JoinGroupRequest, client: Client) -> ErrorCode | None:
        config = self._ctx.config
        found = self._registry.find(request.group_id)
        if isinstance(found, ErrorCode):
            return found
        if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if has_unstorable_name(request, client):
            return ErrorCode.INVALID_REQUEST
        if request.member_id and request.group_id not in self._groups:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return None

    def join_groups(
        self,
        request: JoinGroupsRequest,
        client: Client,
        reply_handles: Sequence[object],
        fresh_ids: Sequence[str],
        now_ms: int,
    ) -> Effects:
        """Members of one process: each has its own reply handle, and is answered as JoinGroup v9 would answer it."""
        commands: list[Join] = []
        batch = JoinBatch(reply_handles, self._answered_batches)
        for member, entry, fresh_id in zip(join_groups.entries(request), batch.entries, fresh_ids, strict=True):
            code = self._join_error(member, client)
            if code is not None:
                self._ctx.reply(entry, join_error(code, member.member_id, AS_JOIN_GROUP_VERSION))
            else:
                commands.append(Join.of(member, AS_JOIN_GROUP_VERSION, client, entry, fresh_id))
        if not commands:
            return self._drain(now_ms)
        group = self._registry.get_or_create(request.group_id)
        batch.group_id = group.id
        group.ext.unanswered_batches.append(batch)
        return self._run(group, join_groups.join, commands, now_ms)

    def connection_closed(self, connection: MemberConnection, now_ms: int) -> Effects:
        """A connection that members were seen on is closed."""
        for group_id, member in connection.closed():
            group = self._groups[group_id]
            self._ctx.run_exclusive(group, partial(self._disconnected, group, member), now_ms)
        return self._drain(now_ms)

    def _disconnected(self, group: Group, member: Member, now_ms: int) -> None:
        if member.disconnected:
            self._ctx.hooks.on_disconnect(self._ctx, group, member, now_ms)

    def sync_group(
        self, request: SyncGroupRequest, api_version: int, client: Client, reply_handle: object, now_ms: int
    ) -> Effects:
        if api_version >= FIRST_SYNC_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
            return self._reply(reply_handle, sync_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL), now_ms)
        # Kafka's clients do not expect "loading" here; with REBALANCE_IN_PROGRESS they join again, and then they wait.
        # Holdfast's own client, the only one that asks for the epoch, repeats the SyncGroup.
        is_own = request.wants_epoch
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_own else ErrorCode.REBALANCE_IN_PROGRESS
        found = self._registry.find(request.group_id, loading=loading)
        if not isinstance(found, Group):
            code = ErrorCode.UNKNOWN_MEMBER_ID if found is None else found
        else:
            # At once, also if an append is in flight.
            code = DISPATCH[RequestKind.SYNC].error_without_members(found.state)
        if code or not isinstance(found, Group):
            return self._reply(reply_handle, sync_error(code), now_ms)
        return self._run(found, sync_group.sync, Sync(request, api_version, client, reply_handle), now_ms)

    def heartbeat(self, request: HeartbeatRequest, client: Client, reply_handle: object, now_ms: int) -> Effects:
        code = self.answer_heartbeat(request, client, now_ms)
        if code is None:
            group = self._groups[request.group_id]
            return self._run(group, heartbeat.heartbeat, Heartbeat(request, client, reply_handle), now_ms)
        return self._reply(reply_handle, HeartbeatResponse(error_code=code), now_ms)

    def answer_heartbeat(self, request: HeartbeatRequest, client: Client, now_ms: int) -> ErrorCode | None:
        """Returns the answer itself, because a heartbeat seldom has effects: see `take_effects`.

        None if it has to wait for an append: then it is given to `heartbeat`.
        """
        # Clients do not expect "loading" here, and while a group is loaded no session runs.
        found = self._registry.find(request.group_id, loading=ErrorCode.NONE)
        if not isinstance(found, Group):
            return ErrorCode.UNKNOWN_MEMBER_ID if found is None else found
        if found.append_in_flight:
            return heartbeat.answer_past_append(self._ctx, found, request, client, now_ms)
        return heartbeat.answer_heartbeat(self._ctx, found, request, client, now_ms)

    def take_effects(self, now_ms: int) -> Effects | None:
        """The effects of an answer, if it has any."""
        effects = self._ctx.effects
        has_any = effects.events or effects.appends or effects.replies or effects.warnings or self._answered_batches
        return self._drain(now_ms) if has_any else None

    def leave_group(
        self,
        request: LeaveGroupRequest,
        api_version: int,
        client: Client,
        reply_handle: object,
        now_ms: int,
        *,
        is_logged: bool = False,
    ) -> Effects:
        found = self._registry.find(request.group_id)
        if isinstance(found, ErrorCode):
            return self._reply(reply_handle, LeaveGroupResponse(error_code=found), now_ms)
        command = Leave(request, api_version, client, reply_handle, is_logged)
        if found is None:
            leave_group.leave_unknown_group(self._ctx, command)
            return self._drain(now_ms)
        return self._run(found, leave_group.leave, command, now_ms)

    # -- offsets -------------------------------------------------------------------------------------------------------

    def commit_offsets(self, command: Commit, api_version: int, now_ms: int) -> Effects:
        """The response is an error code for each partition."""
        found = self._registry.find(command.group_id, needs_id=False)
        if isinstance(found, Group):
            return self._run(found, commit.commit, command, now_ms)
        code = found
        if code is None and not is_storable(command.group_id):
            code = ErrorCode.INVALID_GROUP_ID
        elif code is None and command.generation >= 0:
            later = api_version >= FIRST_COMMIT_WITH_NOT_FOUND
            code = ErrorCode.GROUP_ID_NOT_FOUND if later else ErrorCode.ILLEGAL_GENERATION
        if code is not None:
            return self._reply(command.reply_handle, dict.fromkeys(command.offsets, code), now_ms)
        return self._run(self._registry.get_or_create(command.group_id), commit.commit, command, now_ms)

    def fetch_offsets(self, group_id: str, reply_handle: object, now_ms: int) -> Effects:
        """The response is (error, all committed offsets of the group). A client need not be a member.

        It does not wait for an append that is in flight: until that is stored, the offsets before it are the committed
        ones.
        """
        found = self._registry.find(group_id, needs_id=False)
        if not isinstance(found, Group):
            return self._reply(reply_handle, (found or ErrorCode.NONE, {}), now_ms)
        commit.fetch(self._ctx, found, reply_handle)
        return self._drain(now_ms)

    def import_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetCommitValue], reply_handle: object, now_ms: int
    ) -> Effects:
        """Stores offsets that another coordinator had, all or none. The response is an error code."""
        command = commit.ImportOffsets(offsets, reply_handle)
        return self._run(self._registry.get_or_create(group_id), commit.import_offsets, command, now_ms)

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition], reply_handle: object, now_ms: int
    ) -> Effects:
        found = self._registry.find(group_id)
        if not isinstance(found, Group):
            return self._reply(reply_handle, OffsetDeletion(found or ErrorCode.GROUP_ID_NOT_FOUND, {}), now_ms)
        return self._run(found, delete.delete, delete.DeleteOffsets(partitions, reply_handle), now_ms)

    def expire_offsets(self, now_ms: int) -> Effects:
        """Deletes expired offsets, and groups without any members and offsets."""
        for group in list(self._groups.values()):
            if not group.append_in_flight and not self.is_loading(group.id):
                expire_offsets(self._ctx, self._registry, group, now_ms)
        return self._drain(now_ms)

    def topics_deleted(self, names: Iterable[str], now_ms: int) -> Effects:
        """Offsets of a deleted topic mean nothing, and would be wrong for a new one of the same name."""
        deleted = set(names)
        for name in deleted:
            self._ctx.topics.deleted(name)
        if self._registry.is_anything_loading:
            self._topics_deleted_while_loading |= deleted
        for group in list(self._groups.values()):
            if not self.is_loading(group.id):
                self._delete_offsets_of_topics(group, deleted, now_ms)
        return self._drain(now_ms)

    def _delete_offsets_of_topics(self, group: Group, topics: set[str], now_ms: int) -> None:
        def delete_offsets(now_ms: int) -> None:  # noqa: ARG001
            deleted = [key for key in group.stored.offsets if key[0] in topics]
            append_tombstones(self._ctx, group, deleted, lambda _code: None)

        # A commit that is being stored is not in the offsets yet.
        if group.append_in_flight or any(key[0] in topics for key in group.stored.offsets):
            self._ctx.run_exclusive(group, delete_offsets, now_ms)

    def topic_grew(self, name: str, before: int, now_ms: int) -> Effects:
        """It had `before` partitions until now, 0 if it did not exist."""
        self._ctx.topics.grew(name, before, now_ms)
        for group in list(self._groups.values()):
            partition_growth.topic_grew(self._ctx, group, name, now_ms)
        return self._drain(now_ms)

    # -- administration ------------------------------------------------------------------------------------------------

    def describe_group(self, group_id: str, api_version: int, *, with_extensions: bool = False) -> DescribedGroup:
        group = self._registry.find(group_id, needs_id=False)
        if isinstance(group, ErrorCode):
            return DescribedGroup(error_code=group, group_id=group_id)
        described = describe.describe(group, group_id, api_version)
        if group is not None and with_extensions:
            described.extensions = describe.describe_extensions(group)
        return described

    def list_groups(self, states: Sequence[str], types: Sequence[str]) -> tuple[ErrorCode, list[ListedGroup]]:
        """The groups that are loaded, also while others are being loaded."""
        is_loading = self._registry.is_anything_loading
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NONE
        loaded = [
            group for group in self._groups.values() if not (self.is_loading(group.id) or group.is_only_configured)
        ]
        return code, describe.list_groups(loaded, states, types)

    def delete_group(self, group_id: str, reply_handle: object, now_ms: int) -> Effects:
        """The response is an error code."""
        found = self._registry.find(group_id, needs_id=False)
        if not isinstance(found, Group):
            return self._reply(reply_handle, found or ErrorCode.GROUP_ID_NOT_FOUND, now_ms)
        return self._run(found, delete_if_empty, DeleteGroup(self._registry, reply_handle), now_ms)

    # -- beyond Kafka --------------------------------------------------------------------------------------------------

    def add_members(
        self, request: AddMembersToGroupRequest, client: Client, reply_handle: object, now_ms: int
    ) -> Effects:
        """KIP-469: static members are about to join."""
        command = registration.AddMembers(request.group_instance_ids, request.wait_ms, client, reply_handle)
        message = registration.validate(command)
        code = self._name_error(request.group_id) or (ErrorCode.INVALID_REQUEST if message else None)
        if code is not None:
            response = AddMembersToGroupResponse(error_code=code, error_message=message)
            return self._reply(reply_handle, response, now_ms)
        return self._run(self._registry.get_or_create(request.group_id), registration.add, command, now_ms)

    def _name_error(self, group_id: str) -> ErrorCode | None:
        """Why a group of this name cannot be created; None if it can, or exists."""
        if not is_storable(group_id):
            return ErrorCode.INVALID_GROUP_ID
        found = self._registry.find(group_id)
        return found if isinstance(found, ErrorCode) else None

    def cancel_registration(
        self, request: CancelRegistrationRequest, client: Client, reply_handle: object, now_ms: int
    ) -> Effects:
        found = self._registry.find(request.group_id, needs_id=False)
        if not isinstance(found, Group):
            response = CancelRegistrationResponse(error_code=found or ErrorCode.GROUP_ID_NOT_FOUND)
            return self._reply(reply_handle, response, now_ms)
        command = registration.CancelRegistration(request.group_instance_ids, client, reply_handle)
        return self._run(found, registration.cancel, command, now_ms)

    def group_extensions(self, group_id: str) -> Extensions | ErrorCode:
        """The configs of a group, whether or not there is one of that name."""
        found = self._registry.find(group_id, needs_id=False)
        if isinstance(found, ErrorCode):
            return found
        group = self._groups.get(group_id)
        return Extensions() if group is None else group.extensions

    def configured_groups(self) -> list[str] | ErrorCode:
        """The names that have configs, whether or not there is such a group."""
        if self._registry.is_anything_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return [name for name, group in self._groups.items() if group.extensions.has_configs]

    def configure_group(
        self, group_id: str, changes: Mapping[str, int], client: Client, reply_handle: object, now_ms: int
    ) -> Effects:
        """The response is an error code. `changes` are fields of `Extensions`."""
        code = self._name_error(group_id)
        if code is not None:
            return self._reply(reply_handle, code, now_ms)
        command = configs.Configure(changes, client, reply_handle)
        return self._run(self._registry.get_or_create(group_id), configs.configure, command, now_ms)
