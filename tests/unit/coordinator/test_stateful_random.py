"""Random runs of a group: the invariants hold whatever the members, the disk and the clock do.

After every step:

- an instance id has at most one live holder, and no other member id gets a response without an error:
  `one_holder_of_an_instance_id`;
- every parked request is answered exactly once: `CoordinatorHarness` checks its open handles after every command, and
  `every_request_is_answered` checks at the end;
- every wait has a deadline: `CoordinatorHarness` finds it, and `silent_members_are_removed` checks at the end;
- members that behave reach Stable: `members_that_behave_reach_stable` at the end of every run;
- the group log, compacted or not, gives the same durable group: `group_log_matches_the_group`;
- a generation is never used twice and never decreases: `generations_never_go_back`;
- nothing is answered before it is stored: `DurabilityChecker` reads the group log and checks every reply.

`scripts/seeded-bugs` shows that each of these checks can fail.
"""

from __future__ import annotations

import copy

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.coordinator.classic.group import Group, PersistedGroup
from holdfast.coordinator.classic.hooks import Context, Hooks
from holdfast.coordinator.classic.member import Client, Member
from holdfast.coordinator.classic.state_machine import PREPARING
from holdfast.coordinator.classic.validate_member import validate_member
from holdfast.coordinator.events.group_event import EventKind
from holdfast.coordinator.offsets.commit import Commit
from holdfast.coordinator.runtime.context import GroupConfig
from holdfast.wire.apis.heartbeat import HeartbeatRequest
from holdfast.wire.apis.join_group import JoinGroupRequest
from holdfast.wire.apis.sync_group import SyncGroupRequest
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.harness import RETENTION_MS, STORAGE_FAILED, CoordinatorHarness, Handle
from tests.unit.coordinator.members import Consumer
from tests.unit.coordinator.well_behaved_client import WellBehavedClient

GROUPS = ("g", "h")
SESSIONS_MS = (100, 700, 3_000)
REBALANCES_MS = (1, 300, 1_500)
STEP_MS = 50


class RandomCoordinator(RuleBasedStateMachine):
    """Six consumers of two groups, three of them static (two share an instance id), some of them old clients."""

    @initialize(max_size=st.sampled_from([3, 100]))
    def begin(self, max_size: int) -> None:
        self.harness = CoordinatorHarness(max_size=max_size, partition_count=1)
        self.harness.listener = self._take_reply
        self.consumers = [
            Consumer(
                self.harness,
                instance=instance,
                version=version,
                group=group,
                session_ms=SESSIONS_MS[number % 3],
                rebalance_ms=REBALANCES_MS[number % 3],
                assignment=bytes([number]),
            )
            for group in GROUPS
            for number, (instance, version) in enumerate(
                [("A", 9), ("A", 5), ("B", 8), (None, 9), (None, 3), (None, 4)]
            )
        ]
        self.highest: dict[str, int] = {}
        self.events_seen = 0
        self.ids_of: dict[tuple[str, str], list[str]] = {}
        """The member ids under which an instance id of a group was let in, the present holder last."""

    who = st.integers(0, 11)

    # -- what members do -----------------------------------------------------------------------------------------------

    @rule(who=who)
    def joins(self, who: int) -> None:
        consumer = self.consumers[who]
        consumer.join()
        if consumer.joining is not None and not consumer.joining.is_pending:
            self._learn_from(consumer)

    @rule(who=who, metadata=st.sampled_from([b"metadata", b"changed"]))
    def joins_changed(self, who: int, metadata: bytes) -> None:
        self.consumers[who].metadata = metadata
        self.joins(who)

    @rule(who=who, protocols=st.sampled_from([("range", "roundrobin"), ("roundrobin", "range"), ("range",)]))
    def joins_with_other_protocols(self, who: int, protocols: tuple[str, ...]) -> None:
        self.consumers[who].protocols = protocols
        self.joins(who)

    @rule(who=who)
    def restarts(self, who: int) -> None:
        self.consumers[who].id, self.consumers[who].generation = "", -1
        self.joins(who)

    @staticmethod
    def _learn_from(consumer: Consumer) -> None:
        """As clients do: unknown or fenced ones start over."""
        assert consumer.joining is not None
        if consumer.joining.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            consumer.id, consumer.generation = "", -1
        consumer.joining = None

    @rule(who=who)
    def syncs(self, who: int) -> None:
        consumer = self.consumers[who]
        consumer.take()
        consumer.sync(*[other for other in self.consumers if other.group == consumer.group and other is not consumer])

    @rule(who=who)
    def beats(self, who: int) -> None:
        consumer = self.consumers[who]
        self.harness.heartbeat_later(consumer.id, consumer.generation, instance=consumer.instance, group=consumer.group)

    @precondition(lambda self: not (self.harness.appends_are_paused or self.is_loading))
    @rule(group=st.sampled_from([0, 6]), who=st.sets(st.integers(0, 5), min_size=1, max_size=3))
    def behave_for_a_while(self, group: int, who: set[int]) -> None:
        """Makes stable groups, too, for the other steps."""
        clients = [WellBehavedClient(self.consumers[group + number]) for number in sorted(who)]
        for _ in range(12):
            for client in clients:
                client.step(clients)
            self.harness.advance(STEP_MS)

    @rule(who=who, behind=st.integers(1, 2))
    def beats_with_an_old_generation(self, who: int, behind: int) -> None:
        consumer = self.consumers[who]
        generation = consumer.generation - behind
        self.harness.heartbeat_later(consumer.id, generation, instance=consumer.instance, group=consumer.group)

    @rule(who=who)
    def beats_without_its_instance_id(self, who: int) -> None:
        consumer = self.consumers[who]
        self.harness.heartbeat_later(consumer.id, consumer.generation, group=consumer.group)

    @rule(who=who)
    def leaves(self, who: int) -> None:
        consumer = self.consumers[who]
        self.harness.leave((consumer.id, consumer.instance), group=consumer.group)

    @rule(who=who)
    def commits(self, who: int) -> None:
        self.consumers[who].commit(7)

    # -- what happens to them ------------------------------------------------------------------------------------------

    @rule(group=st.sampled_from(GROUPS))
    def is_deleted(self, group: str) -> None:
        self.harness.delete_later(group)

    @rule(group=st.sampled_from(GROUPS))
    def tool_commits(self, group: str) -> None:
        self.harness.commit({("t", 1): 3}, group=group)

    @rule(group=st.sampled_from(GROUPS), instances=st.sampled_from([("A",), ("A", "B")]))
    def an_administrator_removes(self, group: str, instances: tuple[str, ...]) -> None:
        self.harness.leave(*[("", instance) for instance in instances], group=group)

    @rule(group=st.sampled_from(GROUPS))
    def group_is_described(self, group: str) -> None:
        self.harness.fetch_later(group)
        self.harness.describe(group)

    @rule(group=st.sampled_from(GROUPS))
    def offsets_are_deleted(self, group: str) -> None:
        self.harness.delete_offsets(("t", 0), ("t", 1), group=group)

    @rule()
    def topic_is_deleted(self) -> None:
        self.harness.topics_deleted("t")

    @rule(ms=st.sampled_from([1, 50, 150, 400, 1_600, 4_000, RETENTION_MS]))
    def time_passes(self, ms: int) -> None:
        self.harness.advance(ms)

    @rule()
    def a_sweep(self) -> None:
        self.harness.sweep()

    @rule(count=st.integers(1, 3), after=st.integers(0, 2))
    def appends_fail(self, count: int, after: int) -> None:
        self.harness.fail_appends(STORAGE_FAILED, count=count, after=after)

    @rule()
    def appends_pause(self) -> None:
        self.harness.pause_appends()

    @precondition(lambda self: self.harness.paused_appends)
    @rule()
    def appends_resume(self) -> None:
        self.harness.resume_appends()

    @precondition(lambda self: self.harness.paused_appends)
    @rule()
    def one_append_completes(self) -> None:
        self.harness.complete_one_append()

    @rule(compacted=st.booleans(), only_load=st.booleans())
    def broker_is_killed(self, compacted: bool, only_load: bool) -> None:
        if compacted:
            self.harness.compact()
        self.harness.restart(only_load=only_load)
        for consumer in self.consumers:
            consumer.joining = None

    @property
    def is_loading(self) -> bool:
        return self.harness.coordinator.is_loading(GROUPS[0])

    @precondition(lambda self: self.is_loading)
    @rule()
    def group_log_is_replayed(self) -> None:
        self.harness.finish_loading()

    # -- what holds ----------------------------------------------------------------------------------------------------

    def _take_reply(self, handle: Handle) -> None:
        """KIP-345: once another process has been let in under an instance id, the one before it gets only errors."""
        request, reply = handle.request, handle.reply
        if isinstance(request, JoinGroupRequest):
            if request.group_instance_id is not None and handle.code is ErrorCode.NONE:
                ids = self.ids_of.setdefault((handle.group, request.group_instance_id), [])
                assert reply.member_id not in ids[:-1], "a member that was replaced was let in again"
                if reply.member_id not in ids:
                    ids.append(reply.member_id)
        elif (member_id := _accepted(handle)) is not None:
            self._is_no_predecessor(handle.group, member_id)

    def _is_no_predecessor(self, group: str, member_id: str) -> None:
        replaced = [ids[:-1] for (of_group, _), ids in self.ids_of.items() if of_group == group]
        assert not any(member_id in ids for ids in replaced), "a member that was replaced is still listened to"

    @invariant()
    def one_holder_of_an_instance_id(self) -> None:
        for (group_id, instance), ids in self.ids_of.items():
            group = self.harness.group_or_none(group_id)
            if group is not None:
                accepted = {
                    member_id for member_id in ids for shown in (instance, None) if _is_valid(group, member_id, shown)
                }
                assert len(accepted) <= 1, f"{instance} has several live holders: {accepted}"

    @invariant()
    def generations_never_go_back(self) -> None:
        for group in self.harness.groups():
            assert group.generation >= self.highest.get(group.id, 0) or self.is_loading
        # Over restarts and deletions too: no number is given to two generations.
        for event in self.harness.events[self.events_seen :]:
            if event.kind in (EventKind.GENERATION_FORMED, EventKind.BECAME_EMPTY):
                assert event.generation > self.highest.get(event.group_id, 0), "a generation was used twice"
                self.highest[event.group_id] = event.generation
        self.events_seen = len(self.harness.events)

    @invariant()
    def group_log_matches_the_group(self) -> None:
        if self.is_loading:
            return
        live = {group.id: group.stored for group in self.harness.groups() if _is_stored(group.stored)}
        for compacted in (False, True):
            read = self._read_back(compacted)
            assert set(live) == set(read)
            for group_id, stored in live.items():
                if stored.has_record or stored.has_generation_record:
                    assert stored == read[group_id]
                else:
                    assert stored.offsets == read[group_id].offsets

    def _read_back(self, compacted: bool) -> dict[str, PersistedGroup]:
        shadow = copy.copy(self.harness)
        shadow.paused_appends, shadow.events, shadow.open = [], [], set()
        shadow.group_log = {partition: list(records) for partition, records in self.harness.group_log.items()}
        if compacted:
            shadow.compact()
        shadow.restart()
        return {group.id: group.stored for group in shadow.groups()}

    # -- what comes of it in the end -----------------------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "harness"):
            return
        if self.is_loading:
            self.harness.finish_loading()
        self.harness.fail_appends(count=0)
        self.harness.resume_appends()
        for group in GROUPS:
            self.members_that_behave_reach_stable(group)
        self.silent_members_are_removed()
        self.every_request_is_answered()
        self.generations_never_go_back()

    def members_that_behave_reach_stable(self, group: str) -> None:
        """Three of them, as many as the smallest group may have, whatever other members there are."""
        clients = [
            WellBehavedClient(
                Consumer(
                    self.harness, instance=instance, version=version, group=group, session_ms=10_000, metadata=b"good"
                )
            )
            for instance, version in (("A", 9), (None, 9), (None, 3))
        ]
        for _ in range(20_000 // STEP_MS):
            for client in clients:
                client.step(clients)
            self.harness.advance(STEP_MS)
            if self._are_settled(group, clients):
                return
        raise AssertionError(f"not stable: {self.harness.describe(group)}")

    def _are_settled(self, group: str, clients: list[WellBehavedClient]) -> bool:
        """All are in the same stable generation, and each has what the group says it has."""
        shown = self.harness.describe(group)
        given = {member.member_id: member.member_assignment for member in shown.members}
        return shown.group_state == "Stable" and all(
            client.assignment is not None
            and client.consumer.generation == self.harness.generation(group)
            and given.get(client.consumer.id) == client.assignment
            for client in clients
        )

    def silent_members_are_removed(self) -> None:
        self.harness.advance(300_000 + 2 * 10_000)
        for group in self.harness.groups():
            assert not len(group.members), f"{group.id} still has members"
            assert not group.members.pending_member_ids
            assert group.state is not PREPARING

    def every_request_is_answered(self) -> None:
        assert not self.harness.open


def _is_valid(group: Group, member_id: str, instance_id: str | None) -> bool:
    """Whether the group would accept a request of this sender. Nothing is changed by it."""
    ctx = Context(GroupConfig(), lambda _topic: 0, Hooks(), lambda *_: None)
    reported = set(group.fenced_members)
    try:
        return isinstance(validate_member(ctx, group, member_id, instance_id, Client("", ""), 0), Member)
    finally:
        group.fenced_members = reported


def _accepted(handle: Handle) -> str | None:
    """Whose request, if it is one of a member and was good."""
    request = handle.request
    if isinstance(request, SyncGroupRequest | HeartbeatRequest) and handle.code is ErrorCode.NONE:
        return request.member_id
    # With a negative generation it is a tool's commit, and anybody's in an empty group.
    if isinstance(request, Commit) and request.generation >= 0 and ErrorCode.NONE in handle.reply.values():
        return request.member_id
    return None


def _is_stored(stored: PersistedGroup) -> bool:
    return stored.has_record or stored.has_generation_record or bool(stored.offsets)


class RandomCoordinatorOfLostPartitions(RandomCoordinator):
    """The partition of the groups is lost and regained now and then."""

    @rule()
    def partition_is_lost_and_regained(self) -> None:
        self.harness.lose(GROUPS[0])
        assert not list(self.harness.groups()) and self.harness.coordinator.next_deadline_ms() is None
        while self.harness.paused_appends:
            self.harness.complete_one_append()
        assert not self.harness.open, "a request waits for a group that is served elsewhere"
        self.harness.regain(GROUPS[0])
        for consumer in self.consumers:
            consumer.joining = None


SETTINGS = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
RandomCoordinator.TestCase.settings = SETTINGS
TestRandomCoordinator = RandomCoordinator.TestCase
RandomCoordinatorOfLostPartitions.TestCase.settings = settings(SETTINGS, max_examples=30)
TestRandomCoordinatorOfLostPartitions = RandomCoordinatorOfLostPartitions.TestCase
