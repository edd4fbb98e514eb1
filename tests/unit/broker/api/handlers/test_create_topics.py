"""CreateTopics; the expected answers are those of Apache Kafka 4.3."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from holdfast.broker.config.describe import topic_entries
from holdfast.log import disk
from holdfast.wire.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreatableTopicResultConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from holdfast.wire.fields import ZERO_UUID
from tests.support.handler_broker import HandlerBroker

V7 = 7
UNABLE = (
    "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached because only "
    "1 broker(s) are registered or some brokers have all their log directories cordoned."
)
CHARACTERS = "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"


def wanted(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    assignments: Sequence[tuple[int, list[int]]] = (),
    configs: Sequence[tuple[str, str | None]] = (),
) -> CreatableTopic:
    return CreatableTopic(
        name,
        partitions,
        replicas,
        [CreatableReplicaAssignment(index, brokers) for index, brokers in assignments],
        [CreatableTopicConfig(config, value) for config, value in configs],
    )


def create(broker: HandlerBroker, *topics: CreatableTopic, version: int = V7, validate_only: bool = False) -> Any:
    return broker.ask(CreateTopicsRequest(list(topics), 10_000, validate_only), version)


def refusal(name: str, code: int, message: str) -> CreateTopicsResponse:
    return CreateTopicsResponse(0, [CreatableTopicResult(name, ZERO_UUID, code, message)])


def test_a_topic_is_created_and_shown_with_its_id_and_configs(broker: HandlerBroker) -> None:
    response = create(broker, wanted("orders", 3, configs=[("retention.ms", "5000")]))

    topic = broker.topics.get("orders")
    assert topic is not None and len(topic.partitions) == 3 and topic.overrides == {"retention.ms": "5000"}
    configs = [
        CreatableTopicResultConfig(entry.name, entry.value, False, entry.source, False)
        for entry in topic_entries(broker.config, {"retention.ms": "5000"})
    ]
    assert CreatableTopicResultConfig("retention.ms", "5000", False, 1, False) in configs
    expected = CreatableTopicResult("orders", topic.id, 0, None, 0, 3, 1, configs)
    assert response == CreateTopicsResponse(0, [expected])


@pytest.mark.parametrize("version", [2, 3, 4])
def test_old_versions_say_only_whether_it_worked(broker: HandlerBroker, version: int) -> None:
    response = create(broker, wanted("orders"), version=version)

    assert response == CreateTopicsResponse(0, [CreatableTopicResult("orders", error_message=None)])
    assert broker.topics.get("orders") is not None


def test_minus_one_takes_the_brokers_defaults(broker_with: Callable[[Mapping[str, str]], HandlerBroker]) -> None:
    broker = broker_with({"num.partitions": "4"})

    (result,) = create(broker, wanted("orders", -1, -1)).topics

    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 4, 1)


def test_validate_only_creates_nothing(broker: HandlerBroker) -> None:
    (result,) = create(broker, wanted("orders", 2), validate_only=True).topics

    assert (result.error_code, result.num_partitions, len(result.configs)) == (0, 2, 33)
    assert broker.topics.get("orders") is None


@pytest.mark.parametrize("validate_only", [False, True])
def test_an_existing_topic_is_refused_whatever_else_is_wrong(broker: HandlerBroker, validate_only: bool) -> None:
    broker.topic("my.orders")

    response = create(broker, wanted("my.orders", 0, 0, configs=[("no.such", "1")]), validate_only=validate_only)

    assert response == refusal("my.orders", 36, "Topic 'my.orders' already exists.")


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (wanted("t", 0), 37, "Number of partitions was set to an invalid non-positive value."),
        (wanted("t", -2), 37, "Number of partitions was set to an invalid non-positive value."),
        (wanted("t", 1, 2), 38, UNABLE),
        (wanted("t", 0, 0), 38, "Replication factor must be larger than 0, or -1 to use the default value."),
        (wanted("t", 1, -2), 38, "Replication factor must be larger than 0, or -1 to use the default value."),
        (wanted("t", 0, 0, configs=[("no.such", "1")]), 40, "Unknown topic config name: no.such"),
        (
            wanted("t", configs=[("retention.ms", "abc")]),
            40,
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        (
            wanted("t", configs=[("a.b", None), ("retention.ms", None)]),
            40,
            "Null value not supported for topic configs: a.b,retention.ms",
        ),
        (wanted("", 1), 17, "Topic name is invalid: the empty string is not allowed"),
        (wanted("a b", 1), 17, f"Topic name is invalid: 'a b' {CHARACTERS}"),
        (wanted("t", 10_001), 44, "Excessively large number of partitions per request."),
        (
            wanted("__cluster_metadata"),
            42,
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
        (wanted("__consumer_offsets", 1), 17, "Creation of internal topic __consumer_offsets is prohibited."),
        (wanted("__group_ledger", 1), 17, "Creation of internal topic __group_ledger is prohibited."),
    ],
)
def test_a_topic_that_cannot_be_is_refused(
    broker: HandlerBroker, topic: CreatableTopic, code: int, message: str
) -> None:
    assert create(broker, topic) == refusal(topic.name, code, message)
    assert len(broker.topics) == 0


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (
            wanted("t", 2, 1, [(0, [1])]),
            42,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            wanted("t", 2, -1, [(0, [1])]),
            42,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            wanted("t", -1, -1, [(0, [9, 1])]),
            39,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            wanted("t", -1, -1, [(0, [1, 1, 9])]),
            39,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (wanted("t", -1, -1, [(0, [])]), 39, "The manual partition assignment includes an empty replica list."),
        (wanted("t", -1, -1, [(1, [1])]), 39, "partitions should be a consecutive 0-based integer sequence"),
        (
            wanted("t", -1, -1, [(0, [1]), (0, [1])]),
            39,
            "Found multiple manual partition assignments for partition 0",
        ),
    ],
)
def test_an_assignment_that_one_broker_cannot_keep_is_refused(
    broker: HandlerBroker, topic: CreatableTopic, code: int, message: str
) -> None:
    assert create(broker, topic) == refusal("t", code, message)


def test_an_assignment_to_this_broker_is_kept(broker: HandlerBroker) -> None:
    (result,) = create(broker, wanted("t", -1, -1, [(1, [1]), (0, [1])])).topics

    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 1)


def test_of_a_config_given_twice_the_last_counts(broker: HandlerBroker) -> None:
    create(broker, wanted("t", configs=[("retention.ms", "1"), ("retention.ms", "2")]))

    topic = broker.topics.get("t")
    assert topic is not None and topic.overrides == {"retention.ms": "2"}


def test_a_name_that_differs_only_in_dots_and_underscores_is_refused(broker: HandlerBroker) -> None:
    broker.topic("a.b_c")

    assert create(broker, wanted("a_b.c")) == refusal("a_b.c", 17, "Topic 'a_b.c' collides with existing topic: a.b_c")
    assert create(broker, wanted("a-b-c")).topics[0].error_code == 0


def test_a_name_asked_for_twice_is_created_not_even_once(broker: HandlerBroker) -> None:
    response = create(broker, wanted("twice"), wanted("once"), wanted("twice"), version=4)

    assert response == CreateTopicsResponse(
        0,
        [
            CreatableTopicResult("once", error_message=None),
            CreatableTopicResult("twice", error_code=42, error_message="Duplicate topic name."),
        ],
    )
    assert [topic.name for topic in broker.topics] == ["once"]


def test_of_two_clients_that_create_the_same_topic_one_gets_topic_already_exists(broker: HandlerBroker) -> None:
    async def both() -> tuple[Any, Any]:
        request = CreateTopicsRequest([wanted("orders")])
        return await asyncio.gather(broker.answer(request, V7), broker.answer(request, V7))

    responses = asyncio.run(both())

    assert sorted(response.topics[0].error_code for response in responses) == [0, 36]


def test_a_disconnected_client_leaves_no_partial_topic(broker: HandlerBroker) -> None:
    async def ask_and_leave() -> None:
        asking = asyncio.create_task(broker.answer(CreateTopicsRequest([wanted("one"), wanted("two")]), V7))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        this = asyncio.current_task()
        await asyncio.wait([task for task in asyncio.all_tasks() if task is not this], timeout=20)

    asyncio.run(ask_and_leave())

    broker.restart_after_kill()
    assert [topic.name for topic in broker.topics] == ["one", "two"]


def test_a_full_disk_is_a_storage_error_of_that_topic(broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(point: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "fault", full)
    (result,) = create(broker, wanted("orders")).topics

    assert (result.error_code, broker.topics.get("orders")) == (56, None)
    assert "No space left on device" in result.error_message
    monkeypatch.setattr(disk, "fault", None)
    assert create(broker, wanted("orders")).topics[0].error_code == 0
