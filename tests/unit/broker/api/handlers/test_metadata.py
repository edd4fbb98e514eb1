"""Metadata; the expected answers are those of Apache Kafka 4.3."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from holdfast.broker.api.handlers import metadata as handler
from holdfast.broker.storage.topics import Topic
from holdfast.broker.util.slices import Work
from holdfast.wire.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast.wire.fields import OPERATIONS_NOT_REQUESTED, ZERO_UUID
from tests.support.handler_broker import HandlerBroker

V12 = 12
NO_SUCH_ID = bytes(range(16))


def by_name(*names: str | None, auto_create: bool = False, topic_operations: bool = False) -> MetadataRequest:
    return MetadataRequest(
        [MetadataRequestTopic(ZERO_UUID, name) for name in names], auto_create, False, topic_operations
    )


def by_id(*ids: bytes, topic_operations: bool = False) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(one, None) for one in ids], False, False, topic_operations)


def response(broker: HandlerBroker, topics: Sequence[MetadataResponseTopic]) -> MetadataResponse:
    this = MetadataResponseBroker(1, "broker.test", 9092, None)
    return MetadataResponse(0, [this], broker.cluster_id, 1, list(topics))


def shown(topic: Topic, operations: int = OPERATIONS_NOT_REQUESTED) -> MetadataResponseTopic:
    partitions = [MetadataResponsePartition(0, index, 1, 0, [1], [1], []) for index in range(len(topic.partitions))]
    return MetadataResponseTopic(0, topic.name, topic.id, False, partitions, operations)


def missing(name: str, code: int, operations: int = OPERATIONS_NOT_REQUESTED) -> MetadataResponseTopic:
    return MetadataResponseTopic(code, name, ZERO_UUID, False, [], operations)


@pytest.mark.parametrize("version", [12, 13])
def test_topics_are_shown_with_their_partitions(broker: HandlerBroker, version: int) -> None:
    one, two = broker.topic("one", 2), broker.topic("two")

    answer = broker.ask(by_name("two", "one"), version)

    assert answer == response(broker, [shown(two), shown(one)])


@pytest.mark.parametrize("version", range(14))
def test_every_version_has_its_way_to_ask_for_all(broker: HandlerBroker, version: int) -> None:
    topics = [broker.topic("one", 2), broker.topic("two")]

    answer = broker.ask(MetadataRequest([] if version == 0 else None), version)

    expected = response(broker, [shown(topic) for topic in topics])
    if version < 1:
        expected.controller_id = -1
    if version < 2:
        expected.cluster_id = None
    for topic in expected.topics:
        if version < 10:
            topic.topic_id = ZERO_UUID
        for partition in topic.partitions:
            if version < 7:
                partition.leader_epoch = -1
    assert answer == expected


def test_an_empty_list_asks_for_none(broker: HandlerBroker) -> None:
    broker.topic("one")

    assert broker.ask(by_name(auto_create=True), 1).topics == []


def test_the_rack_is_returned(broker: HandlerBroker) -> None:
    broker.rack = "cellar"

    assert broker.ask(by_name(), V12).brokers == [MetadataResponseBroker(1, "broker.test", 9092, "cellar")]


def test_what_is_unknown_comes_last_and_what_is_asked_twice_comes_once(broker: HandlerBroker) -> None:
    one = broker.topic("one")

    answer = broker.ask(by_name("nope", "a b", "one", "one", "", "nope"), V12)

    assert answer == response(broker, [shown(one), missing("nope", 3), missing("a b", 17), missing("", 17)])


@pytest.mark.parametrize("name", ["__consumer_offsets", "__group_ledger"])
def test_an_internal_topic_is_known_as_such_even_before_it_exists(broker: HandlerBroker, name: str) -> None:
    (before,) = broker.ask(by_name(name, auto_create=True), V12).topics
    assert (before.error_code, before.is_internal) == (3, True)
    assert broker.topics.get(name) is None

    broker.topic(name)
    (after,) = broker.ask(by_name(name), V12).topics
    assert (after.error_code, after.is_internal) == (0, True)


def test_operations_are_returned_on_request(broker: HandlerBroker) -> None:
    one = broker.topic("one")

    answer = broker.ask(by_name("one", "nope", topic_operations=True), V12)
    assert answer == response(broker, [shown(one, 3576), missing("nope", 3, 3576)])

    request = MetadataRequest([], False, include_cluster_authorized_operations=True)
    assert broker.ask(request, 8).cluster_authorized_operations == 8096


def test_by_id(broker: HandlerBroker) -> None:
    one, _ = broker.topic("one"), broker.topic("two")
    unknown = MetadataResponseTopic(100, None, NO_SUCH_ID, False, [])

    answer = broker.ask(by_id(one.id, NO_SUCH_ID, topic_operations=True), V12)

    assert answer == response(broker, [unknown, shown(one, 3576)])


def test_with_one_id_in_it_names_count_for_nothing(broker: HandlerBroker) -> None:
    one = broker.topic("one")
    broker.topic("two")
    wanted = [MetadataRequestTopic(ZERO_UUID, "two"), MetadataRequestTopic(one.id, None), MetadataRequestTopic()]

    assert broker.ask(MetadataRequest(wanted, False), V12) == response(broker, [shown(one)])


@pytest.mark.parametrize(
    ("wanted", "version", "code"),
    [
        (MetadataRequestTopic(ZERO_UUID, None), 13, -1),
        (MetadataRequestTopic(ZERO_UUID, None), 12, -1),
        (MetadataRequestTopic(NO_SUCH_ID, None), 11, 42),
        (MetadataRequestTopic(NO_SUCH_ID, "one"), 10, 42),
    ],
)
def test_what_cannot_be_meant_is_refused_as_a_whole(
    broker: HandlerBroker, wanted: MetadataRequestTopic, version: int, code: int
) -> None:
    refused = MetadataResponseTopic(code, wanted.name or "", wanted.topic_id)
    whole = code if version >= 13 else 0

    assert broker.ask(MetadataRequest([wanted], False), version) == MetadataResponse(topics=[refused], error_code=whole)


@pytest.mark.parametrize("version", [1, 3, 4, 12])
def test_asking_creates_the_topic_and_the_next_request_finds_it(
    broker_with: Callable[[Mapping[str, str]], HandlerBroker], version: int
) -> None:
    broker = broker_with({"num.partitions": "3"})
    request = by_name("fresh", auto_create=True)

    assert [topic.error_code for topic in broker.ask(request, version).topics] == [3]

    (found,) = broker.ask(request, version).topics
    assert (found.error_code, found.name, len(found.partitions)) == (0, "fresh", 3)


@pytest.mark.parametrize(
    ("settings", "request_"),
    [
        ({}, by_name("fresh", auto_create=False)),
        ({"auto.create.topics.enable": "false"}, by_name("fresh", auto_create=True)),
        ({"default.replication.factor": "3"}, by_name("fresh", auto_create=True)),
        ({}, by_name("a b", auto_create=True)),
        ({}, by_id(NO_SUCH_ID)),
    ],
)
def test_topics_are_created_only_if_the_client_wants_and_may(
    broker_with: Callable[[Mapping[str, str]], HandlerBroker], settings: Mapping[str, str], request_: MetadataRequest
) -> None:
    broker = broker_with(settings)

    broker.ask(request_, V12)

    assert len(broker.topics) == 0


def test_two_clients_that_create_the_same_topic_do_not_disturb_each_other(broker: HandlerBroker) -> None:
    async def both() -> tuple[Any, Any]:
        request = by_name("fresh", auto_create=True)
        return await asyncio.gather(broker.answer(request, V12), broker.answer(request, V12))

    answers = asyncio.run(both())

    assert list(answers) == [response(broker, [missing("fresh", 3)])] * 2
    assert [topic.name for topic in broker.topics] == ["fresh"]


def test_a_long_reply_made_elsewhere_says_the_same(broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = broker.topic("one", 3), broker.topic("two", 2)
    monkeypatch.setattr(handler, "MAX_PARTITIONS_ON_LOOP", 2)

    assert broker.ask(MetadataRequest(None), V12) == response(broker, [shown(one), shown(two)])
    assert broker.ask(by_id(NO_SUCH_ID, one.id), V12).topics == [
        MetadataResponseTopic(100, None, NO_SUCH_ID),
        shown(one),
    ]
    assert broker.ask(by_name("fresh", "one", auto_create=True), V12).topics == [shown(one), missing("fresh", 3)]


def test_a_kept_reply_is_given_up_when_a_topic_changes(broker: HandlerBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "MAX_PARTITIONS_ON_LOOP", 0)
    made = 0
    make = handler._response

    def counted(*arguments: Any) -> Work[MetadataResponse]:
        nonlocal made
        made += 1
        return make(*arguments)

    monkeypatch.setattr(handler, "_response", counted)
    one = broker.topic("one")
    everything = MetadataRequest(None)

    first = [broker.ask(everything, V12), broker.ask(everything, V12)]
    assert (first, made) == ([response(broker, [shown(one)])] * 2, 1)

    two = broker.topic("two")
    assert broker.ask(everything, V12) == response(broker, [shown(one), shown(two)])

    asyncio.run(broker.topics.grow(one, 2))
    assert broker.ask(everything, V12) == response(broker, [shown(one), shown(two)])

    asyncio.run(broker.topics.delete(one))
    again = broker.topic("one")
    assert broker.ask(everything, V12) == response(broker, [shown(two), shown(again)])
