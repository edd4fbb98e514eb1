"""DeleteTopics; the expected answers are those of Apache Kafka 4.3, whose order is random."""

from collections.abc import Callable, Mapping

import pytest

from holdfast.log import disk
from holdfast.wire.apis.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from holdfast.wire.fields import ZERO_UUID
from tests.support.handler_broker import HandlerBroker

V6 = 6
NO_SUCH_ID = bytes(range(16))
NEITHER = "Neither topic name nor id were specified."
BOTH = "You may not specify both topic name and topic id."
TWICE_NAMED = "The provided topic name maps to an ID that was already supplied."


def delete(broker: HandlerBroker, *wanted: tuple[str | None, bytes]) -> list[DeletableTopicResult]:
    request = DeleteTopicsRequest([DeleteTopicState(name, topic_id) for name, topic_id in wanted], [], 1000)
    response = broker.ask(request, V6)
    assert response.throttle_time_ms == 0
    results: list[DeletableTopicResult] = response.responses
    return results


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_old_versions_delete_by_name(broker: HandlerBroker, version: int) -> None:
    broker.topic("orders")

    response = broker.ask(DeleteTopicsRequest([], ["orders", "nope"], 1000), version)

    assert response == DeleteTopicsResponse(
        0, [DeletableTopicResult("nope", error_code=3), DeletableTopicResult("orders")]
    )
    assert len(broker.topics) == 0


def test_v5_says_what_was_wrong(broker: HandlerBroker) -> None:
    response = broker.ask(DeleteTopicsRequest([], ["nope"], 1000), 5)

    message = "This server does not host this topic-partition."
    assert response == DeleteTopicsResponse(0, [DeletableTopicResult("nope", error_code=3, error_message=message)])


def test_by_name_and_by_id(broker: HandlerBroker) -> None:
    one, two, three = broker.topic("one"), broker.topic("two"), broker.topic("three")

    results = delete(broker, ("one", ZERO_UUID), (None, two.id))

    assert results == [DeletableTopicResult("two", two.id), DeletableTopicResult("one", one.id)]
    broker.restart_after_kill()
    assert [topic.id for topic in broker.topics] == [three.id]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([("nope", ZERO_UUID)], [("nope", ZERO_UUID, 3, "This server does not host this topic-partition.")]),
        ([(None, NO_SUCH_ID)], [(None, NO_SUCH_ID, 100, "This server does not host this topic ID.")]),
        ([(None, ZERO_UUID)] * 2, [(None, ZERO_UUID, 42, NEITHER)] * 2),
        ([("orders", NO_SUCH_ID)], [("orders", NO_SUCH_ID, 42, BOTH)]),
        ([("orders", ZERO_UUID)] * 2, [("orders", ZERO_UUID, 42, "Duplicate topic name.")]),
        ([(None, NO_SUCH_ID)] * 2, [(None, NO_SUCH_ID, 42, "Duplicate topic id.")]),
    ],
)
def test_what_is_not_exactly_one_topic_is_refused(
    broker: HandlerBroker, wanted: list[tuple[str | None, bytes]], expected: list[tuple[str | None, bytes, int, str]]
) -> None:
    broker.topic("orders")

    assert delete(broker, *wanted) == [DeletableTopicResult(*one) for one in expected]
    assert broker.topics.get("orders") is not None


def test_a_topic_given_by_name_and_by_id_stays(broker: HandlerBroker) -> None:
    topic = broker.topic("orders")

    results = delete(broker, ("orders", ZERO_UUID), (None, topic.id))

    assert results == [DeletableTopicResult("orders", topic.id, 42, TWICE_NAMED)]
    assert broker.topics.get("orders") is topic


@pytest.mark.parametrize(("version", "code"), [(1, 42), (3, 73), (4, 73)])
def test_no_topic_is_deleted_if_deletion_is_disabled(
    broker_with: Callable[[Mapping[str, str]], HandlerBroker], version: int, code: int
) -> None:
    broker = broker_with({"delete.topic.enable": "false"})
    broker.topic("orders")

    response = broker.ask(DeleteTopicsRequest([], ["orders"], 1000), version)

    assert response == DeleteTopicsResponse(0, [DeletableTopicResult("orders", error_code=code)])
    assert broker.topics.get("orders") is not None


def test_a_topic_that_cannot_be_written_off_stays(broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = broker.topic("orders")

    def full(point: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "fault", full)
    (result,) = delete(broker, ("orders", ZERO_UUID))
    monkeypatch.setattr(disk, "fault", None)

    assert (result.name, result.topic_id, result.error_code) == ("orders", topic.id, 56)
    assert broker.topics.get("orders") is topic


def test_what_the_broker_keeps_of_groups_is_not_deleted(broker: HandlerBroker) -> None:
    group_log, ledger = broker.topic("__consumer_offsets"), broker.topic("__group_ledger")

    results = delete(broker, ("__consumer_offsets", ZERO_UUID), ("__group_ledger", ZERO_UUID))

    message = "Deletion of internal topic {} is prohibited."
    assert results == [
        DeletableTopicResult("__consumer_offsets", group_log.id, 17, message.format("__consumer_offsets")),
        DeletableTopicResult("__group_ledger", ledger.id, 17, message.format("__group_ledger")),
    ]
    assert list(broker.topics) == [group_log, ledger]
