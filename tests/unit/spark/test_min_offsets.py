"""minOffsetsPerTrigger and maxTriggerDelay: a batch waits until there are enough records, or until the time is over."""

from __future__ import annotations

import json

import pytest

from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.spark_engine import Batch, Checkpoint, Engine, Killed, Point
from tests.support.spark_harness import SparkHarness

TEN = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "1h"}


@pytest.fixture
def server(quick_holdfast: HoldfastBroker) -> HoldfastBroker:
    """Nothing here depends on the server, so Holdfast is enough."""
    return quick_holdfast


def ran(engine: Engine) -> Batch:
    batch = engine.trigger()
    assert batch is not None, engine.reader.log_text()
    return batch


def planned_earlier(checkpoint: Checkpoint, by_s: int) -> None:
    """As if the last batch had been planned that long ago."""
    offsets = json.loads(checkpoint.offsets[-1])
    offsets[""][""] -= 1000 * by_s
    checkpoint.offsets[-1] = json.dumps(offsets)


def test_a_batch_waits_until_there_are_enough_records_and_the_last_one_is_committed(world: SparkHarness) -> None:
    # given a first batch: it has no minimum, as there was none before it
    world.make_topic(2, each=2)
    query = world.query(TEN)
    assert ran(query).read == {0: (0, 2), 1: (0, 2)}
    # when there are nine more
    world.produce(4, range(2))
    world.produce(1, [0])
    # then they wait, and the finished batch is committed meanwhile
    assert query.trigger() is None
    assert world.committed() == {0: 2, 1: 2}
    assert query.trigger() is None
    world.produce(1, [1])
    assert ran(query).read == {0: (2, 7), 1: (2, 7)}


def test_after_the_delay_a_batch_has_what_there_is_and_none_if_there_is_nothing(world: SparkHarness) -> None:
    world.make_topic(1, each=2)
    query = world.query(TEN)
    ran(query)
    world.produce(1, [0])
    assert query.trigger() is None

    planned_earlier(query.checkpoint, 3601)

    assert ran(query).read == {0: (2, 3)}
    planned_earlier(query.checkpoint, 3601)
    assert query.trigger() is None
    assert world.committed() == {0: 3}


@pytest.mark.parametrize(("down_s", "reads"), [(0, None), (3601, {0: (2, 3)})], ids=["within the delay", "after it"])
def test_the_delay_goes_on_over_a_restart(
    world: SparkHarness, down_s: int, reads: dict[int, tuple[int, int]] | None
) -> None:
    world.make_topic(1, each=2)
    first = world.query(TEN)
    ran(first)
    first.stop()
    world.produce(1, [0])
    planned_earlier(first.checkpoint, down_s)

    batch = world.query(TEN, first.checkpoint).trigger()

    assert (batch and batch.read) == reads


def test_a_batch_that_is_repeated_does_not_wait(world: SparkHarness) -> None:
    world.make_topic(1, each=2)
    options = TEN | {"kafka.group.instance.id": "spark-1"}
    first = world.query(options)
    with pytest.raises(Killed):
        first.trigger(Point.PLANNED)

    assert ran(world.query(options, first.checkpoint)).read == {0: (0, 2)}


def test_what_is_there_now_is_read_to_its_end_although_it_is_little(world: SparkHarness) -> None:
    world.make_topic(2, each=12)
    query = world.query(TEN | {"maxOffsetsPerTrigger": "10"}, available_now=True)

    query.run_until_idle()

    assert [len(batch.rows) for batch in query.checkpoint.written] == [10, 10, 4]
    assert world.committed() == {0: 12, 1: 12}


def test_partitions_that_wait_for_more_are_released_at_once(world: SparkHarness) -> None:
    """No batch reads them, so their revocation does not wait for one."""
    world.make_topic(2, each=2)
    query = world.query(TEN | {"revokeTimeout": "5m", "kafka.client.id": "first"})
    ran(query)
    world.produce(1, range(2))
    assert query.trigger() is None
    # when another query joins, and the first one is not asked any more
    other = world.query({"kafka.client.id": "second"})
    ran(other)
    # then it gets its partition, with the records that waited
    eventually(lambda: len(world.members().get("second", ())) == 1, "a partition of its own")
    eventually(lambda: other.trigger() is None and len(other.checkpoint.rows) == 1, "the record that waited")


def test_the_minimum_is_of_the_querys_own_partitions(world: SparkHarness) -> None:
    world.make_topic(2)
    queries = [world.query(TEN | {"kafka.group.instance.id": name}) for name in "ab"]

    def divided() -> bool:
        for query in queries:
            query.trigger()
        return sorted(map(len, world.members().values())) == [1, 1]

    eventually(divided, "a partition each")
    world.produce(9, range(2))
    assert [query.trigger() for query in queries] == [None, None]

    world.produce(1, range(2))

    assert [len(ran(query).rows) for query in queries] == [10, 10]
