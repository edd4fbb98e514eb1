"""Histories that the coordinator itself wrote, followed to the figures that must come of them."""

from __future__ import annotations

from collections import Counter
from unittest import mock

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize

from holdfast.coordinator.classic.member import Client
from holdfast.coordinator.events.causes import CauseCode
from holdfast.coordinator.events.group_event import EventKind
from holdfast.spark.pipelines.forensics.inferred_causes import InferredCause
from tests.unit.coordinator import test_stateful_random
from tests.unit.coordinator.members import Consumer, keep_alive, stable
from tests.unit.coordinator.test_stateful_random import GROUPS, RandomCoordinator
from tests.unit.spark.pipelines.forensics.histories import Found, RecordedHarness, assignment

FOREVER = 10**15


def member(harness: RecordedHarness, name: str, partitions: list[int], *, static: bool) -> Consumer:
    return Consumer(
        harness,
        instance=f"i-{name}" if static else None,
        assignment=assignment(partitions),
        client=Client(f"client-{name}", "/10.0.0.1"),
    )


def bounced(*, static: bool) -> Found:
    """Given two members; one is restarted within its session. A dynamic one leaves first, as clients do."""
    harness = RecordedHarness()
    one, two = (member(harness, name, [at], static=static) for at, name in enumerate(("one", "two")))
    stable(one, two)
    if not static:
        one.leave()
        two.join()
        two.take()
        two.assignment = assignment([0, 1])
        assert two.sync().code == 0
    harness.advance(500)
    again = one.restarted(assignment=one.assignment)
    again.join()
    if not static:
        two.assignment = assignment([1])
        harness.advance(10)
        two.join()
        again.take()
        two.take()
        follower, leader = (again, two) if two.leads else (two, again)
        waiting = follower.sync()
        leader.sync(follower)
        assert waiting.code == 0
    harness.advance(10)
    return harness.followed()


def test_restarting_a_static_member_costs_no_rebalance_and_a_dynamic_one_two() -> None:
    static, dynamic = bounced(static=True), bounced(static=False)

    assert (static.summary["rebalances"], static.summary["moved"], static.summary["static_rejoins"]) == (1, 0, 1)
    assert static.summary["static_rebalances"] == 0
    assert (dynamic.summary["rebalances"], dynamic.summary["moved"], dynamic.summary["static_rejoins"]) == (3, 2, 0)
    assert dynamic.summary["static_rebalances"] == 2
    assert dynamic.summary["causes"] == {CauseCode.MEMBER_JOINED: 2, CauseCode.MEMBER_LEFT: 1}


def test_an_expired_session_is_reported_with_its_silence() -> None:
    harness = RecordedHarness()
    one, two = (member(harness, name, [at], static=False) for at, name in enumerate(("one", "two")))
    stable(one, two)
    keep_alive(3_500, two)
    two.join()
    two.take()
    two.assignment = assignment([0, 1])
    two.sync()
    harness.advance(10)

    found = harness.followed()

    assert [row["cause_code"] for row in found.rebalances] == [CauseCode.MEMBER_JOINED, CauseCode.SESSION_EXPIRED]
    (gone,) = [row for row in found.ownership if row["ended_by"] == "expired"]
    assert (gone["partition"], gone["client_id"]) == (0, "client-one")


class AnalyzedRuns(RandomCoordinator):
    """Whatever members, disk and clock do, the figures are those of a recount of the events."""

    @initialize(max_size=st.sampled_from([3, 100]))
    def begin(self, max_size: int) -> None:
        with mock.patch.object(test_stateful_random, "CoordinatorHarness", RecordedHarness):
            RandomCoordinator.begin(self, max_size)
        for number, consumer in enumerate(self.consumers):
            consumer.assignment = assignment([number % 6])

    def teardown(self) -> None:
        for group in GROUPS:
            self._recount(group)
        super().teardown()

    def _recount(self, group: str) -> None:
        assert isinstance(self.harness, RecordedHarness)
        events = Counter(event.kind for event in self.harness.events if event.group_id == group)
        if not events:
            return
        found = self.harness.followed(group)
        outcomes = Counter(row["outcome"] for row in found.rebalances)
        begun_before = sum(row["cause_code"] == InferredCause.UNKNOWN for row in found.rebalances)
        assert len(found.rebalances) == events[EventKind.REBALANCE_STARTED] + begun_before
        assert outcomes["assigned"] == events[EventKind.ASSIGNED]
        assert found.summary["static_rejoins"] == events[EventKind.STATIC_REJOINED]
        assert found.summary["rebalances"] == len(found.rebalances) - found.summary["emptied"]
        assert found.unread == {}
        self._no_partition_has_two_owners(found)

    @staticmethod
    def _no_partition_has_two_owners(found: Found) -> None:
        """What a member has of a partition is one interval after the other."""
        until: dict[tuple[int, str], int] = {}
        for row in sorted(found.ownership, key=lambda one: one["from_ms"]):
            key = (row["partition"], row["member"])
            assert until.get(key, 0) <= row["from_ms"]
            assert row["to_ms"] is None or row["to_ms"] >= row["from_ms"]
            until[key] = FOREVER if row["to_ms"] is None else row["to_ms"]


AnalyzedRuns.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestAnalyzedRuns = AnalyzedRuns.TestCase
