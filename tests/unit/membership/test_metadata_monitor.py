"""The leader's eye on the topics: a change is noticed, and many in a row cost one rebalance."""

import pytest

from holdfast.assignors.interface import Cluster
from holdfast.membership.metadata_monitor import TopicMonitor

BEFORE = Cluster({"t": 2})
AFTER = Cluster({"t": 3})


def test_nothing_new_is_no_reason() -> None:
    watch = TopicMonitor(5_000)
    watch.start(BEFORE)

    assert not watch.rebalance_due(Cluster({"t": 2}), 0)
    assert watch.check_at is None


def test_a_change_is_acted_on_after_the_interval() -> None:
    watch = TopicMonitor(5_000)
    watch.start(BEFORE)

    assert not watch.rebalance_due(AFTER, 1_000)
    assert watch.check_at == 6_000
    assert not watch.rebalance_due(AFTER, 5_999)
    assert watch.rebalance_due(AFTER, 6_000)


def test_a_burst_of_twenty_new_topics_costs_one_rebalance() -> None:
    watch = TopicMonitor(5_000)
    watch.start(BEFORE)
    rebalances = 0
    topics = {"t": 2}

    for number in range(20):
        topics[f"new-{number}"] = 1
        rebalances += watch.rebalance_due(Cluster(dict(topics)), 200 * number)
    assert rebalances == 0
    assert watch.rebalance_due(Cluster(topics), 5_000)
    watch.start(Cluster(topics))

    assert not watch.rebalance_due(Cluster(topics), 60_000)


def test_without_an_interval_each_change_costs_one() -> None:
    watch = TopicMonitor(0)
    watch.start(BEFORE)
    assert watch.rebalance_due(AFTER, 0)


def test_a_change_that_was_taken_back_is_no_reason() -> None:
    watch = TopicMonitor(5_000)
    watch.start(BEFORE)
    watch.rebalance_due(AFTER, 0)

    assert not watch.rebalance_due(BEFORE, 4_000)
    assert not watch.rebalance_due(AFTER, 5_000), "the interval starts again"


def test_changed_racks_and_removed_topics_count() -> None:
    racks = TopicMonitor(0)
    racks.start(Cluster({"t": 1}, {"t": [frozenset({"a"})]}))
    assert racks.rebalance_due(Cluster({"t": 1}, {"t": [frozenset({"b"})]}), 0)

    gone = TopicMonitor(0)
    gone.start(BEFORE)
    assert gone.rebalance_due(Cluster({}), 0)


def test_followers_do_not_watch_topics() -> None:
    watch = TopicMonitor(0)
    assert not watch.rebalance_due(AFTER, 0)
    watch.start(BEFORE)
    watch.stop()
    assert not watch.rebalance_due(AFTER, 0)
    assert not watch.is_active


@pytest.mark.parametrize(
    ("now", "grew"),
    [
        (Cluster({"t": 3, "u": 1}), True),
        (Cluster({"t": 3, "u": 5}), True),
        (Cluster({"t": 1, "u": 2}), False),
        (Cluster({"t": 3}), False),
        (Cluster({"t": 3, "u": 1, "v": 1}), False),
    ],
    ids=["one grew", "both grew", "one shrank", "one went", "one came"],
)
def test_growth_is_more_partitions_of_the_same_topics(now: Cluster, grew: bool) -> None:
    watch = TopicMonitor(0)
    watch.start(Cluster({"t": 2, "u": 1}))

    assert watch.only_grew(now) is grew


def test_what_moved_to_another_rack_is_no_mere_growth() -> None:
    here, there = frozenset({"here"}), frozenset({"there"})
    watch = TopicMonitor(0)
    watch.start(Cluster({"t": 1}, {"t": (here,)}))

    assert watch.only_grew(Cluster({"t": 2}, {"t": (here, there)}))
    assert not watch.only_grew(Cluster({"t": 2}, {"t": (there, here)}))


def test_a_monitor_that_was_not_started_reports_no_growth() -> None:
    assert not TopicMonitor(0).only_grew(Cluster({"t": 2}))
