"""`ConsumerCoordinator`: handles the group events of a member of type "consumer", without I/O.

It revokes partitions before a join, assigns them if this member leads, applies the assignment, and monitors the topics.
Each method returns steps (a generator): they yield the effects to perform, get the result of each, and end with the
value of the call. If an effect raises, the exception is raised in the steps. The driver sets the time before each step
(`advance`).
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from holdfast.assignors.interface import Cluster, RebalanceProtocol
from holdfast.membership.assignment import (
    InvalidAssignment,
    perform_assignment,
    read_subscriptions,
    subscribed_topics,
)
from holdfast.membership.consumer_effects import (
    AssignmentReady,
    AssignorFailed,
    BeforeRejoin,
    BeforeRevoke,
    ConsumerEffect,
    DescribeGroup,
    FetchCluster,
    FetchStartOffsets,
    GroupView,
    JoinPrepared,
    LogWarning,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    RaiseFailure,
    RecordFailure,
    Rejoin,
    ReportAssignorFailure,
    RequestMetadata,
    ResolveTopics,
    Resync,
)
from holdfast.membership.effects import (
    Failed,
    JoinComplete,
    JoinPrepare,
    LeaderElected,
    LeftGroup,
    MembershipEvent,
)
from holdfast.membership.failures import Failure, FailureKind
from holdfast.membership.generation import NO_MEMBER_ID, UNKNOWN_GENERATION_ID
from holdfast.membership.metadata_monitor import TopicMonitor
from holdfast.membership.owned_partitions import AssignmentChange, OwnedPartitions
from holdfast.membership.resync import STABLE, Leader, plan_growth
from holdfast.membership.settings import MembershipSettings
from holdfast.membership.unassigned import unassigned_partitions
from holdfast.types import TopicPartition
from holdfast.wire.errors import WireError

RETRY_INTERVAL_MS: Final = 5_000
HANDOVER_TIMEOUT_MS: Final = 3_000
"""How long a leader waits for members that have to revoke partitions before it checks whether they still will."""

T = TypeVar("T")
Steps = Generator[ConsumerEffect, Any, T]


@dataclass(frozen=True, slots=True)
class MetadataView:
    """The content of a Metadata response that concerns the subscription."""

    subscribed: frozenset[str]
    cluster: Cluster
    """The topics that are monitored."""


class ConsumerCoordinator:
    def __init__(
        self,
        settings: MembershipSettings,
        owned_partitions: OwnedPartitions,
        *,
        metadata_max_age_ms: int,
        metadata_rebalance_min_interval_ms: int,
    ) -> None:
        self.owned_partitions = owned_partitions
        self.generation_id = UNKNOWN_GENERATION_ID
        self.member_id = NO_MEMBER_ID
        self.epoch: int | None = None
        """The assignment epoch, if the coordinator has one."""
        self.is_subscribed = False
        self.monitored_topics: frozenset[str] = frozenset()
        """The topics of all members, while this one leads."""
        self._settings = settings
        self._has_patterns = False
        self._metadata_max_age_ms = metadata_max_age_ms
        self._monitor = TopicMonitor(metadata_rebalance_min_interval_ms)
        self._awaiting_offsets: set[TopicPartition] = set()
        self._assignment_skipped = False
        self._handover_pending = False
        self._coverage_check_at: int | None = None
        self._metadata_refresh_at: int | None = None
        self._now = 0
        self._has_extensions = False

    def advance(self, now: int, *, has_extensions: bool) -> None:
        """The time in milliseconds, and whether the coordinator that was last connected has Holdfast's extensions."""
        self._now = now
        self._has_extensions = has_extensions

    # -- the application's calls ---------------------------------------------------------------------------------------

    def subscribe(self, topics: frozenset[str] | None) -> None:
        """None for patterns, which are resolved before each join."""
        self.is_subscribed = True
        self._has_patterns = topics is None
        if topics is not None:
            self.owned_partitions.topics = topics

    def leave(self, timeout_ms: int) -> Steps[None]:
        """Revoke all partitions and end the subscription."""
        self.is_subscribed = False
        yield from self._revoke(lost=False, leaving=True, timeout_ms=timeout_ms)
        self._awaiting_offsets.clear()
        self._monitor.stop()
        self._metadata_refresh_at = self._coverage_check_at = None
        self.generation_id, self.member_id, self.epoch = UNKNOWN_GENERATION_ID, NO_MEMBER_ID, None

    def handle(self, event: MembershipEvent) -> Steps[list[str]]:
        """Returns the subscribed topics that do not exist, if this event reveals them."""
        match event:
            case JoinPrepare():
                yield from self._prepare_join(event)
            case LeaderElected():
                return (yield from self._lead(event))
            case JoinComplete():
                yield from self._complete_join(event)
            case Failed(failure):
                yield from self._membership_failed(failure)
            case LeftGroup():
                pass
        return []

    # -- before a join -------------------------------------------------------------------------------------------------

    def _prepare_join(self, event: JoinPrepare) -> Steps[None]:
        if not self.is_subscribed:
            return
        self._monitor.stop()
        if self._has_patterns:
            # Every member resolves its patterns before it joins, so that one rebalance is enough for all of them.
            self.owned_partitions.topics = yield ResolveTopics()
        yield from self._revoke(lost=event.lost)
        yield JoinPrepared(event.attempt, self.owned_partitions.protocols())

    def _revoke(self, *, lost: bool, leaving: bool = False, timeout_ms: int | None = None) -> Steps[None]:
        owned = self.owned_partitions
        if not lost:
            timeout_ms = self._settings.request_timeout_ms if timeout_ms is None else timeout_ms
            to_revoke = set(owned.to_revoke(leaving=leaving))
            if not leaving:
                yield BeforeRejoin(frozenset(owned.partitions - to_revoke - self._awaiting_offsets), timeout_ms)
            yield BeforeRevoke(sorted(to_revoke - self._awaiting_offsets), timeout_ms)
        revocation = owned.revoke(lost=lost, leaving=leaving)
        never_started = self._awaiting_offsets & {*revocation.revoked, *revocation.lost}
        self._awaiting_offsets -= never_started
        yield from _unless_empty(PartitionsRevoked, [one for one in revocation.revoked if one not in never_started])
        yield from _unless_empty(PartitionsLost, [one for one in revocation.lost if one not in never_started])

    # -- leading -------------------------------------------------------------------------------------------------------

    def _lead(self, event: LeaderElected) -> Steps[list[str]]:
        subscriptions = read_subscriptions(event.members)
        topics = frozenset(subscribed_topics(subscriptions))
        cluster: Cluster = yield FetchCluster(topics)
        self.monitored_topics = topics
        self._monitor.start(cluster)
        self._assignment_skipped, self._handover_pending = event.skip_assignment, False
        if event.skip_assignment:
            # KIP-814: the assignment is unchanged. Whether it still covers every partition is checked after the join.
            yield AssignmentReady(event.generation_id, {})
            return []
        assignor = self.owned_partitions.assignors[event.protocol]
        try:
            assignments = perform_assignment(assignor, cluster, subscriptions)
        except InvalidAssignment as error:
            yield from self._assignor_failed(event.generation_id, error, len(topics))
            return []
        if assignor.protocol is RebalanceProtocol.COOPERATIVE:
            self._handover_pending = bool(unassigned_partitions(cluster, topics, assignments.values()))
        yield AssignmentReady(event.generation_id, assignments)
        return sorted(self.owned_partitions.topics - cluster.partitions.keys())

    def _assignor_failed(self, generation_id: int, error: InvalidAssignment, topics: int) -> Steps[None]:
        message = f"{error}; this member led group {self._settings.group_id!r} with {topics} topics"
        if not self._has_extensions:
            yield AssignorFailed(generation_id, message)
            yield RaiseFailure(Failure(FailureKind.ASSIGNOR, message), error)
            return
        # The coordinator elects another leader. If that fails, too, `Failed` follows.
        yield LogWarning(message)
        self._monitor.stop()
        yield ReportAssignorFailure(generation_id, error.fault, message)

    # -- after a rebalance ---------------------------------------------------------------------------------------------

    def _complete_join(self, event: JoinComplete) -> Steps[None]:
        if not self.is_subscribed:
            return
        try:
            change = self.owned_partitions.on_assignment(event.protocol, event.generation_id, event.assignment)
        except WireError as error:
            message = f"the assignment that the leader made cannot be read: {error}; see which client leads the group"
            yield RaiseFailure(Failure(FailureKind.ASSIGNOR, message), error)
            return
        self.generation_id, self.member_id, self.epoch = event.generation_id, event.member_id, event.epoch
        revoked = [one for one in change.revoked if one not in self._awaiting_offsets]
        lost = [one for one in change.lost if one not in self._awaiting_offsets]
        self._awaiting_offsets.difference_update(change.revoked, change.lost)
        yield from _unless_empty(PartitionsLost, lost)
        self._awaiting_offsets.update(change.added)
        try:
            if revoked:
                yield BeforeRevoke(revoked, self._settings.request_timeout_ms)
        finally:  # also after an interrupt: this member no longer owns them, and the group waits for it to rejoin
            yield from self._apply_assignment(event, change, revoked)

    def _apply_assignment(
        self, event: JoinComplete, change: AssignmentChange, revoked: Sequence[TopicPartition]
    ) -> Steps[None]:
        if not event.is_leader:
            self._monitor.stop()
        self._coverage_check_at = self._next_coverage_check() if event.is_leader else None
        self._metadata_refresh_at = self._now + self._metadata_max_age_ms
        if change.rejoin is not None:
            yield Rejoin(change.rejoin)
        elif not change.added and not event.is_resync:
            yield PartitionsAssigned({})
        yield from _unless_empty(PartitionsRevoked, revoked)

    @property
    def awaits_offsets(self) -> bool:
        """Whether there are partitions to start with `start_partitions`."""
        return bool(self._awaiting_offsets)

    def start_partitions(self) -> Steps[None]:
        """Get the start offsets of new partitions, and pass the partitions to the application. Until then they wait."""
        wanted = sorted(self._awaiting_offsets)
        offsets = yield FetchStartOffsets(wanted)
        if offsets is None:
            return
        self._awaiting_offsets.clear()
        try:
            yield PartitionsAssigned(offsets)
        except BaseException:  # an interrupt: it is unknown whether the application has them
            self._awaiting_offsets.update(self.owned_partitions.partitions.intersection(wanted))
            raise

    # -- the topics ----------------------------------------------------------------------------------------------------

    def check_metadata(self, view: MetadataView | None) -> Steps[None]:
        """Compare the topics with those that were assigned, and rebalance if they differ. `view` is the content of a
        response to `RequestMetadata` since the last call, if any."""
        now = self._now
        if self._coverage_check_at is not None and now >= self._coverage_check_at:
            yield from self._check_coverage()
        if view is not None:
            yield from self._compare(view, now)
        if self._metadata_refresh_at is None or now < self._metadata_refresh_at or not self.is_subscribed:
            return
        self._metadata_refresh_at = now + self._metadata_max_age_ms
        if self._has_patterns or self._monitor.is_active:
            yield RequestMetadata(None if self._has_patterns else self.monitored_topics)

    def _compare(self, view: MetadataView, now: int) -> Steps[None]:
        if not self.is_subscribed:
            return
        if self._has_patterns and view.subscribed != self.owned_partitions.topics:
            due = self._monitor.change_due(now)
        else:
            due = self._monitor.rebalance_due(view.cluster, now)
        check_at = self._monitor.check_at
        if due:
            yield from self._resync_or_rejoin(view.cluster, "cached metadata has changed")
        elif check_at is not None:
            self._metadata_refresh_at = min(self._metadata_refresh_at or check_at, check_at)

    def _next_coverage_check(self) -> int | None:
        if self._assignment_skipped:
            return self._now
        return self._now + HANDOVER_TIMEOUT_MS if self._handover_pending else None

    def _check_coverage(self) -> Steps[None]:
        """Whether every partition has an owner (see `unassigned`)."""
        self._coverage_check_at = None
        view: GroupView | None = yield DescribeGroup(
            self.monitored_topics, "whether every partition has an owner could not be asked"
        )
        if view is None:
            self._coverage_check_at = self._now + RETRY_INTERVAL_MS
            return
        assignments = [member.member_assignment for member in view.group.members]
        found = unassigned_partitions(view.cluster, self.monitored_topics, assignments)
        if found and view.group.group_state == STABLE:
            reason = f"{len(found)} partitions have no owner, {found[0][0]}-{found[0][1]} among them"
            yield from self._resync_or_rejoin(view.cluster, reason)

    def _resync_or_rejoin(self, cluster: Cluster, reason: str) -> Steps[None]:
        """The topics have changed. If they only grew, the coordinator may let the leader assign the new partitions
        without a rebalance. That is tried once. If it fails, the group rebalances."""
        growth = None
        if self._has_extensions and self._monitor.only_grew(cluster):
            warning = "what the members have could not be asked, so the group rebalances"
            view: GroupView | None = yield DescribeGroup(if_unanswered=warning)
            leader = Leader(self.member_id, self.generation_id, self.owned_partitions.assignors)
            growth = None if view is None else plan_growth(leader, cluster, self.monitored_topics, view.group)
        if growth is None:
            yield Rejoin(reason)
            return
        self._monitor.start(cluster)
        self._assignment_skipped = self._handover_pending = False
        yield Resync(self.generation_id, growth.epoch, growth.assignments, reason)

    # -- the end -------------------------------------------------------------------------------------------------------

    def _membership_failed(self, failure: Failure) -> Steps[None]:
        """The membership has ended. Its partitions are lost, and every further call fails."""
        yield RecordFailure(failure)
        yield from self._revoke(lost=True)
        if failure.kind is FailureKind.FENCED:
            view: GroupView | None = yield DescribeGroup()
            failure = replace(failure, message=failure.message + self._describe_holder(view))
        yield RaiseFailure(failure)

    def _describe_holder(self, view: GroupView | None) -> str:
        """Which member has the instance id now, if the coordinator says so."""
        for member in () if view is None else view.group.members:
            if member.group_instance_id == self._settings.group_instance_id:
                return (
                    f". The instance id is held by member {member.member_id!r}; the broker shows client id "
                    f"{member.client_id!r} and host {member.client_host} for it"
                )
        return ""


def _unless_empty(
    effect: type[PartitionsRevoked | PartitionsLost], partitions: Collection[TopicPartition]
) -> Steps[None]:
    if partitions:
        yield effect(list(partitions))
