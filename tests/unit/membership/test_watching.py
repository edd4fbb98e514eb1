"""The leader's eye on the topics: a change is noticed, and many in a row cost one rebalance."""

import pytest

from holdfast.assignors.interface import Cluster
from holdfast.membership.watching import TopicWatch

BEFORE = Cluster({"t": 2})
AFTER = Cluster({"t": 3})


def test_nothing_new_is_no_reason() -> None:
    watch = TopicWatch(5_000)
    watch.start(BEFORE)

    assert not watch.seen(Cluster({"t": 2}), 0)
    assert watch.act_at is None


def test_a_change_is_acted_on_after_the_interval() -> None:
    watch = TopicWatch(5_000)
    watch.start(BEFORE)

    assert not watch.seen(AFTER, 1_000)
    assert watch.act_at == 6_000
    assert not watch.seen(AFTER, 5_999)
    assert watch.seen(AFTER, 6_000)


def test_a_burst_of_twenty_new_topics_costs_one_rebalance() -> None:
    watch = TopicWatch(5_000)
    watch.start(BEFORE)
    rebalances = 0
    topics = {"t": 2}

    for number in range(20):
        topics[f"new-{number}"] = 1
        rebalances += watch.seen(Cluster(dict(topics)), 200 * number)
    assert rebalances == 0
    assert watch.seen(Cluster(topics), 5_000)
    watch.start(Cluster(topics))

    assert not watch.seen(Cluster(topics), 60_000)


def test_without_an_interval_each_change_costs_one() -> None:
    watch = TopicWatch(0)
    watch.start(BEFORE)
    assert watch.seen(AFTER, 0)


def test_a_change_that_was_taken_back_is_no_reason() -> None:
    watch = TopicWatch(5_000)
    watch.start(BEFORE)
    watch.seen(AFTER, 0)

    assert not watch.seen(BEFORE, 4_000)
    assert not watch.seen(AFTER, 5_000), "the interval starts again"


def test_racks_count_and_so_does_a_topic_that_goes() -> None:
    racks = TopicWatch(0)
    racks.start(Cluster({"t": 1}, {"t": [frozenset({"a"})]}))
    assert racks.seen(Cluster({"t": 1}, {"t": [frozenset({"b"})]}), 0)

    gone = TopicWatch(0)
    gone.start(BEFORE)
    assert gone.seen(Cluster({}), 0)


def test_whoever_does_not_lead_does_not_watch() -> None:
    watch = TopicWatch(0)
    assert not watch.seen(AFTER, 0)
    watch.start(BEFORE)
    watch.stop()
    assert not watch.seen(AFTER, 0)
    assert not watch.is_on


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
    watch = TopicWatch(0)
    watch.start(Cluster({"t": 2, "u": 1}))

    assert watch.only_grew(now) is grew


def test_what_moved_to_another_rack_is_no_mere_growth() -> None:
    here, there = frozenset({"here"}), frozenset({"there"})
    watch = TopicWatch(0)
    watch.start(Cluster({"t": 1}, {"t": (here,)}))

    assert watch.only_grew(Cluster({"t": 2}, {"t": (here, there)}))
    assert not watch.only_grew(Cluster({"t": 2}, {"t": (there, here)}))


def test_who_does_not_watch_sees_no_growth() -> None:
    assert not TopicWatch(0).only_grew(Cluster({"t": 2}))
