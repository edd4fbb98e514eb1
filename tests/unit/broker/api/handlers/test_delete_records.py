"""DeleteRecords; the expected answers are those of Apache Kafka 4.3."""

import pytest

from holdfast.log import disk
from holdfast.wire.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from tests.support.handler_broker import HandlerBroker


def delete(broker: HandlerBroker, name: str, *cuts: tuple[int, int], version: int = 2) -> DeleteRecordsResponse:
    wanted = [DeleteRecordsPartition(index, offset) for index, offset in cuts]
    response: DeleteRecordsResponse = broker.ask(
        DeleteRecordsRequest([DeleteRecordsTopic(name, wanted)], 2000), version
    )
    return response


def answers(name: str, *results: tuple[int, int, int]) -> DeleteRecordsResponse:
    partitions = [DeleteRecordsPartitionResult(*result) for result in results]
    return DeleteRecordsResponse(0, [DeleteRecordsTopicResult(name, partitions)])


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(("offset", "start"), [(0, 0), (1, 1), (3, 3), (-1, 3)])
def test_the_partition_begins_later_even_after_a_kill(
    broker: HandlerBroker, version: int, offset: int, start: int
) -> None:
    topic = broker.topic("orders")
    broker.append(topic, [1000, 2000, 3000])

    response = delete(broker, "orders", (0, offset), version=version)

    assert response == answers("orders", (0, start, 0))
    broker.restart_after_kill()
    reloaded = broker.topics.get("orders")
    assert reloaded is not None
    assert (reloaded.partitions[0].log.start_offset, reloaded.partitions[0].log.end_offset) == (start, 3)


def test_the_start_offset_never_decreases(broker: HandlerBroker) -> None:
    topic = broker.topic("orders")
    broker.append(topic, [1000, 2000, 3000])
    delete(broker, "orders", (0, 2))

    assert delete(broker, "orders", (0, 1)) == answers("orders", (0, 2, 0))


@pytest.mark.parametrize(
    ("name", "index", "offset", "code"),
    [("orders", 0, 99, 1), ("orders", 0, -2, 1), ("orders", 9, 0, 3), ("nope", 0, 0, 3)],
)
def test_what_is_not_there_cannot_be_deleted(
    broker: HandlerBroker, name: str, index: int, offset: int, code: int
) -> None:
    broker.topic("orders")

    assert delete(broker, name, (index, offset)) == answers(name, (index, -1, code))


def test_a_topic_that_is_only_compacted_is_left_alone(broker: HandlerBroker) -> None:
    broker.topic("compacted", overrides={"cleanup.policy": "compact"})
    broker.topic("both", overrides={"cleanup.policy": "compact,delete"})

    assert delete(broker, "compacted", (0, 0)) == answers("compacted", (0, -1, 44))
    assert delete(broker, "both", (0, 0)) == answers("both", (0, 0, 0))


@pytest.mark.parametrize("name", ["__consumer_offsets", "__group_ledger"])
def test_records_of_internal_topics_are_not_deleted(broker: HandlerBroker, name: str) -> None:
    broker.topic(name)

    assert delete(broker, name, (0, 0)) == answers(name, (0, -1, 17))


def test_of_several_cuts_of_one_partition_the_last_counts(broker: HandlerBroker) -> None:
    topic = broker.topic("orders", 2)
    broker.append(topic, [1000, 2000])

    assert delete(broker, "orders", (0, 99), (1, 5), (0, 1)) == answers("orders", (0, 1, 0), (1, -1, 1))


def test_a_start_that_cannot_be_stored_is_not_acknowledged(
    broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topic("orders", 2)
    broker.append(topic, [1000, 2000])

    def full(point: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "fault", full)

    assert delete(broker, "orders", (0, 1), (1, 7)) == answers("orders", (0, -1, 56), (1, -1, 1))


def test_records_can_be_deleted_on_a_full_disk(broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the log starts is written into the reserve; that is what makes room."""
    topic = broker.topic("orders")
    broker.append(topic, [1000, 2000, 3000])
    seen: list[str] = []

    def no_room_but_in_the_reserve(point: str) -> None:
        if point == "half written" and seen[-3:] != ["renamed", "before create", "before write"]:
            raise OSError(28, "No space left on device")
        seen.append(point)

    monkeypatch.setattr(disk, "fault", no_room_but_in_the_reserve)
    response = delete(broker, "orders", (0, 2))
    monkeypatch.setattr(disk, "fault", None)

    assert response == answers("orders", (0, 2, 0))
    broker.restart_after_kill()
    reloaded = broker.topics.get("orders")
    assert reloaded is not None
    assert reloaded.partitions[0].log.start_offset == 2
