"""`Admin`: groups, their members, assignments and lag; topics; and the operations on them.

    from holdfast import Admin

    with Admin({"bootstrap.servers": "localhost:9092"}) as admin:
        for group in admin.list_groups():
            print(group.group_id, group.state)
        admin.remove_members("billing", instance_ids=["billing-3"], reason="the pod is gone for good")

Works with Holdfast and with Apache Kafka. Calls that Kafka does not have raise UnsupportedVersion there.
Used by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar

from holdfast.client import group_admin, topic_admin
from holdfast.client.cluster_client import ClusterClient
from holdfast.client.config import read_config, whole_number
from holdfast.client.coordinator_client import CommittedOffset, CoordinatorClient
from holdfast.client.descriptions import (
    Cancelled,
    GroupConfig,
    GroupDescription,
    GroupListing,
    OffsetReset,
    PartitionLag,
    Registered,
    Removal,
    read_group,
)
from holdfast.client.errors import ConfigError, GroupError, HoldfastError, TopicError, UnsupportedVersion, error_code
from holdfast.client.group_admin import ConfigValue
from holdfast.client.history import EventLog, HistoryEvent, LastRebalance, last_rebalances
from holdfast.client.offsets import EARLIEST, LATEST, list_offsets
from holdfast.client.runtime import SYSTEM, Runtime
from holdfast.client.settings import NAMES as NETWORK_NAMES
from holdfast.client.settings import NetworkSettings
from holdfast.client.topic_admin import NewTopic, TopicDescription, TopicListing
from holdfast.coordinator.events.group_event import LEDGER_TOPIC
from holdfast.membership.generation import NO_GENERATION
from holdfast.membership.requests import MAX_REASON_LENGTH, MAX_VERSION_WITH_TOPIC_NAMES, offset_commit
from holdfast.types import TopicPartition
from holdfast.wire.apis.add_members_to_group import DEFAULT_WAIT_MS
from holdfast.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from holdfast.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from holdfast.wire.apis.list_groups import LIST_GROUPS, ListGroupsRequest
from holdfast.wire.apis.offset_commit import OFFSET_COMMIT, OffsetCommitResponse
from holdfast.wire.apis.offset_delete import (
    OFFSET_DELETE,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from holdfast.wire.error_codes import ErrorCode

NAMES: Final = NETWORK_NAMES | {"default.api.timeout.ms"}
_FIRST_BATCH_LEAVE: Final = 3
_GROUP_NOT_EMPTY: Final = {ErrorCode.UNKNOWN_MEMBER_ID: "the group has members: stop them first"}
"""The coordinator's errors for a commit that is not from a member."""
_ADVICE: Final = {
    ErrorCode.NON_EMPTY_GROUP: "it has members: stop them, or remove them, first",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.UNKNOWN_MEMBER_ID: "there is no such member",
    ErrorCode.REBALANCE_IN_PROGRESS: "it is rebalancing: try again in a moment",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "a member of it subscribes to the topic: stop it first",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "this user may not do that to the group",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the topic has no such partition",
    ErrorCode.FENCED_INSTANCE_ID: "the instance id belongs to another member id",
}

_Name = TypeVar("_Name")
ResetTo = Literal["earliest", "latest"] | int


class Admin:
    def __init__(
        self, config: Mapping[str, Any] | None = None, /, *, _runtime: Runtime = SYSTEM, **settings: Any
    ) -> None:
        read = read_config(config, settings, NAMES)
        self._cluster = ClusterClient(NetworkSettings.from_config(read), runtime=_runtime)
        self._groups = self._cluster.for_groups(NetworkSettings.of_groups(read, self._cluster.settings))
        self._timeout_s = whole_number(read, "default.api.timeout.ms", 60_000, 1) / 1000

    def close(self) -> None:
        self._groups.close()
        self._cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- describing ----------------------------------------------------------------------------------------------------

    def list_groups(
        self, states: Iterable[str] = (), types: Iterable[str] = (), timeout: float | None = None
    ) -> list[GroupListing]:
        """The groups of all brokers, optionally only those in these states or of these types."""
        deadline = self._deadline(timeout)
        found: dict[str, GroupListing] = {}
        for node_id in self._groups.metadata((), deadline).nodes:
            connection = self._groups.node(node_id, deadline)
            version = connection.version_of(LIST_GROUPS)
            request = ListGroupsRequest(list(states) if version >= 4 else [], list(types) if version >= 5 else [])
            response = connection.ask(request, deadline, version)
            _check("the groups", response.error_code)
            for one in response.groups:
                found[one.group_id] = GroupListing(one.group_id, one.protocol_type, one.group_state, one.group_type)
        return [found[group_id] for group_id in sorted(found)]

    def describe_group(self, group_id: str, timeout: float | None = None) -> GroupDescription:
        """State, protocol and members. A group that does not exist is Dead and has no members."""
        deadline = self._deadline(timeout)
        coordinator = self._groups.find_coordinator(group_id, deadline)
        with CoordinatorClient(self._groups, group_id) as asking:
            try:
                described = asking.describe(deadline)
            except GroupError as error:
                if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
                return GroupDescription(group_id, "Dead", "", "", coordinator, ())
        return read_group(described, coordinator)

    def lag(self, group_id: str, timeout: float | None = None) -> list[PartitionLag]:
        """The lag of the group in each partition that has a committed offset or an owner."""
        deadline = self._deadline(timeout)
        described = self.describe_group(group_id, timeout)
        owners = described.owners()
        committed = self.list_offsets(group_id, timeout=timeout)
        ends = self._ends(sorted(owners.keys() | committed.keys()), deadline)
        return [
            PartitionLag(
                where[0],
                where[1],
                committed[where].offset if where in committed else None,
                end,
                owners.get(where, ()),
            )
            for where, end in ends.items()
        ]

    def _ends(self, partitions: Sequence[TopicPartition], deadline: float) -> dict[TopicPartition, int | None]:
        """The end offset of each; None for a partition that no longer exists."""
        metadata = self._cluster.metadata({topic for topic, _ in partitions}, deadline)
        there = [
            (topic, number)
            for topic, number in partitions
            if topic in metadata.topics and number < metadata.topics[topic].partitions
        ]
        ends = list_offsets(self._cluster, dict.fromkeys(there, LATEST), deadline) if there else {}
        return {where: ends.get(where) for where in partitions}

    # -- history -------------------------------------------------------------------------------------------------------

    def history(
        self,
        group_ids: Iterable[str] = (),
        *,
        since_ms: int | None = None,
        timeout: float | None = None,
    ) -> list[HistoryEvent]:
        """The ledger's events of these groups, or of all, oldest first. Raises a TopicError if there is no ledger."""
        deadline = self._deadline(timeout)
        wanted = frozenset(group_ids)
        ledger = EventLog(self._groups)
        first, end = _require_event_log(ledger.bounds(deadline))
        if since_ms is not None:
            since = ledger.offset_at(since_ms, deadline)
            first = end if since is None else since
        return [event for event in ledger.events(first, end, deadline) if not wanted or event.group_id in wanted]

    def follow_history(
        self, group_ids: Iterable[str] = (), *, wait: float = 1.0, timeout: float | None = None
    ) -> Iterator[list[HistoryEvent]]:
        """The ledger's events from now on, without end: a list whenever there are events, an empty list after `wait`
        seconds without any. "Now" is the time of the call, not of the first list."""
        ledger = EventLog(self._groups)
        _, end = _require_event_log(ledger.bounds(self._deadline(timeout)))
        return self._follow(ledger, end, frozenset(group_ids), wait, timeout)

    def _follow(
        self, ledger: EventLog, offset: int, wanted: Collection[str], wait: float, timeout: float | None
    ) -> Iterator[list[HistoryEvent]]:
        while True:
            events, offset = ledger.read(offset, int(wait * 1000), self._deadline(timeout) + wait)
            yield [event for event in events if not wanted or event.group_id in wanted]

    def last_rebalances(self, group_ids: Collection[str], timeout: float | None = None) -> dict[str, LastRebalance]:
        """The generation and the latest rebalance, with its cause, of each group that has events in the ledger. Empty
        if there is no ledger."""
        return last_rebalances(EventLog(self._groups), group_ids, self._deadline(timeout))

    # -- topics --------------------------------------------------------------------------------------------------------

    def list_topics(self, timeout: float | None = None) -> list[TopicListing]:
        """Every topic that this user may describe, by name."""
        return topic_admin.list_topics(self._cluster, self._deadline(timeout))

    def describe_topics(self, names: Iterable[str], timeout: float | None = None) -> list[TopicDescription]:
        """Partitions with leader, replicas and offsets, and the configs. Raises a TopicError for the first topic that
        cannot be described."""
        return topic_admin.describe_topics(self._cluster, names, self._deadline(timeout))

    def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout: float | None = None
    ) -> dict[str, HoldfastError | None]:
        """By topic, None or the error. With `validate_only`, nothing changes."""
        return topic_admin.create_topics(self._cluster, topics, self._deadline(timeout), validate_only=validate_only)

    def delete_topics(self, names: Iterable[str], timeout: float | None = None) -> dict[str, HoldfastError | None]:
        """Delete topics with their records; by topic, None or the error."""
        return topic_admin.delete_topics(self._cluster, _as_list("names", names), self._deadline(timeout))

    def add_partitions(
        self, totals: Mapping[str, int], timeout: float | None = None
    ) -> dict[str, HoldfastError | None]:
        """Increase the number of partitions to these totals; by topic, None or the error."""
        return topic_admin.add_partitions(self._cluster, totals, self._deadline(timeout))

    # -- members and groups --------------------------------------------------------------------------------------------

    def remove_members(
        self,
        group_id: str,
        *,
        instance_ids: Iterable[str] = (),
        member_ids: Iterable[str] = (),
        members: Iterable[tuple[str, str | None]] = (),
        all_members: bool = False,
        reason: str = "removed by an administrator",
        timeout: float | None = None,
    ) -> list[Removal]:
        """Remove members that will not return (KIP-345), in one rebalance; one result for each.

        `members` are pairs of member id and instance id. The coordinator removes a pair only if the instance id still
        has that member id; otherwise it answers FENCED_INSTANCE_ID, because another process has joined with the
        instance id since.
        """
        deadline = self._deadline(timeout)
        wanted: list[tuple[str, str | None]] = [("", one) for one in _as_list("instance_ids", instance_ids)]
        wanted += [(one, None) for one in _as_list("member_ids", member_ids)]
        wanted += [_member_pair(one) for one in _as_list("members", members)]
        if all_members:
            if wanted:
                raise ConfigError("remove_members() takes either ids or all_members")
            described = self.describe_group(group_id, timeout)
            wanted = [(one.member_id, one.group_instance_id) for one in described.members]
        if not wanted:
            return []
        build = _leave(group_id, wanted, reason)
        with CoordinatorClient(self._groups, group_id) as asking:
            response: LeaveGroupResponse = asking.ask(LEAVE_GROUP, build, _error_code, deadline)
        _check(f"members of group {group_id!r}", response.error_code)
        return [
            Removal(
                one.member_id,
                one.group_instance_id,
                _error(_name(one.member_id, one.group_instance_id), one.error_code),
            )
            for one in response.members
        ]

    def add_members(
        self,
        group_id: str,
        instance_ids: Iterable[str],
        wait_ms: int = DEFAULT_WAIT_MS,
        timeout: float | None = None,
    ) -> list[Registered]:
        """Register static members that are about to join (KIP-469). One rebalance adds them when the last one has
        joined or after `wait_ms`. One result for each. The group need not exist yet. Holdfast only."""
        return group_admin.add_members(self._groups, group_id, instance_ids, wait_ms, self._deadline(timeout))

    def cancel_registration(
        self, group_id: str, instance_ids: Iterable[str] | None = None, timeout: float | None = None
    ) -> list[Cancelled]:
        """Cancel the registration of these members, or of all that have not joined yet. One result for each.
        Holdfast only."""
        return group_admin.cancel_registration(self._groups, group_id, instance_ids, self._deadline(timeout))

    def configure_group(self, group_id: str, changes: Mapping[str, ConfigValue], timeout: float | None = None) -> None:
        """Set configs of a group, all or none: `target.group.size` and `standby.takeover.ms` on Holdfast, Kafka's own
        on Kafka. None resets a config to its default. The group need not exist yet."""
        group_admin.configure_group(self._groups, group_id, changes, self._deadline(timeout))

    def group_config(self, group_id: str, timeout: float | None = None) -> dict[str, GroupConfig]:
        """The configs of a group by name, including those at their default."""
        return group_admin.group_config(self._groups, group_id, self._deadline(timeout))

    def delete_groups(self, group_ids: Iterable[str], timeout: float | None = None) -> dict[str, HoldfastError | None]:
        """Delete groups without members, with their offsets; by group, None or the error."""
        deadline = self._deadline(timeout)
        results: dict[str, HoldfastError | None] = {}
        for group_id in _as_list("group_ids", group_ids):
            try:
                with CoordinatorClient(self._groups, group_id) as asking:
                    response = asking.ask(DELETE_GROUPS, _delete(group_id), _first_result, deadline)
            except GroupError as error:  # this user may not find its coordinator; another group may have one
                results[group_id] = error
            else:
                results[group_id] = _error(f"group {group_id!r}", _first_result(response))
        return results

    # -- offsets -------------------------------------------------------------------------------------------------------

    def list_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """The committed offsets of the group, for these partitions or for all."""
        with CoordinatorClient(self._groups, group_id) as asking:
            return asking.fetch_offsets(partitions, self._deadline(timeout))

    def alter_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, HoldfastError | None]:
        """Set the offsets of a group without members; by partition, None or the error."""
        if not offsets:
            return {}
        negative = [where for where, offset in offsets.items() if offset < 0]
        if negative:
            raise ConfigError(f"an offset is not below 0; that of {negative[0][0]}-{negative[0][1]} is")
        wanted = {where: (offset, None, -1) for where, offset in offsets.items()}
        build = offset_commit(group_id, NO_GENERATION, None, wanted)
        deadline = self._deadline(timeout)
        with CoordinatorClient(self._groups, group_id) as asking:
            response = asking.ask(OFFSET_COMMIT, build, _first_commit_error, deadline, MAX_VERSION_WITH_TOPIC_NAMES)
        return {
            (topic.name, one.partition_index): _error(
                f"{topic.name}-{one.partition_index}", one.error_code, _GROUP_NOT_EMPTY
            )
            for topic in response.topics
            for one in topic.partitions
        }

    def reset_offsets(
        self,
        group_id: str,
        topics: Iterable[str | TopicPartition] | None = None,
        *,
        to: ResetTo | None = None,
        to_time_ms: int | None = None,
        shift_by: int | None = None,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetReset]:
        """Set offsets to the earliest, the latest or a given offset (`to`), to a time, or shift them by a number of
        records (`shift_by`, negative for earlier), within the log. A topic means all its partitions. Without topics,
        all partitions with a committed offset are reset. With `dry_run`, the changes are returned and not made. The
        group must have no members."""
        if sum(one is not None for one in (to, to_time_ms, shift_by)) != 1:
            raise ConfigError("reset_offsets() takes exactly one of to, to_time_ms and shift_by")
        wanted = None if topics is None else _as_list("topics", topics)
        deadline = self._deadline(timeout)
        before = self.list_offsets(group_id, timeout=timeout)
        partitions = self._partitions_of(group_id, wanted, before, deadline)
        after = self._targets(partitions, before, to, to_time_ms, shift_by, deadline)
        if not dry_run:
            errors = self.alter_offsets(group_id, after, timeout)
            failed = next((error for error in errors.values() if error is not None), None)
            if failed is not None:
                raise failed
        return {
            where: OffsetReset(before[where].offset if where in before else None, offset)
            for where, offset in after.items()
        }

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, HoldfastError | None]:
        """Delete offsets of partitions that no member subscribes to; by partition, None or the error."""
        topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
        for topic, number in partitions:
            topics.setdefault(topic, []).append(OffsetDeleteRequestPartition(number))
        entries = [OffsetDeleteRequestTopic(name, numbers) for name, numbers in topics.items()]

        def build(_version: int) -> OffsetDeleteRequest:
            return OffsetDeleteRequest(group_id, entries)

        with CoordinatorClient(self._groups, group_id) as asking:
            response = asking.ask(OFFSET_DELETE, build, _error_code, self._deadline(timeout))
        _check(f"offsets of group {group_id!r}", response.error_code)
        return {
            (topic.name, one.partition_index): _error(f"{topic.name}-{one.partition_index}", one.error_code)
            for topic in response.topics
            for one in topic.partitions
        }

    def _partitions_of(
        self,
        group_id: str,
        topics: Iterable[str | TopicPartition] | None,
        before: Mapping[TopicPartition, CommittedOffset],
        deadline: float,
    ) -> list[TopicPartition]:
        wanted = {topic for topic, _ in before} if topics is None else set(topics)
        if not wanted:
            raise GroupError(f"group {group_id!r} has committed to no topic: name the topics to reset")
        whole = {one for one in wanted if isinstance(one, str)}
        single = {one for one in wanted if not isinstance(one, str)}
        metadata = self._cluster.metadata(whole | {topic for topic, _ in single}, deadline)
        for topic, number in single:
            count = metadata.topic(topic).partitions
            if not 0 <= number < count:
                raise TopicError(f"topic {topic!r} has partitions 0 to {count - 1}, and no {number}")
        of_whole = {(name, number) for name in whole for number in range(metadata.topic(name).partitions)}
        return sorted(single | of_whole)

    def _targets(
        self,
        partitions: Sequence[TopicPartition],
        before: Mapping[TopicPartition, CommittedOffset],
        to: ResetTo | None,
        to_time_ms: int | None,
        shift_by: int | None,
        deadline: float,
    ) -> dict[TopicPartition, int]:
        first = list_offsets(self._cluster, dict.fromkeys(partitions, EARLIEST), deadline)
        last = list_offsets(self._cluster, dict.fromkeys(partitions, LATEST), deadline)
        if to == "earliest":
            return first
        if to == "latest":
            return last
        if to_time_ms is not None:
            at = list_offsets(self._cluster, dict.fromkeys(partitions, to_time_ms), deadline)
            return {where: offset if offset >= 0 else last[where] for where, offset in at.items()}
        if shift_by is not None:
            missing = [where for where in partitions if where not in before]
            if missing:
                where = missing[0]
                raise GroupError(
                    f"the group has no offset of {where[0]}-{where[1]} to shift; reset it to a place first"
                )
            wanted = {where: before[where].offset + shift_by for where in partitions}
        elif isinstance(to, int) and to >= 0:
            wanted = dict.fromkeys(partitions, to)
        else:
            raise ConfigError(f"to is {to!r}; it can be 'earliest', 'latest' or an offset")
        return {where: min(max(offset, first[where]), last[where]) for where, offset in wanted.items()}

    def _deadline(self, timeout: float | None) -> float:
        return self._cluster.clock.now() + (self._timeout_s if timeout is None else timeout)


def _as_list(what: str, given: Iterable[_Name]) -> list[_Name]:
    """Rejects a single string, which is also a sequence of strings: its letters could be valid names."""
    if isinstance(given, str):
        raise ConfigError(f"{what} is {given!r}; it must be several: [{given!r}]")
    return list(given)


def _member_pair(given: tuple[str, str | None]) -> tuple[str, str | None]:
    match given:
        case (str(member_id), str() | None as instance_id) if member_id or instance_id:
            return member_id, instance_id
    raise ConfigError(f"members has {given!r}; each is a pair of a member id and an instance id, one of them at least")


def _require_event_log(bounds: tuple[int, int] | None) -> tuple[int, int]:
    if bounds is None:
        raise TopicError(
            f"the server has no ledger (no topic {LEDGER_TOPIC}): Apache Kafka keeps none, and Holdfast begins one "
            "with the first event of a group",
            code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            retriable=False,
        )
    return bounds


def _leave(group_id: str, wanted: Sequence[tuple[str, str | None]], reason: str) -> Callable[[int], LeaveGroupRequest]:
    def build(version: int) -> LeaveGroupRequest:
        if version < _FIRST_BATCH_LEAVE:
            raise UnsupportedVersion(
                f"members can be removed by brokers from Kafka 2.4 on; this one has LeaveGroup up to v{version}",
                code=ErrorCode.UNSUPPORTED_VERSION,
            )
        cut = reason[:MAX_REASON_LENGTH] if version >= 5 else None
        return LeaveGroupRequest(
            group_id, members=[MemberIdentity(member, instance, cut) for member, instance in wanted]
        )

    return build


def _delete(group_id: str) -> Callable[[int], DeleteGroupsRequest]:
    return lambda _version: DeleteGroupsRequest([group_id])


def _error_code(response: Any) -> int:
    return int(response.error_code)


def _first_result(response: Any) -> int:
    return int(response.results[0].error_code)


def _first_commit_error(response: OffsetCommitResponse) -> int:
    return next((one.error_code for topic in response.topics for one in topic.partitions if one.error_code), 0)


def _name(member_id: str, instance_id: str | None) -> str:
    if instance_id is None:
        return f"member {member_id!r}"
    return f"instance {instance_id!r} as member {member_id!r}" if member_id else f"instance {instance_id!r}"


def _error(what: str, code: int, advice: Mapping[ErrorCode, str] = _ADVICE) -> HoldfastError | None:
    if not code:
        return None
    known = error_code(code)
    kind = TopicError if known is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else GroupError
    return kind(
        f"{what}: {known.name}: {advice.get(known) or _ADVICE.get(known, 'see the log of the broker')}", code=known
    )


def _check(what: str, code: int) -> None:
    error = _error(what, code)
    if error is not None:
        raise error
