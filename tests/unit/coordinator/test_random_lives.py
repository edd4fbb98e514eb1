"""Random lives of a group: whatever members, disk and clock do, what must hold holds.

After every step:

- an instance id has at most one live holder: `one_holder_of_an_instance_id`, and no other id is ever told "good";
- every parked request is answered exactly once: `Bench` knows every ticket and finds it again after every command,
  `everybody_is_answered` at the end;
- nobody is immortal: `Bench` finds a deadline for every wait, `the_silent_are_gone` at the end;
- members that behave reach Stable: `members_that_behave_reach_stable` at the end of every life;
- the journal, compacted or not, gives the same durable group: `the_journal_says_what_the_group_is`;
- a generation is never used twice and never goes back: `generations_never_go_back`;
- nothing is answered before it is stored: `Bench` has a `Witness` of the journal hear every answer.

That each of these can fail is shown by `scripts/seeded-bugs`.
"""

from __future__ import annotations

import copy

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.coordinator.group import Stored
from holdfast.coordinator.identity import identify
from holdfast.coordinator.ledger import EventKind
from holdfast.coordinator.members import Member
from holdfast.coordinator.offsets import Commit
from holdfast.coordinator.states import PREPARING
from holdfast.wire.apis.heartbeat import HeartbeatRequest
from holdfast.wire.apis.join_group import JoinGroupRequest
from holdfast.wire.apis.sync_group import SyncGroupRequest
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.bench import RETENTION_MS, STORAGE_FAILED, Bench, Handle
from tests.unit.coordinator.good_client import GoodClient
from tests.unit.coordinator.scene import Consumer

GROUPS = ("g", "h")
SESSIONS_MS = (100, 700, 3_000)
REBALANCES_MS = (1, 300, 1_500)
STEP_MS = 50


class Lives(RuleBasedStateMachine):
    """Six consumers of two groups, three of them static (two share an instance id), some of them old clients."""

    @initialize(max_size=st.sampled_from([3, 100]))
    def begin(self, max_size: int) -> None:
        self.bench = Bench(max_size=max_size, partition_count=1)
        self.bench.listener = self._hear
        self.consumers = [
            Consumer(
                self.bench,
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
        if consumer.joining is not None and not consumer.joining.parked:
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
        self.bench.heartbeat_later(consumer.id, consumer.generation, instance=consumer.instance, group=consumer.group)

    @precondition(lambda self: not (self.bench.is_holding or self.is_loading))
    @rule(group=st.sampled_from([0, 6]), who=st.sets(st.integers(0, 5), min_size=1, max_size=3))
    def behave_for_a_while(self, group: int, who: set[int]) -> None:
        """So that there are stable groups, too, for the rest to happen to."""
        clients = [GoodClient(self.consumers[group + number]) for number in sorted(who)]
        for _ in range(12):
            for client in clients:
                client.step(clients)
            self.bench.advance(STEP_MS)

    @rule(who=who, behind=st.integers(1, 2))
    def beats_with_an_old_generation(self, who: int, behind: int) -> None:
        consumer = self.consumers[who]
        generation = consumer.generation - behind
        self.bench.heartbeat_later(consumer.id, generation, instance=consumer.instance, group=consumer.group)

    @rule(who=who)
    def beats_without_its_instance_id(self, who: int) -> None:
        consumer = self.consumers[who]
        self.bench.heartbeat_later(consumer.id, consumer.generation, group=consumer.group)

    @rule(who=who)
    def leaves(self, who: int) -> None:
        consumer = self.consumers[who]
        self.bench.leave((consumer.id, consumer.instance), group=consumer.group)

    @rule(who=who)
    def commits(self, who: int) -> None:
        self.consumers[who].commit(7)

    # -- what happens to them ------------------------------------------------------------------------------------------

    @rule(group=st.sampled_from(GROUPS))
    def is_deleted(self, group: str) -> None:
        self.bench.delete_later(group)

    @rule(group=st.sampled_from(GROUPS))
    def tool_commits(self, group: str) -> None:
        self.bench.commit({("t", 1): 3}, group=group)

    @rule(group=st.sampled_from(GROUPS), instances=st.sampled_from([("A",), ("A", "B")]))
    def an_administrator_removes(self, group: str, instances: tuple[str, ...]) -> None:
        self.bench.leave(*[("", instance) for instance in instances], group=group)

    @rule(group=st.sampled_from(GROUPS))
    def somebody_looks(self, group: str) -> None:
        self.bench.fetch_later(group)
        self.bench.describe(group)

    @rule(group=st.sampled_from(GROUPS))
    def offsets_are_deleted(self, group: str) -> None:
        self.bench.delete_offsets(("t", 0), ("t", 1), group=group)

    @rule()
    def topic_is_deleted(self) -> None:
        self.bench.topics_deleted("t")

    @rule(ms=st.sampled_from([1, 50, 150, 400, 1_600, 4_000, RETENTION_MS]))
    def time_passes(self, ms: int) -> None:
        self.bench.advance(ms)

    @rule()
    def a_sweep(self) -> None:
        self.bench.sweep()

    @rule(count=st.integers(1, 3), after=st.integers(0, 2))
    def the_disk_fails(self, count: int, after: int) -> None:
        self.bench.fail_appends(STORAGE_FAILED, count=count, after=after)

    @rule()
    def the_disk_is_slow(self) -> None:
        self.bench.hold()

    @precondition(lambda self: self.bench.held)
    @rule()
    def the_disk_comes_back(self) -> None:
        self.bench.release()

    @precondition(lambda self: self.bench.held)
    @rule()
    def the_disk_stores_one(self) -> None:
        self.bench.release_one()

    @rule(compacted=st.booleans(), only_load=st.booleans())
    def the_broker_is_killed(self, compacted: bool, only_load: bool) -> None:
        if compacted:
            self.bench.compact()
        self.bench.restart(only_load=only_load)
        for consumer in self.consumers:
            consumer.joining = None

    @property
    def is_loading(self) -> bool:
        return self.bench.coordinator.is_loading(GROUPS[0])

    @precondition(lambda self: self.is_loading)
    @rule()
    def the_journal_is_read(self) -> None:
        self.bench.finish_loading()

    # -- what holds ----------------------------------------------------------------------------------------------------

    def _hear(self, handle: Handle) -> None:
        """KIP-345: once another process has been let in under an instance id, the one before it is told no good."""
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
            group = self.bench.group_or_none(group_id)
            if group is not None:
                accepted = {
                    member_id
                    for member_id in ids
                    for shown in (instance, None)
                    if isinstance(identify(group.roster, member_id, shown), Member)
                }
                assert len(accepted) <= 1, f"{instance} has several live holders: {accepted}"

    @invariant()
    def generations_never_go_back(self) -> None:
        for group in self.bench.groups():
            assert group.generation >= self.highest.get(group.id, 0) or self.is_loading
        # Over restarts and deletions too: no number is given to two generations.
        for event in self.bench.events[self.events_seen :]:
            if event.kind in (EventKind.GENERATION_FORMED, EventKind.BECAME_EMPTY):
                assert event.generation > self.highest.get(event.group_id, 0), "a generation was used twice"
                self.highest[event.group_id] = event.generation
        self.events_seen = len(self.bench.events)

    @invariant()
    def the_journal_says_what_the_group_is(self) -> None:
        if self.is_loading:
            return
        live = {group.id: group.stored for group in self.bench.groups() if _is_stored(group.stored)}
        for compacted in (False, True):
            read = self._read_back(compacted)
            assert set(live) == set(read)
            for group_id, stored in live.items():
                if stored.has_record or stored.has_generation_record:
                    assert stored == read[group_id]
                else:
                    assert stored.offsets == read[group_id].offsets

    def _read_back(self, compacted: bool) -> dict[str, Stored]:
        shadow = copy.copy(self.bench)
        shadow.held, shadow.events, shadow.open = [], [], set()
        shadow.journal = {partition: list(records) for partition, records in self.bench.journal.items()}
        if compacted:
            shadow.compact()
        shadow.restart()
        return {group.id: group.stored for group in shadow.groups()}

    # -- what comes of it in the end -----------------------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        if self.is_loading:
            self.bench.finish_loading()
        self.bench.fail_appends(count=0)
        self.bench.release()
        for group in GROUPS:
            self.members_that_behave_reach_stable(group)
        self.the_silent_are_gone()
        self.everybody_is_answered()
        self.generations_never_go_back()

    def members_that_behave_reach_stable(self, group: str) -> None:
        """Three of them, as many as the smallest group may have, whoever else is or was there."""
        clients = [
            GoodClient(
                Consumer(
                    self.bench, instance=instance, version=version, group=group, session_ms=10_000, metadata=b"good"
                )
            )
            for instance, version in (("A", 9), (None, 9), (None, 3))
        ]
        for _ in range(20_000 // STEP_MS):
            for client in clients:
                client.step(clients)
            self.bench.advance(STEP_MS)
            if self._are_settled(group, clients):
                return
        raise AssertionError(f"not stable: {self.bench.describe(group)}")

    def _are_settled(self, group: str, clients: list[GoodClient]) -> bool:
        """All are in the same stable generation, and each has what the group says it has."""
        shown = self.bench.describe(group)
        given = {member.member_id: member.member_assignment for member in shown.members}
        return shown.group_state == "Stable" and all(
            client.assignment is not None
            and client.consumer.generation == self.bench.generation(group)
            and given.get(client.consumer.id) == client.assignment
            for client in clients
        )

    def the_silent_are_gone(self) -> None:
        self.bench.advance(300_000 + 2 * 10_000)
        for group in self.bench.groups():
            assert not len(group.roster), f"{group.id} still has members"
            assert not group.roster.pending
            assert group.state is not PREPARING

    def everybody_is_answered(self) -> None:
        assert not self.bench.open


def _accepted(handle: Handle) -> str | None:
    """Whose request, if it is one of a member and was good."""
    request = handle.request
    if isinstance(request, SyncGroupRequest | HeartbeatRequest) and handle.code is ErrorCode.NONE:
        return request.member_id
    # With a negative generation it is a tool's commit, and anybody's in an empty group.
    if isinstance(request, Commit) and request.generation >= 0 and ErrorCode.NONE in handle.reply.values():
        return request.member_id
    return None


def _is_stored(stored: Stored) -> bool:
    return stored.has_record or stored.has_generation_record or bool(stored.offsets)


Lives.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestRandomLives = Lives.TestCase
