"""Random lives of a group: whatever members, disk and clock do, what must hold holds."""

from __future__ import annotations

import copy

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.coordinator.group import Stored
from holdfast.coordinator.states import PREPARING
from holdfast.wire.error_codes import ErrorCode
from tests.unit.coordinator.bench import STORAGE_FAILED, Bench
from tests.unit.coordinator.scene import Consumer

GROUPS = ("g", "h")
SESSIONS_MS = (100, 700, 3_000)
REBALANCES_MS = (1, 300, 1_500)


class Lives(RuleBasedStateMachine):
    """Six consumers of two groups, three of them static (two share an instance id), some of them old clients."""

    @initialize(max_size=st.sampled_from([3, 100]))
    def begin(self, max_size: int) -> None:
        self.bench = Bench(max_size=max_size, partition_count=1)
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

    @rule()
    def topic_is_deleted(self) -> None:
        self.bench.topics_deleted("t")

    @rule(ms=st.sampled_from([1, 50, 150, 400, 1_600, 4_000]))
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

    @rule(compacted=st.booleans())
    def the_broker_is_killed(self, compacted: bool) -> None:
        if compacted:
            self.bench.compact()
        self.bench.restart()
        for consumer in self.consumers:
            consumer.joining = None

    # -- what holds ----------------------------------------------------------------------------------------------------
    # That no ticket is answered twice, that no instance id has two holders and that the counters equal a recount is
    # checked by the bench after every command.

    @invariant()
    def generations_never_go_back(self) -> None:
        for group in self.bench.groups():
            assert group.generation >= self.highest.get(group.id, 0)
            self.highest[group.id] = group.generation

    @invariant()
    def the_journal_says_what_the_group_is(self) -> None:
        shadow = copy.copy(self.bench)
        shadow.held, shadow.events = [], []
        shadow.restart()
        live = {group.id: group.stored for group in self.bench.groups() if _is_stored(group.stored)}
        read = {group.id: group.stored for group in shadow.groups()}
        assert set(live) == set(read)
        for group_id, stored in live.items():
            if stored.has_record or stored.has_generation_record:
                assert stored == read[group_id]
            else:
                assert stored.offsets == read[group_id].offsets

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        self.members_that_behave_reach_stable()
        self.the_silent_are_gone()

    def members_that_behave_reach_stable(self) -> None:
        self.bench.fail_appends(count=0)
        self.bench.release()
        lone = Consumer(self.bench, version=9, session_ms=10_000, rebalance_ms=1_000, protocols=("range", "roundrobin"))
        lone.metadata = b"behaves"
        for _ in range(200):
            if lone.joining is None and self.bench.group_or_none() is not None and self._is_stable_for(lone):
                return
            self._one_step_of_a_good_client(lone)
            self.bench.advance(50)
        raise AssertionError(f"not stable: {self.bench.describe()}")

    def _is_stable_for(self, consumer: Consumer) -> bool:
        return self.bench.state() == "Stable" and consumer.id in self.bench.group().roster

    @staticmethod
    def _one_step_of_a_good_client(consumer: Consumer) -> None:
        consumer.take()
        if consumer.joining is not None:
            if not consumer.joining.parked:
                if consumer.joining.code == ErrorCode.UNKNOWN_MEMBER_ID:
                    consumer.id = ""
                consumer.joining = None
            return
        code = consumer.heartbeat() if consumer.generation >= 0 else ErrorCode.UNKNOWN_MEMBER_ID
        if code == ErrorCode.NONE:
            consumer.sync()
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            consumer.join()
        else:
            consumer.id, consumer.generation = "", -1
            consumer.join()

    def the_silent_are_gone(self) -> None:
        self.bench.advance(300_000 + 2 * 10_000)
        for group in self.bench.groups():
            assert not len(group.roster), f"{group.id} still has members"
            assert not group.roster.pending
            assert group.state is not PREPARING


def _is_stored(stored: Stored) -> bool:
    return stored.has_record or stored.has_generation_record or bool(stored.offsets)


Lives.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestRandomLives = Lives.TestCase
