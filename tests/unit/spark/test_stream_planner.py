"""Queries and their checkpoints: where batches begin and end, what is committed, and what a restart does.

With a double of Spark's engine (`tests.support.spark_engine`), and readers in processes that can be killed.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unittest.mock import ANY

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from holdfast import types
from holdfast.client.cluster_client import ClusterClient
from holdfast.client.offsets import list_offsets
from holdfast.spark import watermarks
from holdfast.spark.options import stream_options
from holdfast.spark.stream_planner import StreamPlanner
from tests.client_compat.servers import Server
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.quick_brokers import QUICK
from tests.support.spark_engine import Batch, Checkpoint, Engine, Killed, Point, QueryFailed
from tests.support.spark_harness import SOON_MISSED, SparkHarness


def ran(engine: Engine) -> Batch:
    batch = engine.trigger()
    assert batch is not None, engine.reader.log_text()
    return batch


def stored(query: Engine, world: SparkHarness, offsets: dict[int, int]) -> None:
    """The group knows how far the query is, once it is at rest: while it rebalances a commit may be refused, and is
    made up for at the next trigger."""

    def look() -> bool:
        query.trigger()
        return world.committed() == offsets

    eventually(look, f"{offsets} in the group")


def sentence(failed: pytest.ExceptionInfo[QueryFailed]) -> str:
    """What the user sees: one line, and no stack."""
    text = str(failed.value).strip()
    assert "\n" not in text and "Traceback" not in text, text
    return text


# -- where it begins ---------------------------------------------------------------------------------------------------


def test_earliest_begins_at_the_beginning(world: SparkHarness) -> None:
    world.make_topic(4, each=5)
    query = world.query()

    batch = ran(query)

    assert batch.read == dict.fromkeys(range(4), (0, 5))
    assert Counter((row.partition, row.offset) for row in batch.rows) == Counter(
        (partition, offset) for partition in range(4) for offset in range(5)
    )


def test_latest_begins_at_the_end_as_it_was_when_the_query_began(world: SparkHarness) -> None:
    world.make_topic(2, each=5)
    query = world.query({"startingOffsets": "latest"})
    assert ran(query).read == {}

    world.produce(2, [0])

    assert ran(query).read == {0: (5, 7)}


def test_each_partition_starts_at_the_given_offset(world: SparkHarness) -> None:
    world.make_topic(3, each=5)
    offsets = {world.topic: {"0": 3, "1": -2, "2": -1}}

    query = world.query({"startingOffsets": json.dumps(offsets)})

    assert ran(query).read == {0: (3, 5), 1: (0, 5)}


def test_an_offset_for_every_partition_must_be_given(world: SparkHarness) -> None:
    world.make_topic(2)
    query = world.query({"startingOffsets": json.dumps({world.topic: {"0": 3}})})

    with pytest.raises(QueryFailed) as failed:
        query.trigger()

    assert f"startingOffsets has no offset for {world.topic}-1: name every partition" in sentence(failed)


def test_partitions_that_the_group_knows_begin_at_its_offsets(world: SparkHarness) -> None:
    world.make_topic(3, each=9)
    world.set_committed({0: 4, 2: 9})

    query = world.query({"startingOffsets": "earliest"})

    assert ran(query).read == {0: (4, 9), 1: (0, 9)}


def test_the_start_of_a_query_is_in_its_checkpoint_and_group_before_any_record(
    world: SparkHarness,
) -> None:
    world.make_topic(2, each=5)
    query = world.query({"startingOffsets": "latest"})

    batch = ran(query)

    assert batch.end == {world.topic: {"0": [5, 5], "1": [5, 5]}, "": {world.topic: 2, "": ANY}}
    eventually(lambda: world.committed() == {0: 5, 1: 5}, "the beginnings in the group")


@pytest.mark.parametrize("how", ["assign", "group deleted"])
def test_a_checkpoint_counts_where_the_group_has_no_offsets(world: SparkHarness, how: str) -> None:
    """Not startingOffsets, which would leave out what came while the query was down."""
    # given a query that has read up to 7
    world.make_topic(1, each=5)
    options = {"startingOffsets": "latest"}
    if how == "assign":
        options |= {"subscribe": "", "assign": json.dumps({world.topic: [0]}), "kafka.group.id": ""}
    first = world.query(options)
    ran(first)
    world.produce(2, [0])
    assert ran(first).read == {0: (5, 7)}
    first.stop()
    # when more comes while it is down, and no group knows where it was
    world.produce(4, [0])
    if how == "group deleted":
        world.await_no_members()
        world.delete_group()
    second = world.query(options, first.checkpoint)
    # then it goes on where it was; a query without its checkpoint does not
    assert ran(second).read == {0: (7, 11)}
    second.stop()
    if how == "group deleted":
        world.await_no_members()
        world.delete_group()
    assert ran(world.query(options)).read == {}


def test_a_checkpoint_counts_also_before_the_first_record(world: SparkHarness) -> None:
    world.make_topic(1, each=5)
    options = {
        "startingOffsets": "latest",
        "subscribe": "",
        "assign": json.dumps({world.topic: [0]}),
        "kafka.group.id": "",
    }
    first = world.query(options)
    ran(first)
    first.kill()
    world.produce(3, [0])

    assert ran(world.query(options, first.checkpoint)).read == {0: (5, 8)}


def test_an_unfinished_batch_is_gone_on_with_where_the_group_has_no_offsets(world: SparkHarness) -> None:
    world.make_topic(1, each=5)
    options = {"startingOffsets": "latest"}
    first = world.query(options | SOON_MISSED)
    ran(first)
    world.produce(2, [0])
    with pytest.raises(Killed):
        first.trigger(Point.PLANNED)
    world.await_no_members()
    world.delete_group()
    world.produce(4, [0])

    second = world.query(options, first.checkpoint)

    assert [ran(second).read, ran(second).read] == [{0: (5, 7)}, {0: (7, 11)}]


# -- batch after batch -------------------------------------------------------------------------------------------------


def test_offsets_carry_from_and_to_of_each_partition(world: SparkHarness) -> None:
    world.make_topic(2, each=5)
    query = world.query()
    first = ran(query)
    world.produce(1, [1])
    second = ran(query)

    assert first.end == {world.topic: {"0": [0, 5], "1": [0, 5]}, "": {world.topic: 2, "": ANY}}
    assert second.end == {world.topic: {"0": [5, 5], "1": [5, 6]}, "": {world.topic: 2, "": ANY}}


def test_without_news_the_offsets_are_the_same_text(world: SparkHarness) -> None:
    world.make_topic(2, each=5)
    query = world.query()
    ran(query)
    start = query.checkpoint.offsets[-1]

    assert query.reader.latest_offset(start) == start
    world.produce(1, [0])
    assert query.reader.latest_offset(start) != start


def test_a_finished_batch_is_committed_at_the_next_trigger_also_without_new_records(world: SparkHarness) -> None:
    world.make_topic(2, each=5)
    query = world.query()
    ran(query)
    eventually(lambda: world.committed() == {0: 0, 1: 0}, "where it began is stored")

    assert query.trigger() is None

    assert world.committed() == {0: 5, 1: 5}


def test_a_batch_is_not_larger_than_it_may_be(world: SparkHarness) -> None:
    world.make_topic(2, each=10)
    query = world.query({"maxOffsetsPerTrigger": "6"})

    batches = query.run_until_idle()

    assert [len(batch.rows) for batch in batches] == [6, 6, 6, 2]
    assert world.committed() == {0: 10, 1: 10}


def test_tasks_are_as_many_as_is_asked_for(world: SparkHarness) -> None:
    world.make_topic(1, each=10)

    batch = ran(world.query({"minPartitions": "3"}))

    assert batch.tasks == 3 and [row.offset for row in batch.rows] == list(range(10))


def test_the_progress_report_has_the_end_of_the_topic_and_the_members(world: SparkHarness) -> None:
    world.make_topic(2, each=5)
    query = world.query({"kafka.group.instance.id": "spark-1", "maxOffsetsPerTrigger": "2"})
    assert query.reader.report_latest_offset() == ""
    ran(query)

    assert json.loads(query.reader.report_latest_offset()) == {world.topic: {"0": 5, "1": 5}, "": ["spark-1"]}


# -- restarts ----------------------------------------------------------------------------------------------------------


def test_a_checkpoint_that_is_ahead_of_the_group_wins_and_is_committed(world: SparkHarness) -> None:
    world.make_topic(2, each=5)
    first = world.query(SOON_MISSED)
    with pytest.raises(Killed):
        first.trigger(Point.COMMITTED)
    assert world.committed() == {0: 0, 1: 0}
    world.produce(1, range(2))

    second = world.query(checkpoint=first.checkpoint)

    assert ran(second).read == {0: (5, 6), 1: (5, 6)}
    assert second.trigger() is None
    assert world.committed() == {0: 6, 1: 6}


def test_a_query_that_is_asked_only_once_also_commits_its_checkpoint(world: SparkHarness) -> None:
    """As Trigger.AvailableNow asks when there is nothing to read."""
    world.make_topic(2, each=5)
    first = world.query(SOON_MISSED)
    with pytest.raises(Killed):
        first.trigger(Point.COMMITTED)
    assert world.committed() == {0: 0, 1: 0}

    second = world.query(checkpoint=first.checkpoint, available_now=True)

    assert second.run_until_idle() == []
    assert world.committed() == {0: 5, 1: 5}


def test_a_group_that_is_further_than_the_checkpoint_wins(world: SparkHarness) -> None:
    world.make_topic(2, each=5)
    first = world.query()
    ran(first)
    first.trigger()
    first.stop()
    world.produce(5, range(2))
    world.await_no_members()
    world.set_committed({0: 8})

    second = world.query(checkpoint=first.checkpoint)

    assert ran(second).read == {0: (8, 10), 1: (5, 10)}
    second.trigger()
    assert world.committed() == {0: 10, 1: 10}


def test_an_operator_replays_with_a_new_checkpoint_and_not_with_the_old_one(world: SparkHarness) -> None:
    world.make_topic(1, each=5)
    first = world.query()
    ran(first)
    first.trigger()
    first.stop()
    world.await_no_members()
    world.set_committed({0: 2})
    # with its checkpoint the query has read everything
    second = world.query(checkpoint=first.checkpoint)
    assert second.trigger() is None
    second.stop()

    world.await_no_members()
    world.set_committed({0: 2})

    assert ran(world.query(checkpoint=Checkpoint())).read == {0: (2, 5)}


@pytest.mark.parametrize("point", Point)
def test_a_query_that_is_killed_and_begun_again_loses_nothing(world: SparkHarness, point: Point) -> None:
    world.make_topic(2, each=5)
    options = {"kafka.group.instance.id": "spark-1"}
    first = world.query(options)
    ran(first)
    world.produce(3, range(2))
    # when it is killed in its second batch
    with pytest.raises(Killed):
        first.trigger(point)
    world.produce(1, range(2))
    second = world.query(options, first.checkpoint)
    second.run_until_idle()
    # then everything is written, and only a batch that was written and not finished twice
    seen = Counter((row.partition, row.offset) for row in first.checkpoint.rows)
    again = (
        {(partition, offset) for partition in range(2) for offset in range(5, 8)} if point is Point.WRITTEN else set()
    )
    assert set(seen) == {(partition, offset) for partition in range(2) for offset in range(9)}
    assert {where for where, count in seen.items() if count > 1} == again
    assert world.committed() == {0: 9, 1: 9}


def test_a_batch_that_is_run_again_leaves_out_what_the_group_has_done_since(world: SparkHarness) -> None:
    world.make_topic(3, each=10)
    first = world.query(SOON_MISSED)
    with pytest.raises(Killed):
        first.trigger(Point.PLANNED)
    world.await_no_members()
    world.set_committed({0: 4, 1: 10})  # others were there meanwhile

    second = world.query(checkpoint=first.checkpoint)

    assert ran(second).read == {0: (4, 10), 2: (0, 10)}
    assert second.trigger() is None
    assert world.committed() == {0: 10, 1: 10, 2: 10}


# -- Trigger.AvailableNow ----------------------------------------------------------------------------------------------


def test_what_is_there_is_read_and_nothing_that_comes_later(world: SparkHarness) -> None:
    world.make_topic(2, each=6)
    query = world.query({"maxOffsetsPerTrigger": "4"}, available_now=True)
    ran(query)
    world.produce(3, range(2))

    query.run_until_idle()

    assert len(query.checkpoint.rows) == 12
    assert world.committed() == {0: 6, 1: 6}
    query.stop()
    assert len(ran(world.query(checkpoint=query.checkpoint)).rows) == 6  # the control


# -- fixed partitions --------------------------------------------------------------------------------------------------


def test_fixed_partitions_with_a_group_begin_at_its_offsets_and_are_stored_there(world: SparkHarness) -> None:
    world.make_topic(3, each=5)
    world.set_committed({0: 3})
    query = world.query({"subscribe": "", "assign": json.dumps({world.topic: [0, 1]})})

    assert ran(query).read == {0: (3, 5), 1: (0, 5)}
    assert query.trigger() is None
    assert world.committed() == {0: 5, 1: 5}
    assert world.members() == {}


def test_fixed_partitions_without_a_group_leave_no_trace(world: SparkHarness) -> None:
    world.make_topic(2, each=5)
    query = world.query({"subscribe": "", "assign": json.dumps({world.topic: [1]}), "kafka.group.id": ""})

    assert ran(query).read == {1: (0, 5)}
    assert query.trigger() is None
    assert world.committed() == {}


# -- topics that change ------------------------------------------------------------------------------------------------


def test_partitions_that_come_later_are_read_from_their_beginning(world: SparkHarness) -> None:
    world.make_topic(1, each=5)
    query = world.query({"startingOffsets": "latest"})
    assert ran(query).read == {}

    world.grow(3)
    world.produce(2, range(3))

    eventually(lambda: query.trigger() is None and len(query.checkpoint.rows) == 6, "all that came since")
    assert {(row.partition, row.offset) for row in query.checkpoint.rows} == {
        (0, 5), (0, 6), (1, 0), (1, 1), (2, 0), (2, 1)
    }  # fmt: skip


def test_partitions_that_came_while_the_query_was_down_are_read_from_their_beginning(world: SparkHarness) -> None:
    world.make_topic(1, each=5)
    first = world.query({"startingOffsets": "latest"})
    ran(first)
    first.stop()
    world.grow(2)
    world.produce(2, range(2))

    second = world.query({"startingOffsets": "latest"}, first.checkpoint)

    assert ran(second).read == {0: (5, 7), 1: (0, 2)}


def test_topics_that_match_a_pattern_later_are_read_from_their_beginning(world: SparkHarness) -> None:
    world.make_topic(1, each=5)
    later = SparkHarness(world.server)
    later.topic = f"{world.topic}-later"
    query = world.query({"subscribe": "", "subscribePattern": f"{world.topic}.*", "startingOffsets": "latest"})
    assert ran(query).read == {}

    later.make_topic(2, each=3)
    world.produce(1, [0])

    eventually(lambda: query.trigger() is None and len(query.checkpoint.rows) == 7, "all that came since")
    assert {(row.topic, row.partition, row.offset) for row in query.checkpoint.rows} == {
        (world.topic, 0, 5),
        *((later.topic, partition, offset) for partition in range(2) for offset in range(3)),
    }


def test_records_that_went_before_they_were_read_end_the_query(world: SparkHarness) -> None:
    world.make_topic(1, each=5)
    query = world.query()
    ran(query)
    world.produce(5, [0])
    world.delete_records(0, 8)

    with pytest.raises(QueryFailed) as failed:
        query.trigger()

    reported = sentence(failed)
    assert (
        f"{world.topic}-0 begins at 8, and the query had read up to 5" in reported
        and "failOnDataLoss=false" in reported
    )
    assert not query.reader.is_alive or query.stop() is not None


def test_records_that_went_before_they_were_read_are_left_out_if_that_is_allowed(world: SparkHarness) -> None:
    world.make_topic(1, each=5)
    query = world.query({"failOnDataLoss": "false"})
    ran(query)
    world.produce(5, [0])
    world.delete_records(0, 8)

    assert ran(query).read == {0: (8, 10)}
    assert "begins at 8, and the query had read up to 5" in query.reader.log_text()


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_topic_that_was_deleted_and_created_again(world: SparkHarness, fail: str) -> None:
    world.make_topic(1, each=9)
    first = world.query({"failOnDataLoss": fail})
    ran(first)
    first.stop()
    world.delete_topic()
    world.make_topic(1, each=2)

    second = world.query({"failOnDataLoss": fail}, first.checkpoint)

    if fail == "true":
        with pytest.raises(QueryFailed) as failed:
            second.trigger()
        assert f"{world.topic}-0 ends at 2, and the query had read up to 9" in sentence(failed)
    else:
        second.trigger()
        world.produce(3, [0])
        assert ran(second).read[0][1] == 5
        stored(second, world, {0: 5})


@pytest.mark.parametrize("fail", ["true", "false"])
def test_an_offset_beyond_what_is_committed_is_no_loss_and_stays(
    world: SparkHarness, monkeypatch: pytest.MonkeyPatch, fail: str
) -> None:
    """Of a member of the group that also reads what is not committed."""
    # given a transaction that is open from 4 on, and a group that has got to 7
    world.make_topic(1, each=9)
    world.set_committed({0: 7})
    stable = [4]

    def as_with_transactions(
        network: ClusterClient, wanted: Mapping[types.TopicPartition, int], deadline: float, *, read_committed: bool
    ) -> dict[types.TopicPartition, int]:
        found = list_offsets(network, wanted, deadline, read_committed=read_committed)
        ends = stable[0] if read_committed else 9
        return {where: min(ends, offset) for where, offset in found.items()}

    monkeypatch.setattr(watermarks, "list_offsets", as_with_transactions)
    query = StreamPlanner(stream_options(world.options({"failOnDataLoss": fail, "startingOffsets": "earliest"})))
    try:
        # when
        planned = query.latest_offset({}, None)
        query.latest_offset(planned, None)
        # then it waits there, and goes on when the transaction has ended
        assert planned[world.topic] == {"0": [7, 7]}
        assert world.committed() == {0: 7}
        stable[0] = 9
        assert query.latest_offset(planned, None)[world.topic] == {"0": [7, 9]}
    finally:
        query.close()


@pytest.mark.real
@pytest.mark.timeout(300)
def test_an_offset_within_an_open_transaction_is_no_loss(quick_kafka: Server) -> None:
    world = SparkHarness(quick_kafka)
    try:
        # given a group that a member has taken into a transaction which is still open
        world.make_topic(1, each=4)
        producer = Producer({"bootstrap.servers": quick_kafka.bootstrap, "transactional.id": world.topic})
        producer.init_transactions(60)
        producer.begin_transaction()
        for number in range(5):
            producer.produce(world.topic, b"%d" % number, partition=0)
        assert producer.flush(60) == 0
        other = Consumer(
            {
                "bootstrap.servers": quick_kafka.bootstrap,
                "group.id": world.group,
                "isolation.level": "read_uncommitted",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        other.subscribe([world.topic])
        assert len(other.consume(7, 60)) == 7
        other.commit(offsets=[TopicPartition(world.topic, 0, 7)], asynchronous=False)
        other.close()
        # when, then
        query = world.query()
        assert ran(query).read == {}
        assert query.trigger() is None
        assert world.committed() == {0: 7}
        producer.commit_transaction(60)
        start = query.checkpoint.offsets[-1]
        eventually(
            lambda: json.loads(query.reader.latest_offset(start))[world.topic] == {"0": [7, 10]},
            "the rest of the transaction and its marker are planned",
        )
    finally:
        world.close()


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_topic_that_is_deleted(world: SparkHarness, fail: str) -> None:
    world.make_topic(1, each=5)
    # long enough that the group does not see it before the query does
    query = world.query({"failOnDataLoss": fail, "kafka.metadata.max.age.ms": "60000"})
    ran(query)
    world.delete_topic()

    if fail == "true":
        with pytest.raises(QueryFailed) as failed:
            query.trigger()
        assert f"{world.topic}-0 does not exist any more: records may be lost" in sentence(failed)
    else:
        assert query.trigger() is None
        assert "does not exist any more" in query.reader.log_text()


def test_a_topic_that_never_was(world: SparkHarness) -> None:
    with pytest.raises(QueryFailed) as failed:
        world.query().trigger()

    assert f"topic '{world.topic}' (UNKNOWN_TOPIC_OR_PARTITION): it does not exist" in sentence(failed)


# -- brokers that are away ---------------------------------------------------------------------------------------------


def test_a_broker_that_cannot_be_reached(world: SparkHarness) -> None:
    query = world.query({"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "1000"})

    with pytest.raises(QueryFailed) as failed:
        query.trigger()

    assert "127.0.0.1:1" in sentence(failed)


@contextmanager
def own_world() -> Iterator[tuple[HoldfastBroker, SparkHarness]]:
    """With a broker that may be ended."""
    with HoldfastBroker(QUICK) as broker:
        world = SparkHarness(broker)
        try:
            yield broker, world
        finally:
            world.close()


@contextmanager
def asking(query: Engine) -> Iterator[list[Batch | None]]:
    """Spark asks for the next batch meanwhile; in the end it has got an answer."""
    done: list[Batch | None] = []
    thread = threading.Thread(target=lambda: done.append(query.trigger()))
    thread.start()
    try:
        yield done
    finally:
        thread.join(60)


def test_a_broker_that_is_killed_and_comes_back_costs_nothing() -> None:
    with own_world() as (broker, world):
        world.make_topic(2, each=5)
        query = world.query()
        ran(query)
        # when it is away while the query asks for more
        broker.kill()
        with asking(query) as done:
            eventually(lambda: "127.0.0.1" in query.reader.log_text(), "the query complains")
            broker.start()
        # then the query has only waited
        assert done == [None], query.reader.log_text()
        world.produce(2, range(2))
        assert ran(query).read == {0: (5, 7), 1: (5, 7)}
        stored(query, world, {0: 7, 1: 7})


def test_a_commit_that_is_not_answered_is_made_up_for() -> None:
    with own_world() as (broker, world):
        world.make_topic(2, each=5)
        query = world.query()
        ran(query)
        # when the broker stands still for longer than a commit is waited for
        broker.suspend()
        try:
            with asking(query) as done:
                eventually(lambda: "could not commit" in query.reader.log_text(), "the query goes on without it")
                broker.resume()
        finally:
            broker.resume()
        # then the next trigger stores it, or this one already has
        assert done == [None], query.reader.log_text()
        stored(query, world, {0: 5, 1: 5})
