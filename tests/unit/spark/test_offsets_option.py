"""Streaming queries that begin at a time. The options themselves are in test_options, and batches in
test_batch_reader."""

from __future__ import annotations

import json

import pytest

from tests.client_compat.client import Record
from tests.client_compat.confluent_client import ConfluentClient
from tests.support.eventually import eventually
from tests.support.holdfast_broker import HoldfastBroker
from tests.support.spark_engine import Batch, Engine, QueryFailed
from tests.support.spark_harness import SOON_MISSED, SparkHarness

CLIENT = ConfluentClient()
START_MS = 1_700_000_000_000
LATEST = {"startingOffsetsByTimestampStrategy": "latest"}


@pytest.fixture
def server(quick_holdfast: HoldfastBroker) -> HoldfastBroker:
    """Nothing here depends on the server, so Holdfast is enough."""
    return quick_holdfast


def ran(engine: Engine) -> Batch:
    batch = engine.trigger()
    assert batch is not None, engine.reader.log_text()
    return batch


def fill(world: SparkHarness, *counts: int) -> None:
    """Partitions with this many records, a second apart."""
    CLIENT.create_topic(world.server.bootstrap, world.topic, len(counts), {"retention.ms": "-1"})
    for partition, count in enumerate(counts):
        records = [Record(b"x", timestamp_ms=START_MS + 1000 * number) for number in range(count)]
        CLIENT.produce(world.server.bootstrap, world.topic, records, partition)


def test_a_query_begins_at_a_time_and_a_committed_offset_takes_precedence(world: SparkHarness) -> None:
    fill(world, 10, 10, 10)
    world.set_committed({1: 9})

    query = world.query({"startingTimestamp": str(START_MS + 2500), "startingOffsets": "earliest"})

    assert ran(query).read == {0: (3, 10), 1: (9, 10), 2: (3, 10)}
    assert query.trigger() is None
    assert world.committed() == dict.fromkeys(range(3), 10)


def test_each_partition_begins_at_its_own_time(world: SparkHarness) -> None:
    fill(world, 10, 10)
    times = {world.topic: {"0": START_MS + 9000, "1": START_MS}}

    query = world.query({"startingOffsetsByTimestamp": json.dumps(times)})

    assert ran(query).read == {0: (9, 10), 1: (0, 10)}


def test_a_partition_without_later_records_fails_or_begins_at_its_end(world: SparkHarness) -> None:
    fill(world, 10, 5)
    late = {"startingTimestamp": str(START_MS + 8000)}

    with pytest.raises(QueryFailed) as failed:
        world.query(late | SOON_MISSED).trigger()
    assert f"for {world.topic}-1, which has no record at or after that time" in str(failed.value)
    assert "\n" not in str(failed.value).strip()

    world.await_no_members()
    assert ran(world.query(late | LATEST)).read == {0: (8, 10)}


def test_partitions_that_come_later_are_read_from_their_beginning(world: SparkHarness) -> None:
    fill(world, 10)
    query = world.query({"startingTimestamp": str(START_MS + 8000)})
    assert ran(query).read == {0: (8, 10)}

    world.grow(2)
    CLIENT.produce(world.server.bootstrap, world.topic, [Record(b"old", timestamp_ms=START_MS)], 1)

    eventually(lambda: query.trigger() is None and len(query.checkpoint.rows) == 3, "the record of the new partition")
    assert (1, 0) in {(row.partition, row.offset) for row in query.checkpoint.rows}
