"""The consumer coordinator alone: the test gives it events and the results of its effects. No thread, no socket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import pytest

from holdfast.assignors import Assignor, CooperativeStickyAssignor, RangeAssignor
from holdfast.assignors.interface import Cluster, MemberAssignment, MemberSubscription
from holdfast.membership.consumer_coordinator import (
    HANDOVER_TIMEOUT_MS,
    RETRY_INTERVAL_MS,
    ConsumerCoordinator,
    MetadataView,
    Steps,
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
from holdfast.membership.owned_partitions import OwnedPartitions
from holdfast.membership.settings import MembershipSettings
from holdfast.wire.apis.describe_groups import DescribedGroup, DescribedGroupMember, GroupExtensions
from holdfast.wire.apis.join_group import JoinGroupResponseMember
from holdfast.wire.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)

T = TypeVar("T")
ME, OTHER, TOPIC = "me", "other", "t"
MAX_AGE_MS, MIN_INTERVAL_MS, TIMEOUT_MS = 60_000, 1_000, 30_000
FENCED = Failure(FailureKind.FENCED, "fenced")


class Interrupt(BaseException):
    """As KeyboardInterrupt."""


class Harness:
    """Performs no effect: notes it and returns the result that the test has written down for its type."""

    def __init__(self, assignor: Assignor | None = None, topics: frozenset[str] | None = frozenset({TOPIC})) -> None:
        self.now = 1_000
        self.has_extensions = False
        self.effects: list[ConsumerEffect] = []
        self.results: dict[type, Any] = {
            FetchStartOffsets: lambda effect: dict.fromkeys(effect.partitions, 5),
            FetchCluster: lambda effect: Cluster(dict.fromkeys(effect.topics, 2)),
            RaiseFailure: lambda effect: _raise(RuntimeError(effect.failure.message)),
        }
        settings = MembershipSettings("g", "consumer", group_instance_id="me-1", request_timeout_ms=TIMEOUT_MS)
        self.coordinator = ConsumerCoordinator(
            settings,
            OwnedPartitions([assignor or RangeAssignor()]),
            metadata_max_age_ms=MAX_AGE_MS,
            metadata_rebalance_min_interval_ms=MIN_INTERVAL_MS,
        )
        self.coordinator.subscribe(topics)

    def run(self, steps: Steps[T]) -> T:
        result: Any = None
        raised: BaseException | None = None
        while True:
            self.coordinator.advance(self.now, has_extensions=self.has_extensions)
            try:
                effect = steps.send(result) if raised is None else steps.throw(raised)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            self.effects.append(effect)
            result, raised = None, None
            try:
                result = self.results.get(type(effect), lambda _: None)(effect)
            except BaseException as error:  # noqa: BLE001 - passed on
                raised = error

    def handle(self, event: MembershipEvent) -> list[str]:
        self.effects.clear()
        return self.run(self.coordinator.handle(event))

    def check_metadata(self, partitions: Mapping[str, int] | None = None) -> list[ConsumerEffect]:
        self.effects.clear()
        view = None if partitions is None else MetadataView(frozenset(partitions), Cluster(dict(partitions)))
        self.run(self.coordinator.check_metadata(view))
        return self.effects

    def assigned(self, *numbers: int, generation_id: int = 1, is_leader: bool = False, protocol: str = "range") -> None:
        """A rebalance with this result, after which the partitions are read."""
        self.handle(JoinComplete(generation_id, ME, protocol, is_leader, assignment(*numbers)))
        if self.coordinator.awaits_offsets:
            self.run(self.coordinator.start_partitions())

    def lead(self, *members: JoinGroupResponseMember, protocol: str = "range", skip: bool = False) -> list[str]:
        return self.handle(LeaderElected(1, protocol, list(members) or [member(ME)], skip))


def _raise(error: BaseException) -> Any:
    raise error


def assignment(*numbers: int) -> bytes:
    return encode_assignment(Assignment([TopicPartitions(TOPIC, list(numbers))]))


def member(member_id: str, topic: str = TOPIC) -> JoinGroupResponseMember:
    return JoinGroupResponseMember(member_id, None, encode_subscription(Subscription([topic])))


def described(assignments: Mapping[str, bytes], extensions: GroupExtensions | None = None) -> DescribedGroup:
    members = [
        DescribedGroupMember(name, None, "c", "/h", encode_subscription(Subscription([TOPIC])), given)
        for name, given in assignments.items()
    ]
    return DescribedGroup(
        group_id="g",
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="cooperative-sticky",
        members=members,
        extensions=extensions,
    )


def partitions(*numbers: int) -> list[tuple[str, int]]:
    return [(TOPIC, number) for number in numbers]


# -- before a join -----------------------------------------------------------------------------------------------------


def test_an_eager_member_revokes_everything_before_it_joins() -> None:
    harness = Harness()
    harness.assigned(0, 1)

    harness.handle(JoinPrepare(2, lost=False))

    rejoin, before, revoked, prepared = harness.effects
    assert (rejoin, before) == (BeforeRejoin(frozenset(), TIMEOUT_MS), BeforeRevoke(partitions(0, 1), TIMEOUT_MS))
    assert revoked == PartitionsRevoked(partitions(0, 1))
    assert isinstance(prepared, JoinPrepared) and prepared.attempt == 2


def test_a_cooperative_member_keeps_its_partitions_through_a_join() -> None:
    harness = Harness(CooperativeStickyAssignor())
    harness.assigned(0, 1, protocol="cooperative-sticky")

    harness.handle(JoinPrepare(2, lost=False))

    assert harness.effects[:2] == [
        BeforeRejoin(frozenset(partitions(0, 1)), TIMEOUT_MS),
        BeforeRevoke([], TIMEOUT_MS),
    ]
    assert isinstance(harness.effects[2], JoinPrepared)


def test_after_a_lost_generation_nothing_is_committed() -> None:
    harness = Harness()
    harness.assigned(0)

    harness.handle(JoinPrepare(2, lost=True))

    assert harness.effects[0] == PartitionsLost(partitions(0))
    assert isinstance(harness.effects[1], JoinPrepared)


def test_patterns_are_resolved_before_each_join() -> None:
    harness = Harness(topics=None)
    harness.results[ResolveTopics] = lambda _: frozenset({"a", "b"})

    harness.handle(JoinPrepare(1, lost=False))

    assert harness.effects[0] == ResolveTopics()
    assert harness.coordinator.owned_partitions.topics == {"a", "b"}


def test_a_failed_lookup_of_topics_leaves_the_partitions_where_they_are() -> None:
    harness = Harness(topics=None)
    harness.results[ResolveTopics] = lambda _: _raise(ConnectionError())

    with pytest.raises(ConnectionError):
        harness.handle(JoinPrepare(1, lost=False))

    assert harness.effects == [ResolveTopics()]


@pytest.mark.parametrize(
    "event", [JoinPrepare(1, lost=False), JoinComplete(1, ME, "range", False, assignment(0)), LeftGroup()]
)
def test_without_a_subscription_events_have_no_effect(event: MembershipEvent) -> None:
    harness = Harness()
    harness.run(harness.coordinator.leave(TIMEOUT_MS))

    harness.handle(event)

    assert harness.effects == []


# -- leading -----------------------------------------------------------------------------------------------------------


def test_the_leader_assigns_and_names_its_own_topics_that_do_not_exist() -> None:
    harness = Harness(topics=frozenset({TOPIC, "missing"}))
    harness.results[FetchCluster] = lambda _: Cluster({TOPIC: 2})

    missing = harness.lead(member(ME), member(OTHER))

    fetch, ready = harness.effects
    assert fetch == FetchCluster(frozenset({TOPIC}))
    assert isinstance(ready, AssignmentReady) and ready.assignments.keys() == {ME, OTHER}
    assert missing == ["missing"]


def test_a_leader_that_skips_the_assignment_monitors_the_topics_of_all_members() -> None:
    harness = Harness()

    harness.lead(member(ME), member(OTHER, "theirs"), skip=True)

    assert harness.effects == [FetchCluster(frozenset({TOPIC, "theirs"})), AssignmentReady(1, {})]
    assert harness.coordinator.monitored_topics == {TOPIC, "theirs"}


class BrokenAssignor(RangeAssignor):
    def assign(self, cluster: Cluster, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, MemberAssignment]:
        raise LookupError("no idea")


def test_without_extensions_a_broken_assignor_ends_the_membership() -> None:
    harness = Harness(BrokenAssignor())

    with pytest.raises(RuntimeError, match="LookupError: no idea; this member led group 'g' with 1 topics"):
        harness.lead()

    _, failed, raised = harness.effects
    assert isinstance(failed, AssignorFailed) and isinstance(raised, RaiseFailure)
    assert raised.failure.kind is FailureKind.ASSIGNOR


def test_a_broken_assignor_is_reported_to_a_coordinator_with_extensions() -> None:
    harness = Harness(BrokenAssignor())
    harness.has_extensions = True

    harness.lead()

    _, logged, reported = harness.effects
    assert isinstance(logged, LogWarning) and isinstance(reported, ReportAssignorFailure)
    assert reported.generation_id == 1 and "no idea" in reported.message


# -- after a rebalance -------------------------------------------------------------------------------------------------


def test_new_partitions_start_once_their_offsets_are_known() -> None:
    harness = Harness()
    harness.results[FetchStartOffsets] = lambda _: None

    harness.handle(JoinComplete(1, ME, "range", False, assignment(0, 1), epoch=7))
    assert harness.effects == []
    assert (harness.coordinator.generation_id, harness.coordinator.member_id) == (1, ME)
    assert harness.coordinator.epoch == 7

    harness.run(harness.coordinator.start_partitions())
    assert harness.coordinator.awaits_offsets

    harness.results[FetchStartOffsets] = lambda effect: dict.fromkeys(effect.partitions, 5)
    harness.run(harness.coordinator.start_partitions())
    assert harness.effects[-1] == PartitionsAssigned(dict.fromkeys(partitions(0, 1), 5))
    assert not harness.coordinator.awaits_offsets


def test_an_empty_assignment_is_reported_as_well() -> None:
    harness = Harness()

    harness.handle(JoinComplete(1, ME, "range", False, assignment()))

    assert harness.effects == [PartitionsAssigned({})]


def test_an_interrupted_on_assign_is_repeated() -> None:
    harness = Harness()
    harness.handle(JoinComplete(1, ME, "range", False, assignment(0)))
    harness.results[PartitionsAssigned] = lambda _: _raise(Interrupt())

    with pytest.raises(Interrupt):
        harness.run(harness.coordinator.start_partitions())

    assert harness.coordinator.awaits_offsets


def test_a_cooperative_member_revokes_what_moves_and_rejoins() -> None:
    harness = Harness(CooperativeStickyAssignor())
    harness.assigned(0, 1, protocol="cooperative-sticky")

    harness.handle(JoinComplete(2, ME, "cooperative-sticky", False, assignment(0)))

    assert harness.effects == [
        BeforeRevoke(partitions(1), TIMEOUT_MS),
        Rejoin("need to revoke partitions and re-join"),
        PartitionsRevoked(partitions(1)),
    ]


def test_an_interrupt_before_the_revocation_does_not_keep_the_group_waiting() -> None:
    harness = Harness(CooperativeStickyAssignor())
    harness.assigned(0, 1, protocol="cooperative-sticky")
    harness.results[BeforeRevoke] = lambda _: _raise(Interrupt())

    with pytest.raises(Interrupt):
        harness.handle(JoinComplete(2, ME, "cooperative-sticky", False, assignment(0)))

    assert harness.effects[1:] == [
        Rejoin("need to revoke partitions and re-join"),
        PartitionsRevoked(partitions(1)),
    ]


def test_partitions_that_never_started_are_not_revoked() -> None:
    harness = Harness()
    harness.handle(JoinComplete(1, ME, "range", False, assignment(0)))

    harness.handle(JoinPrepare(2, lost=False))

    assert [type(one) for one in harness.effects] == [BeforeRejoin, BeforeRevoke, JoinPrepared]
    assert not harness.coordinator.awaits_offsets


def test_an_unreadable_assignment_ends_the_membership() -> None:
    harness = Harness()

    with pytest.raises(RuntimeError, match="cannot be read"):
        harness.handle(JoinComplete(1, ME, "range", False, b"\x00"))


# -- the topics --------------------------------------------------------------------------------------------------------


def test_a_leader_asks_for_metadata_and_rebalances_when_it_changes() -> None:
    harness = Harness()
    harness.lead()
    harness.assigned(0, 1, is_leader=True)
    assert harness.check_metadata() == []

    harness.now += MAX_AGE_MS
    assert harness.check_metadata() == [RequestMetadata(frozenset({TOPIC}))]

    assert harness.check_metadata({TOPIC: 3}) == [], "further changes are waited for"
    harness.now += MIN_INTERVAL_MS
    assert harness.check_metadata({TOPIC: 3})[0] == Rejoin("cached metadata has changed")


def test_control_a_follower_asks_for_nothing() -> None:
    harness = Harness()
    harness.assigned(0, 1)

    harness.now += MAX_AGE_MS

    assert harness.check_metadata() == []


def test_growth_is_assigned_without_a_rebalance_where_the_coordinator_can() -> None:
    harness = Harness(CooperativeStickyAssignor())
    harness.has_extensions = True
    harness.lead(protocol="cooperative-sticky")
    harness.assigned(0, 1, is_leader=True, protocol="cooperative-sticky")
    extensions = GroupExtensions(generation_id=1, assignment_epoch=9, leader=ME, settled=True)
    harness.results[DescribeGroup] = lambda _: GroupView(described({ME: assignment(0, 1)}, extensions), Cluster({}))

    harness.check_metadata({TOPIC: 3})
    harness.now += MIN_INTERVAL_MS
    effects = harness.check_metadata({TOPIC: 3})

    resync = next(one for one in effects if isinstance(one, Resync))
    assert (resync.generation_id, resync.epoch) == (1, 9)
    grown = decode_assignment(resync.assignments[ME]).assigned_partitions
    assert sorted(number for entry in grown for number in entry.partitions) == [0, 1, 2]


def test_growth_causes_a_rebalance_if_the_group_cannot_be_described() -> None:
    harness = Harness(CooperativeStickyAssignor())
    harness.has_extensions = True
    harness.lead(protocol="cooperative-sticky")
    harness.assigned(0, 1, is_leader=True, protocol="cooperative-sticky")

    harness.check_metadata({TOPIC: 3})
    harness.now += MIN_INTERVAL_MS
    asked, rejoin, *_ = harness.check_metadata({TOPIC: 3})

    assert isinstance(asked, DescribeGroup) and rejoin == Rejoin("cached metadata has changed")


def test_a_leader_that_skipped_the_assignment_checks_that_it_covers_every_partition() -> None:
    harness = Harness()
    harness.lead(member(ME), skip=True)
    harness.assigned(0, 1, is_leader=True)

    assert [type(one) for one in harness.check_metadata()] == [DescribeGroup]
    assert harness.check_metadata() == [], "asked again only after a while"

    harness.now += RETRY_INTERVAL_MS
    group = GroupView(described({ME: assignment(0, 1)}), Cluster({TOPIC: 3}))
    harness.results[DescribeGroup] = lambda _: group
    _, rejoin = harness.check_metadata()
    assert rejoin == Rejoin("1 partitions have no owner, t-2 among them")
    assert harness.check_metadata() == []


def test_a_cooperative_leader_checks_that_a_handover_has_come_to_its_end() -> None:
    harness = Harness(CooperativeStickyAssignor())
    owns_all = Subscription([TOPIC], owned_partitions=[TopicPartitions(TOPIC, [0, 1])], generation_id=1)
    holder = JoinGroupResponseMember(OTHER, None, encode_subscription(owns_all))
    harness.lead(member(ME), holder, protocol="cooperative-sticky")
    harness.assigned(is_leader=True, protocol="cooperative-sticky")
    assert harness.check_metadata() == []

    harness.now += HANDOVER_TIMEOUT_MS

    assert [type(one) for one in harness.check_metadata()] == [DescribeGroup]


def test_a_new_topic_that_matches_a_pattern_causes_a_rebalance() -> None:
    harness = Harness(topics=None)
    harness.results[ResolveTopics] = lambda _: frozenset({TOPIC})
    harness.handle(JoinPrepare(1, lost=False))
    harness.assigned(0)

    harness.check_metadata({TOPIC: 2, "new": 1})
    harness.now += MIN_INTERVAL_MS

    assert harness.check_metadata({TOPIC: 2, "new": 1})[0] == Rejoin("cached metadata has changed")


# -- the end -----------------------------------------------------------------------------------------------------------


def test_a_fenced_member_loses_its_partitions_and_names_the_holder() -> None:
    harness = Harness()
    harness.assigned(0)
    holder = DescribedGroupMember("new-id", "me-1", "their-client", "/10.0.0.9", b"", b"")
    group = DescribedGroup(group_id="g", group_state="Stable", protocol_type="consumer", members=[holder])
    harness.results[DescribeGroup] = lambda _: GroupView(group, Cluster({}))

    with pytest.raises(RuntimeError, match=r"fenced.*new-id.*their-client.*10\.0\.0\.9"):
        harness.handle(Failed(FENCED))

    assert harness.effects[:3] == [RecordFailure(FENCED), PartitionsLost(partitions(0)), DescribeGroup()]


def test_leaving_revokes_everything_and_ends_the_generation() -> None:
    harness = Harness(CooperativeStickyAssignor())
    harness.assigned(0, 1, protocol="cooperative-sticky")
    harness.effects.clear()

    harness.run(harness.coordinator.leave(500))

    assert harness.effects == [BeforeRevoke(partitions(0, 1), 500), PartitionsRevoked(partitions(0, 1))]
    assert (harness.coordinator.generation_id, harness.coordinator.member_id) == (-1, "")
    assert not harness.coordinator.is_subscribed
