"""DescribeLogDirs; what Apache Kafka 4.3 answers, `tests/kafka_parity/test_admin_like_kafka.py` compares."""

import asyncio
import shutil
from collections.abc import Mapping, Sequence

import pytest

from holdfast.wire.apis.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from tests.support.handler_broker import HandlerBroker

KAFKA_STORAGE_ERROR = 56


def sizes(response: DescribeLogDirsResponse) -> Mapping[tuple[str, int], int]:
    (directory,) = response.results
    found = [
        (topic.name, one.partition_index, one.partition_size) for topic in directory.topics for one in topic.partitions
    ]
    assert len({(name, index) for name, index, _ in found}) == len(found), "a partition is described twice"
    return {(name, index): size for name, index, size in found}


def asked(*topics: tuple[str, Sequence[int]]) -> DescribeLogDirsRequest:
    return DescribeLogDirsRequest([DescribableLogDirTopic(name, list(indexes)) for name, indexes in topics])


def test_every_partition_has_the_size_of_its_segments(broker: HandlerBroker) -> None:
    filled = broker.topic("filled", 2, {"segment.bytes": "1048576"})
    broker.topic("empty")
    broker.append(filled, [1000, 2000], partition=1)
    on_disk = sum(path.stat().st_size for path in (broker.directory / "filled-1").glob("*.log"))

    response = broker.ask(DescribeLogDirsRequest(None), 5)

    assert sizes(response) == {("filled", 0): 0, ("filled", 1): on_disk, ("empty", 0): 0}
    assert on_disk > 0
    (directory,) = response.results
    assert directory.log_dir == str(broker.directory.absolute())
    assert (directory.error_code, directory.is_cordoned) == (0, False)
    assert {(one.offset_lag, one.is_future_key) for topic in directory.topics for one in topic.partitions} == {
        (0, False)
    }


@pytest.mark.parametrize("version", range(1, 6))
def test_the_room_on_the_volume_is_shown_from_v4_on(broker: HandlerBroker, version: int) -> None:
    (directory,) = broker.ask(DescribeLogDirsRequest([]), version).results

    if version < 4:
        assert (directory.total_bytes, directory.usable_bytes) == (-1, -1)
    else:
        assert directory.total_bytes == shutil.disk_usage(broker.directory).total
        assert 0 < directory.usable_bytes <= directory.total_bytes


def test_what_was_asked_for_is_described_once_and_the_unknown_left_out(broker: HandlerBroker) -> None:
    broker.topic("a", 3)
    broker.topic("b")

    request = asked(("a", [2, 0, 2, 9, -1]), ("nope", [0]), ("a", [0, 1]), ("b", []))

    assert sizes(broker.ask(request, 5)) == {("a", 0): 0, ("a", 1): 0, ("a", 2): 0}
    assert sizes(broker.ask(asked(), 5)) == {}


def test_a_log_at_rest_is_measured_and_stays_at_rest(broker: HandlerBroker) -> None:
    topic = broker.topic("filled", 2)
    broker.append(topic, [1000, 2000], partition=1)
    before = sizes(broker.ask(DescribeLogDirsRequest(None), 5))
    broker.restart()
    logs = [partition.log for partition in broker.topics.partitions()]
    assert all(not log.is_loaded for log in logs)

    assert sizes(broker.ask(DescribeLogDirsRequest(None), 5)) == before

    assert before["filled", 1] > 0
    assert all(not log.is_loaded for log in logs)


def test_a_topic_that_was_deleted_meanwhile_is_left_out(broker: HandlerBroker) -> None:
    broker.topic("stays")
    gone = broker.topic("gone")
    broker.restart()
    found = broker.topics.get("gone")
    assert found is not None
    assert found.id == gone.id
    asyncio.run(broker.topics.delete(found))
    broker.topics._publish(found)  # as it is for one who looked before the deletion

    assert sizes(broker.ask(DescribeLogDirsRequest(None), 5)) == {("stays", 0): 0}


def test_a_directory_that_cannot_be_read_is_a_storage_error(
    broker: HandlerBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.topic("a")
    broker.directory.rename(broker.directory.with_name("elsewhere"))
    try:
        response = broker.ask(DescribeLogDirsRequest(None), 5)
    finally:
        broker.directory.with_name("elsewhere").rename(broker.directory)

    assert response.results == [DescribeLogDirsResult(KAFKA_STORAGE_ERROR, str(broker.directory.absolute()))]
    assert "cannot describe" in caplog.text
