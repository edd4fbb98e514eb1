"""Lives that the coordinator itself led: what it told and stored, followed to the figures that must come of it."""

from __future__ import annotations

from collections import Counter
from unittest import mock

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize

from holdfast.coordinator.ledger import EventKind
from holdfast.coordinator.members import Client
from holdfast.spark.pipelines.forensics import causes
from tests.unit.coordinator import test_random_lives
from tests.unit.coordinator.scene import Consumer, keep_alive, stable
from tests.unit.coordinator.test_random_lives import GROUPS, Lives
from tests.unit.spark.pipelines.forensics.histories import Found, RecordedBench, assignment

FOREVER = 10**15


def member(bench: RecordedBench, name: str, partitions: list[int], *, static: bool) -> Consumer:
    return Consumer(
        bench,
        instance=f"i-{name}" if static else None,
        assignment=assignment(partitions),
        client=Client(f"client-{name}", "/10.0.0.1"),
    )


def bounced(*, static: bool) -> Found:
    """Given two members; one is restarted within its session. A dynamic one leaves first, as clients do."""
    bench = RecordedBench()
    one, two = (member(bench, name, [at], static=static) for at, name in enumerate(("one", "two")))
    stable(one, two)
    if not static:
        one.leave()
        two.join()
        two.take()
        two.assignment = assignment([0, 1])
        assert two.sync().code == 0
    bench.advance(500)
    again = one.restarted(assignment=one.assignment)
    again.join()
    if not static:
        two.assignment = assignment([1])
        bench.advance(10)
        two.join()
        again.take()
        two.take()
        follower, leader = (again, two) if two.leads else (two, again)
        waiting = follower.sync()
        leader.sync(follower)
        assert waiting.code == 0
    bench.advance(10)
    return bench.followed()


def test_a_static_member_is_restarted_without_a_rebalance_and_a_dynamic_one_costs_two() -> None:
    static, dynamic = bounced(static=True), bounced(static=False)

    assert (static.summary["rebalances"], static.summary["moved"], static.summary["static_rejoins"]) == (1, 0, 1)
    assert static.summary["static_rebalances"] == 0
    assert (dynamic.summary["rebalances"], dynamic.summary["moved"], dynamic.summary["static_rejoins"]) == (3, 2, 0)
    assert dynamic.summary["static_rebalances"] == 2
    assert dynamic.summary["causes"] == {"a new member joined": 2, "a member left": 1}


def test_what_expires_is_told_with_the_time_that_it_had_been_silent() -> None:
    bench = RecordedBench()
    one, two = (member(bench, name, [at], static=False) for at, name in enumerate(("one", "two")))
    stable(one, two)
    keep_alive(3_500, two)
    two.join()
    two.take()
    two.assignment = assignment([0, 1])
    two.sync()
    bench.advance(10)

    found = bench.followed()

    assert [row["kind"] for row in found.rebalances] == ["a new member joined", "a member's session expired"]
    (gone,) = [row for row in found.ownership if row["ended_by"] == "expired"]
    assert (gone["partition"], gone["client_id"]) == (0, "client-one")


class FollowedLives(Lives):
    """Whatever members, disk and clock do, the figures are those of a recount of the events."""

    @initialize(max_size=st.sampled_from([3, 100]))
    def begin(self, max_size: int) -> None:
        with mock.patch.object(test_random_lives, "Bench", RecordedBench):
            Lives.begin(self, max_size)
        for number, consumer in enumerate(self.consumers):
            consumer.assignment = assignment([number % 6])

    def teardown(self) -> None:
        for group in GROUPS:
            self._recount(group)
        super().teardown()

    def _recount(self, group: str) -> None:
        assert isinstance(self.bench, RecordedBench)
        events = Counter(event.kind for event in self.bench.events if event.group_id == group)
        if not events:
            return
        found = self.bench.followed(group)
        outcomes = Counter(row["outcome"] for row in found.rebalances)
        begun_before = sum(row["cause"] == causes.UNKNOWN for row in found.rebalances)
        assert len(found.rebalances) == events[EventKind.REBALANCE_STARTED] + begun_before
        assert outcomes["assigned"] == events[EventKind.ASSIGNED]
        assert found.summary["static_rejoins"] == events[EventKind.STATIC_REJOINED]
        assert found.summary["rebalances"] == len(found.rebalances) - found.summary["emptied"]
        assert found.unread == {}
        self._nobody_owns_twice(found)

    @staticmethod
    def _nobody_owns_twice(found: Found) -> None:
        """What a member has of a partition is one interval after the other."""
        until: dict[tuple[int, str], int] = {}
        for row in sorted(found.ownership, key=lambda one: one["from_ms"]):
            key = (row["partition"], row["member"])
            assert until.get(key, 0) <= row["from_ms"]
            assert row["to_ms"] is None or row["to_ms"] >= row["from_ms"]
            until[key] = FOREVER if row["to_ms"] is None else row["to_ms"]


FollowedLives.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestFollowedLives = FollowedLives.TestCase
