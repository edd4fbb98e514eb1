"""Thousands of partitions: a start and a stop cost what is used, and files stay open only so many."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.wire.apis.describe_log_dirs import DescribeLogDirsRequest
from holdfast.wire.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.broker.many_partitions import PARTITIONS_OF_A_TOPIC, RECORD, make_data
from tests.broker.wire_client import WireClient, batch
from tests.support.holdfast_broker import HoldfastBroker

LATEST = -1
MEGABYTE = 1024 * 1024


@dataclass
class Cost:
    """What a running broker costs."""

    start_seconds: float
    memory_bytes: int

    @classmethod
    def of(cls, broker: HoldfastBroker) -> Cost:
        pages = int(Path(f"/proc/{broker.pid}/statm").read_text().split()[1])
        return cls(broker.started_in_seconds, pages * os.sysconf("SC_PAGE_SIZE"))


def log_files(broker: HoldfastBroker) -> int:
    """How many segment files the broker has open."""
    found = 0
    for link in Path(f"/proc/{broker.pid}/fd").iterdir():
        try:
            found += link.readlink().stem.isdecimal()
        except FileNotFoundError:
            continue
    return found


def cost_without_partitions() -> Cost:
    with HoldfastBroker() as broker:
        return Cost.of(broker)


def ends(client: WireClient, keys: list[tuple[str, int]]) -> Iterator[int]:
    by_topic: dict[str, list[ListOffsetsPartition]] = {}
    for topic, index in keys:
        by_topic.setdefault(topic, []).append(ListOffsetsPartition(index, -1, LATEST))
    topics = [ListOffsetsTopic(topic, wanted) for topic, wanted in by_topic.items()]
    answer = client.ask(ListOffsetsRequest(-1, 0, topics, 2000), 7)
    return (found.offset for topic in answer.topics for found in topic.partitions)


def test_unused_partitions_cost_no_file_and_are_all_there(tmp_path: Path) -> None:
    # given a thousand partitions
    keys = make_data(tmp_path / "data", PARTITIONS_OF_A_TOPIC)

    with HoldfastBroker(directory=tmp_path) as broker, WireClient(broker.address) as client:
        # then a start opens none of them, and their ends are known without it
        assert log_files(broker) == 0
        assert set(ends(client, keys)) == {1}
        assert log_files(broker) == 0

        # nor does looking at their sizes open one
        (directory,) = client.ask(DescribeLogDirsRequest(None), 5).results
        sizes = {
            (topic.name, one.partition_index): one.partition_size
            for topic in directory.topics
            for one in topic.partitions
        }
        assert sizes == dict.fromkeys(keys, len(batch(RECORD)))
        assert log_files(broker) == 0

        # and one that is used is read, written and open
        assert client.produce("many-000", batch(b"another"), partition=7).base_offset == 1
        assert [record.value for record in client.fetch_all("many-000", partition=7)] == [RECORD, b"another"]
        assert log_files(broker) == 1

        # when the broker stops, it is done soon
        began = time.monotonic()
        broker.stop()
        assert time.monotonic() - began < 5


def test_a_broker_with_few_files_serves_every_partition(tmp_path: Path) -> None:
    # given a broker that was killed, whose next start must look into each of a thousand partitions
    keys = make_data(tmp_path / "data", PARTITIONS_OF_A_TOPIC)
    (tmp_path / "data" / ".kafka_cleanshutdown").unlink()

    # when it may have fewer files open than there are partitions
    with HoldfastBroker(directory=tmp_path, file_limit=256) as broker, WireClient(broker.address) as client:
        # then all of them are written and read
        for _, index in keys:
            assert client.produce("many-000", batch(b"second"), partition=index).error_code == 0
        for _, index in keys:
            assert [record.value for record in client.fetch_all("many-000", partition=index)] == [RECORD, b"second"]
        assert 0 < log_files(broker) <= 128


@pytest.mark.real
@pytest.mark.timeout(300)
def test_ten_thousand_partitions_start_within_two_seconds_and_200_mb(tmp_path: Path) -> None:
    keys = make_data(tmp_path / "data", 10_000)
    nothing = cost_without_partitions()

    with HoldfastBroker(directory=tmp_path) as broker, WireClient(broker.address) as client:
        cost = Cost.of(broker)
        assert set(ends(client, keys)) == {1}
        began = time.monotonic()
        broker.stop()
        stopped_in_seconds = time.monotonic() - began

    assert cost.start_seconds - nothing.start_seconds < 2
    assert cost.memory_bytes - nothing.memory_bytes < 200 * MEGABYTE
    assert stopped_in_seconds < 5
