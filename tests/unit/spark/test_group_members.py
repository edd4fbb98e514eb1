"""Queries beside others in one group: queries, Holdfast's consumers and librdkafka's come and go, and partitions with
them."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import confluent_kafka
import pytest

from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.group_members import QueryMember
from holdfast.spark.options import stream_options
from holdfast.spark.partition_state import PartitionState
from tests.holdfast_client.consumers import Watched
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.spark_engine import Engine, Killed, Point, QueryFailed
from tests.support.spark_harness import SparkHarness

COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}
KEPT = {"kafka.session.timeout.ms": "30000"}
"""A session that outlasts the test."""
PATIENT, HASTY = {"revokeTimeout": "60s"}, {"revokeTimeout": "100ms"}


class Plain:
    """A plain consumer, polled by a thread of its own, which does not commit unless it is asked to."""

    def __init__(self, world: SparkHarness, **settings: Any) -> None:
        steady = {"client.id": "plain", "enable.auto.commit": False, "session.timeout.ms": 15_000}
        settings = {**steady, **COOPERATIVE, **settings}
        self.watched = Watched(world.server, world.group, **settings).subscribe(world.topic)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._live)
        self._thread.start()

    def _live(self) -> None:
        while not self._stopping.is_set():
            self.watched.poll()
        self.watched.consumer.close()

    @property
    def partitions(self) -> set[int]:
        return set(self.watched.partitions)

    @property
    def records(self) -> list[tuple[int, int]]:
        return sorted(self.watched.records)

    def count(self, *kinds: str) -> int:
        return sum(1 for kind, partitions in self.watched.callbacks if kind in kinds and partitions)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(30)


@contextmanager
def plain(world: SparkHarness, **settings: Any) -> Iterator[Plain]:
    consumer = Plain(world, **settings)
    try:
        yield consumer
    finally:
        consumer.stop()


def assignment(query: Engine, topic: str) -> set[int]:
    """The partitions that the query had when Spark last asked."""
    report = query.reader.report_latest_offset()

    return {int(partition) for partition in json.loads(report).get(topic, {})} if report else set()


def triggered_until(condition: Callable[[], Any], what: str, *queries: Engine) -> None:
    def look() -> Any:
        for query in queries:
            query.trigger()
        return condition()

    eventually(look, what)


def triggered_until_stored(query: Engine, world: SparkHarness, offsets: dict[int, int]) -> None:
    """While the group rebalances a commit may be refused, and is made up for at the next trigger."""
    triggered_until(lambda: offsets.items() <= world.committed().items(), f"{offsets} in the group", query)


# -- sharing -----------------------------------------------------------------------------------------------------------


def test_two_queries_divide_a_topic(world: SparkHarness) -> None:
    world.make_topic(4, each=5)
    one, two = world.query(), world.query()
    one.trigger()

    triggered_until(lambda: len(assignment(two, world.topic)) == 2, "the second has its half", two, one)
    world.produce(5)
    triggered_until(lambda: len(one.checkpoint.rows) + len(two.checkpoint.rows) == 40, "everything is read", one, two)

    # then each record was read once, and what moved went on where the first had been
    rows = [(row.partition, row.offset) for query in (one, two) for row in query.checkpoint.rows]
    assert sorted(rows) == [(partition, offset) for partition in range(4) for offset in range(10)]
    assert assignment(one, world.topic) | assignment(two, world.topic) == set(range(4))


def test_a_plain_consumer_joins_and_leaves(world: SparkHarness) -> None:
    world.make_topic(4, each=5)
    query = world.query()
    assert query.trigger() is not None
    query.trigger()
    # when it comes
    with plain(world) as other:
        triggered_until(lambda: len(other.partitions) == 2, "the consumer has its half", query)
        taken = other.partitions
        world.produce(1)
        triggered_until(lambda: len(query.checkpoint.rows) == 22 and len(other.records) == 2, "all read", query)
        # then it goes on where the query was
        assert other.records == [(partition, 5) for partition in sorted(taken)]
    # when it goes without having committed anything
    triggered_until(lambda: len(query.checkpoint.rows) == 24, "the query reads what was not committed", query)
    # then the query has its partitions again, and begins where the group is
    assert {(row.partition, row.offset) for row in query.checkpoint.rows[-2:]} == {(one, 5) for one in taken}
    triggered_until_stored(query, world, dict.fromkeys(range(4), 6))


def test_a_consumer_of_librdkafka_joins_and_leaves(world: SparkHarness) -> None:
    world.make_topic(4, each=5)
    query = world.query()
    query.trigger()
    other = confluent_kafka.Consumer(
        {
            "bootstrap.servers": world.server.bootstrap,
            "group.id": world.group,
            "client.id": "librdkafka",
            "auto.offset.reset": "error",
            "session.timeout.ms": 15_000,
            "heartbeat.interval.ms": 200,
            **COOPERATIVE,
        }
    )
    read: list[tuple[int | None, int | None]] = []

    def poll() -> int:
        for message in other.consume(100, 0.05):
            assert message.error() is None, message.error()
            read.append((message.partition(), message.offset()))
        return len(other.assignment())

    other.subscribe([world.topic])
    triggered_until(lambda: poll() == 2, "the consumer has its half", query)
    world.produce(1)
    triggered_until(lambda: poll() and len(read) == 2 and len(query.checkpoint.rows) == 22, "all is read", query)
    assert {offset for _, offset in read} == {5}
    other.close()  # with a commit

    world.produce(1)
    triggered_until(lambda: len(query.checkpoint.rows) == 26, "the query goes on where the consumer was", query)
    assert {row.offset for row in query.checkpoint.rows[-4:]} == {6}


def test_what_stays_is_never_given_up(world: SparkHarness) -> None:
    """Cooperative: a batch that reads only what stays does not hold up the group."""
    world.make_topic(4)
    query = world.query(PATIENT)
    query.trigger()
    with plain(world) as other:
        triggered_until(lambda: len(other.partitions) == 2, "the consumer has its half", query)
        stays = sorted(set(range(4)) - other.partitions)
        # given a batch in flight
        world.produce(5, stays)
        assert query.trigger() is not None
        # when another comes, and again
        with plain(world, **{"client.id": "third"}) as third:
            eventually(lambda: third.partitions, "the third has its assignment, and no batch was waited for", 40)
    assert assignment(query, world.topic) == set(stays)
    triggered_until_stored(query, world, dict.fromkeys(stays, 5))


def test_several_members_have_numbered_instance_ids(world: SparkHarness) -> None:
    world.make_topic(6, each=3)
    query = world.query({"members": "3", "kafka.group.instance.id": "spark-1"})

    triggered_until(lambda: len(query.checkpoint.rows) == 18, "everything is read", query)

    names = [f"spark-1-thread-{number}" for number in (1, 2, 3)]
    eventually(lambda: sorted(world.members()) == names, "three members")
    # One that came later than the others has its assignment when the batch is done.
    triggered_until(lambda: sorted(map(len, world.members().values())) == [2, 2, 2], "an assignment for each", query)
    triggered_until_stored(query, world, dict.fromkeys(range(6), 3))
    assert '["' + '", "'.join(names) + '"]' in query.reader.report_latest_offset()


# -- a batch in flight -------------------------------------------------------------------------------------------------


def test_a_revocation_waits_until_the_batch_is_done(world: SparkHarness) -> None:
    world.make_topic(2, each=5)
    query = world.query(PATIENT)
    # given a batch that Spark works on (it has not asked for the next one)
    assert query.trigger() is not None
    eventually(lambda: world.committed() == {0: 0, 1: 0}, "the beginnings")
    # when another wants its assignment
    with plain(world) as other:
        eventually(lambda: "rebalanc" in str(other.watched.callbacks) or len(world.members()) == 2, "it has joined")
        assert other.partitions == set()
        # then it gets it as soon as the batch is done, which is stored before
        query.trigger()
        eventually(lambda: len(other.partitions) == 1, "the consumer has its half")
        (taken,) = other.partitions
        assert world.committed()[taken] == 5
        triggered_until_stored(query, world, {0: 5, 1: 5})
        world.produce(1, range(2))
        eventually(lambda: other.records, "it reads")
        assert {offset for _, offset in other.records} == {5}


def test_after_the_revoke_timeout_a_partition_is_revoked_and_its_batch_not_committed(world: SparkHarness) -> None:
    world.make_topic(2, each=5)
    query = world.query(HASTY)
    assert query.trigger() is not None
    with plain(world) as other:
        # when the batch is not done in time
        eventually(lambda: len(other.partitions) == 1, "the consumer has its half, without a trigger")
        (taken,) = other.partitions
        stays = 1 - taken
        assert "are revoked while a batch still reads them" in query.reader.log_text()
        eventually(lambda: len(other.records) == 5, "it reads the same records again")
        # then what stays is committed when the batch is done, and what went is not
        triggered_until_stored(query, world, {stays: 5})
        assert world.committed()[taken] == 0
    # and what comes back goes on where this query was, since it was here that it was processed
    world.produce(1, range(2))
    triggered_until(lambda: len(query.checkpoint.rows) == 12, "everything is read", query)
    triggered_until_stored(query, world, {0: 6, 1: 6})


@pytest.mark.parametrize(("asked_s", "waits_s"), [(60.0, 0.5), (0.1, 0.1)], ids=["more than half", "the control: less"])
def test_a_batch_is_never_waited_for_longer_than_half_of_the_groups_patience(
    caplog: pytest.LogCaptureFixture, asked_s: float, waits_s: float
) -> None:
    # given a batch in flight, in a group that waits for its members for one second
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "g", "subscribe": "t"}
    (config,) = stream_options(options | {"kafka.max.poll.interval.ms": "1000"}).consumer_configs()
    where, holdings = ("t", 0), PartitionState()
    member = QueryMember(0, config, holdings, lambda *_: {}, asked_s, threading.Condition())
    holdings.assigned(0, {where: 0})
    holdings.plan_batch([OffsetRange(*where, 0, 10)])
    began = time.monotonic()

    # when the group takes the partition away, and would grant all the time in the world
    with caplog.at_level(logging.WARNING, "holdfast.spark"):
        member.before_revoke([where], within_ms=3_600_000)

    # then
    assert time.monotonic() - began >= waits_s
    assert f"while a batch still reads them, after {waits_s} s (revokeTimeout)" in caplog.text
    member.close(leave=False)


def test_an_idle_query_gives_partitions_up_at_once(world: SparkHarness) -> None:
    """The control of the two above: nothing is in flight, and nobody asks."""
    world.make_topic(2)
    query = world.query(PATIENT)
    query.trigger()

    with plain(world) as other:
        eventually(lambda: len(other.partitions) == 1, "the consumer has its half, without a trigger", 40)


# -- restarts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_restart_of_a_static_member_causes_no_rebalance(world: SparkHarness, static: bool, how: str) -> None:
    world.make_topic(4, each=5)
    options = KEPT | {"kafka.group.instance.id": "spark-1"} if static else {"kafka.session.timeout.ms": "1500"}
    query = world.query(options)
    query.trigger()
    settings = {"group.instance.id": "plain-1", "session.timeout.ms": 30_000} if static else {}
    with plain(world, **settings) as other:
        triggered_until(lambda: len(other.partitions) == 2, "the consumer has its half", query)
        had = other.partitions
        world.produce(3)
        before = other.count("on_assign", "on_revoke", "on_lost")
        # when the query is begun again in the middle of a batch
        if how == "killed":
            with pytest.raises(Killed):
                query.trigger(Point.PLANNED)
        else:
            query.trigger()
            query.stop()
        if not static:  # the group does without it, which is the control
            eventually(lambda: other.partitions == set(range(4)), "the consumer has everything")
        again = world.query(options, query.checkpoint)
        triggered_until(lambda: len(assignment(again, world.topic)) == 2, "it has its assignment again", again)
        triggered_until(lambda: len({(r.partition, r.offset) for r in query.checkpoint.rows}) >= 20 + 6, "all", again)
        # then nobody noticed, or everybody did
        changes = other.count("on_assign", "on_revoke", "on_lost") - before
        if static:
            assert changes == 0 and other.partitions == had
        else:
            assert changes > 0


def test_a_query_that_is_deployed_with_one_more_topic_reads_it(quick_holdfast: HoldfastBroker) -> None:
    """On Kafka nobody does (docs/differences.md, 55). The control is above: with the same topics nobody notices."""
    with closing(SparkHarness(quick_holdfast)) as world, closing(SparkHarness(quick_holdfast)) as added:
        world.make_topic(2, each=5)
        added.make_topic(2, each=3)
        with plain(world, **{"group.instance.id": "plain-1", "session.timeout.ms": 30_000}) as leader:
            eventually(lambda: len(leader.partitions) == 2, "the consumer leads")
            options = KEPT | {"kafka.group.instance.id": "spark-1"}
            query = world.query(options)
            triggered_until(lambda: assignment(query, world.topic), "the query has an assignment", query)
            query.stop()

            again = world.query(options | {"subscribe": f"{world.topic},{added.topic}"}, query.checkpoint)

            wanted = {(added.topic, partition, offset) for partition in (0, 1) for offset in range(3)}
            triggered_until(
                lambda: wanted <= {(r.topic, r.partition, r.offset) for r in query.checkpoint.rows},
                "its records",
                again,
            )


def test_a_static_member_that_is_replaced_by_another_query(world: SparkHarness) -> None:
    world.make_topic(2, each=5)
    options = {"kafka.group.instance.id": "spark-1"}
    older = world.query(options)
    older.trigger()

    newer = world.query(options)
    assert newer.trigger() is not None

    def fails() -> str:
        try:
            older.trigger()
        except QueryFailed as failed:
            return str(failed).strip()
        return ""

    reported = eventually(fails, "the older query hears of it")
    assert "another process has joined group" in reported and "'spark-1'" in reported
    assert "\n" not in reported and "Traceback" not in reported
    newer.trigger()
    assert world.committed() == {0: 5, 1: 5}


def test_a_query_that_does_not_poll_leaves_the_group(world: SparkHarness) -> None:
    world.make_topic(2, each=5)
    query = world.query({"kafka.max.poll.interval.ms": "1000", "revokeTimeout": "60s"})
    assert query.trigger() is not None
    with plain(world) as other:
        # when Spark's batch takes longer than it may
        eventually(lambda: other.partitions == {0, 1}, "the consumer has everything")
        eventually(lambda: len(other.records) == 10, "and reads it")
    world.await_no_members()
    # then the batch is not committed when it is done at last, but the query goes on where it was
    world.produce(1, range(2))
    triggered_until(lambda: len(query.checkpoint.rows) == 12, "everything was read once by the query", query)
    triggered_until_stored(query, world, {0: 6, 1: 6})


def test_a_query_that_polls_stays_a_member_through_a_trigger_without_records(world: SparkHarness) -> None:
    """The control: triggers alone are enough."""
    world.make_topic(2, each=5)
    query = world.query({"kafka.max.poll.interval.ms": "8000"})
    query.trigger()
    (member,) = world.members()
    done = threading.Event()
    timer = threading.Timer(10.0, done.set)
    timer.start()
    while not done.wait(0.3):
        assert query.trigger() is None
    assert world.members() == {member: {0, 1}}
    assert "poll" not in query.reader.log_text()


# -- strategies --------------------------------------------------------------------------------------------------------


def test_a_group_falls_back_to_range_for_a_member_that_knows_nothing_else(world: SparkHarness) -> None:
    world.make_topic(4, each=5)
    query = world.query()
    query.trigger()
    query.trigger()
    with plain(world, **{"partition.assignment.strategy": "range"}) as other:
        triggered_until(lambda: len(other.partitions) == 2, "the consumer has its half", query)
        world.produce(1)
        triggered_until(lambda: len(other.records) == 2 and len(query.checkpoint.rows) == 22, "all is read", query)
        assert {offset for _, offset in other.records} == {5}
        # and once more, by range: everything is given up before the join
        with plain(world, **{"partition.assignment.strategy": "range", "client.id": "third"}) as third:
            triggered_until(lambda: third.partitions, "the third has its assignment", query)
    triggered_until(lambda: len(assignment(query, world.topic)) == 4, "the query has everything again", query)


def test_what_falls_to_another_at_once_is_not_committed_by_the_query_any_more(world: SparkHarness) -> None:
    """In the generation in which a group falls back to range, what the query had kept is already somebody else's."""
    world.make_topic(2, each=5)
    query = world.query(PATIENT)
    assert query.trigger() is not None
    with plain(world, **{"partition.assignment.strategy": "range"}) as other:
        eventually(lambda: len(other.partitions) == 1, "the consumer has its half, although a batch reads it")
        (taken,) = other.partitions
        eventually(lambda: len(other.records) == 5, "it begins where the group was")
        triggered_until_stored(query, world, {1 - taken: 5})
        assert world.committed()[taken] == 0


def test_a_group_that_speaks_another_strategy(world: SparkHarness) -> None:
    world.make_topic(2)
    with plain(world, **{"partition.assignment.strategy": "roundrobin"}) as other:
        eventually(lambda: len(other.partitions) == 2, "a group of its own")
        with pytest.raises(QueryFailed) as failed:
            world.query().trigger()
    reported = str(failed.value).strip()
    assert "INCONSISTENT_GROUP_PROTOCOL" in reported and "\n" not in reported


# -- new partitions ----------------------------------------------------------------------------------------------------


def test_new_partitions_are_shared_and_read_from_their_beginning(world: SparkHarness) -> None:
    world.make_topic(2)
    options = {"startingOffsets": "latest"}
    one, two = world.query(options), world.query(options)
    triggered_until(lambda: assignment(one, world.topic) and assignment(two, world.topic), "they share", one, two)
    world.grow(6)
    world.produce(2, range(6))

    def rows() -> list[tuple[int, int]]:
        return [(row.partition, row.offset) for query in (one, two) for row in query.checkpoint.rows]

    triggered_until(lambda: len(rows()) >= 12, "all that came", one, two)
    assert sorted(rows()) == [(partition, offset) for partition in range(6) for offset in range(2)]
