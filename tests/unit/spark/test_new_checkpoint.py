"""A query with a new checkpoint, whose group has committed offsets: where it begins, and what a restart does.

With a double of Spark's engine, as in test_stream_planner.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import pytest

from holdfast.client.errors import ConfigError
from holdfast.spark import new_checkpoint
from holdfast.spark.options import stream_options
from holdfast.spark.partition_state import Restart
from tests.client_compat.servers import Server
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.spark_engine import Batch, Checkpoint, Engine, Killed, Point, QueryFailed
from tests.support.spark_harness import SOON_MISSED, SparkHarness

AGAIN = {"newCheckpoint": "startingOffsets"}
SKIPS = "records of {} partitions between them are not read"


@pytest.fixture
def server(quick_holdfast: HoldfastBroker) -> HoldfastBroker:
    """Kafka has a test of its own, at the end."""
    return quick_holdfast


def ran(engine: Engine) -> Batch:
    batch = engine.trigger()
    assert batch is not None, engine.reader.log_text()
    return batch


def records(partitions: int, each: int) -> set[tuple[int, int]]:
    return {(partition, offset) for partition in range(partitions) for offset in range(each)}


def read_by(*checkpoints: Checkpoint) -> Counter[tuple[int, int]]:
    return Counter((row.partition, row.offset) for one in checkpoints for row in one.rows)


def finished_group(world: SparkHarness, partitions: int = 2, each: int = 5) -> None:
    """A topic that the group has read to its end."""
    world.make_topic(partitions, each=each)
    world.set_committed(dict.fromkeys(range(partitions), each))


# -- the rule, without a broker ----------------------------------------------------------------------------------------


def rule(starting: dict[int, int], committed: dict[int, int], **options: str) -> dict[tuple[str, int], Restart]:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "kafka.group.id": "g", "startingOffsets": "earliest"}
    return new_checkpoint.restarts(
        stream_options(given | options),
        lambda: {("t", partition): offset for partition, offset in starting.items()},
        lambda: {("t", partition): offset for partition, offset in committed.items()},
    )


def test_every_partition_may_restart_only_if_that_is_asked_for() -> None:
    assert rule({0: 0, 1: 7}, {0: 5}, newCheckpoint="startingOffsets") == {("t", 0): Restart(0), ("t", 1): Restart(7)}
    assert rule({0: 0, 1: 7}, {0: 5}, newCheckpoint="group") == {}
    assert rule({0: 0, 1: 7}, {0: 5}) == {}


def test_skipped_records_are_counted_where_the_group_is_ahead() -> None:
    ahead = {0: 5, 1: 30, 2: 4, 4: 9}

    with pytest.raises(new_checkpoint.GroupIsAhead, match=r"'g' has committed offsets after startingOffsets: 25 rec"):
        rule({0: 0, 1: 10, 2: 4, 3: 0}, ahead, newCheckpoint="fail")
    assert rule({0: 5, 1: 31}, ahead, newCheckpoint="fail") == {}


def test_a_start_that_cannot_be_found_is_no_reason_to_warn(caplog: pytest.LogCaptureFixture) -> None:
    """The group has an offset for this partition, so it needs none of startingOffsets."""

    def unknown() -> dict[tuple[str, int], int]:
        raise ConfigError("startingOffsets has no offset for t-0")

    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "kafka.group.id": "g"}

    assert new_checkpoint.restarts(stream_options(given), unknown, lambda: {("t", 0): 5}) == {}
    assert caplog.text == ""
    rule({0: 0}, {0: 5})
    assert "5 records of 1 partitions" in caplog.text  # the control


# -- at the offsets of the group ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "warns"),
    [({}, True), ({"newCheckpoint": "group"}, False), ({"startingOffsets": "latest"}, False)],
    ids=["default", "group", "latest"],
)
def test_skipped_records_are_logged_unless_that_is_asked_for(
    world: SparkHarness, options: dict[str, str], warns: bool
) -> None:
    finished_group(world)
    query = world.query(options)

    assert ran(query).read == {}

    expected = f"'{world.group}' has committed offsets after startingOffsets: 10 {SKIPS.format(2)}; set newCheckpoint="
    assert (expected in query.reader.log_text()) == warns, query.reader.log_text()
    assert ("are not read" in query.reader.log_text()) == warns


def test_a_restart_and_a_new_group_log_no_warning(world: SparkHarness) -> None:
    world.make_topic(2, each=5)
    first = world.query()
    ran(first)
    first.trigger()
    first.stop()
    second = world.query(checkpoint=first.checkpoint)

    assert second.trigger() is None

    assert "are not read" not in first.reader.log_text() + second.reader.log_text()


# -- at startingOffsets ------------------------------------------------------------------------------------------------


def test_a_new_checkpoint_reads_everything_again_and_its_restart_does_not(world: SparkHarness) -> None:
    check_everything_is_read_again(world)


def check_everything_is_read_again(world: SparkHarness) -> None:
    # given a query that has read everything, and whose checkpoint is deleted
    world.make_topic(2, each=5)
    old = world.query(AGAIN)
    ran(old)
    old.trigger()
    old.stop()
    world.await_no_members()
    assert world.committed() == {0: 5, 1: 5}
    # when
    refreshed = world.query(AGAIN)
    batch = ran(refreshed)
    # then
    assert batch.read == {0: (0, 5), 1: (0, 5)}
    assert world.committed() == {0: 0, 1: 0}
    assert refreshed.trigger() is None
    assert world.committed() == {0: 5, 1: 5}
    refreshed.stop()
    again = world.query(AGAIN, refreshed.checkpoint)
    assert again.trigger() is None
    world.produce(1, [1])
    assert ran(again).read == {1: (5, 6)}


@pytest.mark.parametrize("point", Point)
def test_a_query_that_is_killed_in_its_first_batch_skips_nothing(world: SparkHarness, point: Point) -> None:
    finished_group(world)
    options = AGAIN | {"kafka.group.instance.id": "spark-1", "maxOffsetsPerTrigger": "6"}
    first = world.query(options)
    with pytest.raises(Killed):
        first.trigger(point)

    second = world.query(options, first.checkpoint)
    second.run_until_idle()

    seen = read_by(first.checkpoint)
    assert set(seen) == records(2, 5)
    assert sum(seen.values()) == (16 if point is Point.WRITTEN else 10)
    assert world.committed() == {0: 5, 1: 5}


@pytest.mark.parametrize("members", ["1", "2"])
def test_what_is_there_is_read_again_in_one_run(world: SparkHarness, members: str) -> None:
    """Trigger.AvailableNow, as pipelines use it: there is no later trigger."""
    finished_group(world)
    options = AGAIN | {"members": members}

    query = world.query(options, available_now=True)
    query.run_until_idle()
    query.stop()

    assert read_by(query.checkpoint) == Counter(records(2, 5))
    assert world.query(options, query.checkpoint, available_now=True).run_until_idle() == []


def test_each_partition_begins_at_its_own_start_and_no_record_of_the_group_is_skipped(world: SparkHarness) -> None:
    world.make_topic(4, each=9)
    world.set_committed({0: 9, 1: 4, 2: 4})
    starting = {world.topic: {"0": 7, "1": -1, "2": 6, "3": 8}}

    query = world.query(AGAIN | {"startingOffsets": json.dumps(starting)})

    assert ran(query).read == {0: (7, 9), 1: (4, 9), 2: (4, 9), 3: (8, 9)}


def test_fixed_partitions_with_a_group_begin_again(world: SparkHarness) -> None:
    finished_group(world)
    options = {"subscribe": "", "assign": json.dumps({world.topic: [1]})}
    query = world.query(AGAIN | options)

    assert ran(query).read == {1: (0, 5)}
    assert query.trigger() is None
    assert world.committed() == {0: 5, 1: 5}


def test_a_start_that_cannot_be_committed_is_logged_and_ends_a_query_that_cannot_wait(world: SparkHarness) -> None:
    """The partitions of a group with members cannot be committed from outside."""
    finished_group(world, 1)
    member = world.query()
    ran(member)
    options = AGAIN | {
        "subscribe": "",
        "assign": json.dumps({world.topic: [0]}),
        "kafka.default.api.timeout.ms": "2000",
    }

    waiting = world.query(options)
    assert ran(waiting).read == {} and waiting.trigger() is None
    assert "could not commit" in waiting.reader.log_text()
    with pytest.raises(QueryFailed, match="start offsets of 1 partitions could not be committed"):
        world.query(options, available_now=True).trigger()

    member.stop()
    world.await_no_members()
    assert ran(waiting).read == {0: (0, 5)}


# -- several queries in a group ----------------------------------------------------------------------------------------


def static(name: str) -> dict[str, str]:
    return {"kafka.group.instance.id": name}


def two_old_queries(world: SparkHarness) -> tuple[Engine, Engine]:
    """Two queries that have read everything, and that have been killed: they keep their partitions for a while."""
    world.make_topic(4, each=5)
    # The session is short, but not shorter than the start of the next query.
    first, second = (world.query(static(name) | {"kafka.session.timeout.ms": "8000"}) for name in "ab")
    ran(first)
    ran(second)

    def divided() -> bool:
        first.trigger()
        second.trigger()
        halves = sorted(map(len, world.members().values())) == [2, 2]
        return halves and world.committed() == dict.fromkeys(range(4), 5)

    eventually(divided, "two partitions each, all of them read")
    first.kill()
    second.kill()
    return first, second


@pytest.mark.parametrize("restarts", [False, True], ids=["one run", "a restart"])
def test_partitions_of_a_query_that_does_not_come_back_are_read_again(world: SparkHarness, restarts: bool) -> None:
    check_partitions_of_an_absent_query(world, restarts)


def check_partitions_of_an_absent_query(world: SparkHarness, restarts: bool) -> None:
    # given two queries, of which one begins again while the other one is still a member
    two_old_queries(world)
    options = AGAIN | static("a")
    query = world.query(options)
    assert len(ran(query).read) == 2
    if restarts:
        query.kill()
        query = world.query(options, query.checkpoint)
    # when the session of the other one has expired
    eventually(lambda: not query.trigger() and len(world.members().get("a", ())) == 4, "all partitions", 60)
    eventually(lambda: query.trigger() is None and len(query.checkpoint.rows) >= 20, "all records")
    # then its partitions are read from the beginning, too
    assert read_by(query.checkpoint) == Counter(records(4, 5))
    assert world.committed() == dict.fromkeys(range(4), 5)


def test_partitions_that_another_member_reads_meanwhile_continue_at_the_groups_offset(world: SparkHarness) -> None:
    # given two queries, of which one begins again, and the other one goes on and then ends
    _, old = two_old_queries(world)
    query = world.query(AGAIN | static("a"))
    own = set(ran(query).read)
    other = world.query(static("b") | SOON_MISSED, old.checkpoint)
    world.produce(2)
    assert set(ran(other).read.values()) == {(5, 7)}
    other.trigger()
    other.kill()
    # when the first one has got the partitions of the other one
    eventually(lambda: not query.trigger() and len(world.members().get("a", ())) == 4, "all partitions", 60)
    world.produce(1)
    last = {(partition, 7) for partition in range(4)}
    eventually(lambda: query.trigger() is None and last <= set(read_by(query.checkpoint)), "the last record of each")
    # then it has not read them again
    assert set(read_by(query.checkpoint)) == {
        (partition, offset) for partition, offset in records(4, 8) if partition in own or offset == 7
    }


def test_queries_that_begin_again_together_read_everything(world: SparkHarness) -> None:
    finished_group(world, 4)
    options = AGAIN | {"maxOffsetsPerTrigger": "3"}
    queries = [world.query(options), world.query(options)]

    def all_read() -> bool:
        for query in queries:
            query.trigger()
        return world.committed() == dict.fromkeys(range(4), 5) and set(
            read_by(*(query.checkpoint for query in queries))
        ) == records(4, 5)

    eventually(all_read, "every record, by one of them", 60)
    assert all(query.checkpoint.rows for query in queries)


# -- fail --------------------------------------------------------------------------------------------------------------


def test_a_query_fails_if_records_would_be_skipped_and_disturbs_nobody(world: SparkHarness) -> None:
    finished_group(world)

    with pytest.raises(QueryFailed) as failed:
        world.query({"newCheckpoint": "fail"}).trigger()

    assert f"10 {SKIPS.format(2)} (newCheckpoint=fail): set newCheckpoint=startingOffsets to" in str(failed.value)
    assert "\n" not in str(failed.value).strip()
    assert world.members() == {} and world.committed() == {0: 5, 1: 5}


def test_a_query_that_fails_on_skipped_records_has_its_first_start_and_its_restarts(world: SparkHarness) -> None:
    world.make_topic(2, each=5)
    first = world.query({"newCheckpoint": "fail"})
    assert ran(first).read == {0: (0, 5), 1: (0, 5)}
    first.trigger()
    first.stop()
    world.produce(1, range(2))

    second = world.query({"newCheckpoint": "fail"}, first.checkpoint)

    assert ran(second).read == {0: (5, 6), 1: (5, 6)}


# -- Kafka -------------------------------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "check",
    [check_everything_is_read_again, lambda world: check_partitions_of_an_absent_query(world, True)],
    ids=["alone", "with an absent query"],
)
def test_apache_kafka_takes_the_start_of_a_new_checkpoint(
    quick_kafka: Server, check: Callable[[SparkHarness], None]
) -> None:
    world = SparkHarness(quick_kafka)
    try:
        check(world)
    finally:
        world.close()
