"""A query whose group is on another server than its records (`kafka.group.bootstrap.servers`)."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from holdfast import Admin
from holdfast.client.errors import ConfigError, ConnectionFailed
from holdfast.spark import source
from holdfast.spark.batch_offsets import OffsetRange
from holdfast.spark.batch_reader import BatchReader
from holdfast.spark.options import batch_options, stream_options
from holdfast.spark.pipelines.land import land_query
from holdfast.spark.planning import OffsetRanges
from holdfast.spark.stream_reader import StreamReader
from holdfast.spark.write_options import write_options
from tests.client_compat.servers import Server
from tests.groups.topics import await_committed, committed, make_topic
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.quick_brokers import QUICK
from tests.support.spark_engine import Checkpoint, Killed, Point, QueryFailed
from tests.support.spark_harness import SOON_MISSED, SparkHarness

NOWHERE = "127.0.0.1:1"
OPTION = "kafka.group.bootstrap.servers"
READ = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
SPLIT = READ | {"kafka.group.id": "g", OPTION: "127.0.0.1:2"}


@pytest.fixture(scope="module")
def groups() -> Iterator[HoldfastBroker]:
    """The server of the groups. It has topics, but no records."""
    with HoldfastBroker(QUICK) as broker:
        yield broker


@pytest.fixture
def split_world(world: SparkHarness, groups: HoldfastBroker) -> SparkHarness:
    world.make_topic(4, each=5)
    make_topic(groups, world.topic)
    return world


def members(server: Server, group: str) -> int:
    with Admin({"bootstrap.servers": server.bootstrap}) as admin:
        return len(admin.describe_group(group).members)


# -- queries -----------------------------------------------------------------------------------------------------------


def test_a_query_joins_and_commits_there_and_reads_from_the_brokers(
    split_world: SparkHarness, groups: HoldfastBroker
) -> None:
    # given a query that has read everything
    world = split_world
    query = world.query({OPTION: groups.bootstrap, "members": "2", "kafka.group.instance.id": "eu"})
    batch = query.trigger()
    assert batch is not None and batch.read == dict.fromkeys(range(4), (0, 5)), query.reader.log_text()

    # when Spark asks for the next batch
    assert query.trigger() is None

    # then the members and the offsets are on the server of the groups, and nowhere else
    await_committed(groups, world.group, world.topic, 5)
    assert members(groups, world.group) == 2
    assert world.committed() == {} and world.members() == {}

    # when it is restarted, then it continues there
    query.stop()
    world.produce(2)
    with world.query({OPTION: groups.bootstrap, "members": "2", "kafka.group.instance.id": "eu"}) as again:
        later = again.trigger()
        assert later is not None and later.read == dict.fromkeys(range(4), (5, 7))


def test_control_without_the_option_the_group_is_on_the_brokers(
    split_world: SparkHarness, groups: HoldfastBroker
) -> None:
    query = split_world.query()
    query.trigger()
    query.trigger()

    eventually(lambda: split_world.committed() == dict.fromkeys(range(4), 5), "the offsets on the brokers")
    assert committed(groups, split_world.group, split_world.topic) == {}
    assert members(groups, split_world.group) == 0


def test_a_query_with_fixed_partitions_finds_the_offsets_of_its_group_there(
    split_world: SparkHarness, groups: HoldfastBroker
) -> None:
    world = split_world
    fixed = {
        OPTION: groups.bootstrap,
        "subscribe": "",
        "assign": f'{{"{world.topic}": [0, 1, 2, 3]}}',
        "newCheckpoint": "group",
    }
    query = world.query(fixed)
    query.trigger()
    query.trigger()
    await_committed(groups, world.group, world.topic, 5)
    query.stop()
    world.produce(1)

    with world.query(fixed) as other:  # with another checkpoint
        batch = other.trigger()

    assert batch is not None and batch.read == dict.fromkeys(range(4), (5, 6))
    assert world.committed() == {}


def test_a_new_checkpoint_is_compared_with_the_offsets_there(split_world: SparkHarness, groups: HoldfastBroker) -> None:
    world = split_world
    with Admin({"bootstrap.servers": groups.bootstrap}) as admin:
        admin.alter_offsets(world.group, {(world.topic, partition): 3 for partition in range(4)})

    query = world.query({OPTION: groups.bootstrap, "newCheckpoint": "fail"})
    with pytest.raises(QueryFailed, match="12 records of 4 partitions"):
        query.trigger()
    with world.query({"newCheckpoint": "fail"}) as control:
        batch = control.trigger()
        assert batch is not None and batch.read == dict.fromkeys(range(4), (0, 5))


def test_a_batch_that_is_repeated_skips_what_was_committed_there(
    split_world: SparkHarness, groups: HoldfastBroker
) -> None:
    # given a query that was killed in its first batch
    world = split_world
    checkpoint = Checkpoint()
    more = {OPTION: groups.bootstrap, **SOON_MISSED}
    with world.query(more, checkpoint) as killed, pytest.raises(Killed):
        killed.trigger(kill_at=Point.PLANNED)

    # when another member has committed a part of the batch before the query is restarted
    eventually(lambda: members(groups, world.group) == 0, "the end of its session")
    with Admin({"bootstrap.servers": groups.bootstrap}) as admin:
        admin.alter_offsets(world.group, {(world.topic, 0): 4})
    with world.query(more, checkpoint) as query:
        batch = query.trigger()

    # then that part is not read again
    assert batch is not None and batch.read == {0: (4, 5), 1: (0, 5), 2: (0, 5), 3: (0, 5)}


# -- executors ---------------------------------------------------------------------------------------------------------


def test_executors_only_connect_to_the_brokers(world: SparkHarness) -> None:
    """The server of the groups need not be there."""
    world.make_topic(1, each=5)
    options = world.options({OPTION: NOWHERE})
    on_executor: StreamReader = pickle.loads(pickle.dumps(StreamReader(stream_options(options))))
    stream_rows = sum(one.num_rows for one in on_executor.read(_all_of(world)))
    batch_rows = sum(one.num_rows for one in BatchReader(batch_options(options)).read(_all_of(world)))

    assert (stream_rows, batch_rows) == (5, 5)
    assert len(BatchReader(batch_options(options | {"startingOffsets": "earliest"})).partitions()) == 1


def _all_of(world: SparkHarness) -> OffsetRanges:
    return OffsetRanges((OffsetRange(world.topic, 0, 0, 5),))


def test_tasks_use_only_the_settings_of_the_records() -> None:
    guard = {
        "kafka.group.security.protocol": "SASL_PLAINTEXT",
        "kafka.group.sasl.mechanism": "PLAIN",
        "kafka.group.sasl.username": "bob",
        "kafka.group.sasl.password": "bobs-secret",
    }
    options = stream_options(SPLIT | guard)

    assert options.record_settings == {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
    shipped = land_query._on_executor(None, [], options)  # type: ignore[arg-type]
    assert "bobs-secret" not in str([cell.cell_contents for cell in shipped.__closure__ or ()])


# -- mistakes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (SPLIT | {OPTION: ""}, "kafka.group.bootstrap.servers names no broker"),
        (SPLIT | {OPTION: "h:x"}, "kafka.group.bootstrap.servers has 'h:x', which is not host:port"),
        (SPLIT | {"kafka.group.security.protocol": "SASL_SSL"}, "kafka.group.bootstrap.servers: kafka.sasl.mechanism"),
        (
            READ | {"kafka.group.id": "g", "kafka.group.sasl.username": "bob"},
            "kafka.group.sasl.username needs kafka.group.bootstrap.servers",
        ),
    ],
)
def test_a_mistake_is_reported_with_the_option(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        source.schema(options)
    assert said in str(raised.value)


def test_a_query_without_a_group_has_no_use_for_the_option() -> None:
    with pytest.raises(ConfigError, match=r"option kafka\.group\.bootstrap\.servers needs kafka\.group\.id"):
        stream_options({"kafka.bootstrap.servers": "127.0.0.1:1", "assign": '{"t": [0]}', OPTION: "127.0.0.1:2"})


def test_a_sink_has_no_use_for_the_option() -> None:
    with pytest.raises(ConfigError, match=r"option kafka\.group\.bootstrap\.servers cannot be set: a sink is in no"):
        write_options({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", OPTION: "127.0.0.1:2"})


def test_a_server_that_is_not_there_is_reported_before_the_query_begins(world: SparkHarness) -> None:
    more: dict[str, Any] = {OPTION: NOWHERE, "kafka.default.api.timeout.ms": "1000"}
    reader = StreamReader(stream_options(world.options(more)))
    try:
        with pytest.raises(ConnectionFailed) as raised:
            reader.latestOffset({}, ReadAllAvailable())
    finally:
        reader.stop()

    assert str(raised.value).startswith("no broker of kafka.group.bootstrap.servers can be reached: ")
    assert str(raised.value).endswith("; see the option kafka.group.bootstrap.servers, and whether the brokers run")
