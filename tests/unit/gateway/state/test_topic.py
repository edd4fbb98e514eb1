"""The gateway's topics: created once, checked, and never taken for empty when they are gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import pytest

from holdfast.coordinator.events.group_event import LEDGER_TOPIC
from holdfast.gateway.kafka.errors import KafkaUnreachable
from holdfast.gateway.state.topic import (
    GROUPS_TOPIC,
    StateTopicError,
    StateTopicMissing,
    StateTopicReplaced,
    open_state_topics,
)
from holdfast.wire.apis.create_topics import CreateTopicsRequest
from holdfast.wire.apis.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from holdfast.wire.error_codes import ErrorCode
from tests.unit.gateway.state.fake_kafka import FakeKafka, simulate


def run(scenario: Coroutine[Any, Any, None]) -> None:
    simulate(scenario)


@pytest.mark.parametrize(("nodes", "replicas", "in_sync"), [(1, 1, "1"), (2, 2, "1"), (3, 3, "2"), (9, 3, "2")])
def test_the_first_gateway_creates_both_topics(nodes: int, replicas: int, in_sync: str) -> None:
    async def scenario() -> None:
        kafka = FakeKafka(nodes)
        topics = await open_state_topics(kafka)
        assert (topics.groups.partition_count, topics.ledger.partition_count) == (32, 1)
        assert topics.groups.max_message_bytes == 8 << 20
        created = [one.topics[0] for one in kafka.requests if isinstance(one, CreateTopicsRequest)]
        assert [one.name for one in created] == [GROUPS_TOPIC, LEDGER_TOPIC], "the ledger last"
        assert [one.replication_factor for one in created] == [replicas] * 2
        configs = kafka.topics[GROUPS_TOPIC].configs
        assert configs["cleanup.policy"] == "compact"
        assert configs["min.insync.replicas"] == in_sync
        assert configs["unclean.leader.election.enable"] == "false"
        assert kafka.topics[LEDGER_TOPIC].configs["cleanup.policy"] == "delete"

    run(scenario())


def test_existing_topics_are_used_as_they_are() -> None:
    async def scenario() -> None:
        kafka = FakeKafka()
        groups = kafka.add_topic(GROUPS_TOPIC, 5, {"max.message.bytes": "777"})
        kafka.add_topic(LEDGER_TOPIC, 1)
        topics = await open_state_topics(kafka, create=True)
        assert (topics.groups.id, topics.groups.partition_count) == (groups.id, 5)
        assert topics.groups.max_message_bytes == 777
        assert not any(isinstance(one, CreateTopicsRequest) for one in kafka.requests)

    run(scenario())


def test_a_gateway_that_died_between_the_two_topics_creates_the_other_one() -> None:
    async def scenario() -> None:
        kafka = FakeKafka()
        groups = kafka.add_topic(GROUPS_TOPIC, 32)
        topics = await open_state_topics(kafka)
        assert topics.groups.id == groups.id
        assert LEDGER_TOPIC in kafka.topics

    run(scenario())


def test_a_log_that_has_vanished_is_not_created_again_unless_it_is_asked_for() -> None:
    async def scenario() -> None:
        kafka = FakeKafka(2)
        kafka.add_topic(LEDGER_TOPIC, 1)
        with pytest.raises(StateTopicMissing, match="--create-state"):
            await open_state_topics(kafka)
        assert GROUPS_TOPIC not in kafka.topics
        await open_state_topics(kafka, create=True)
        assert GROUPS_TOPIC in kafka.topics

    run(scenario())


def test_a_topic_that_a_broker_does_not_know_yet_is_not_missing() -> None:
    """Metadata of a broker that has just started, and of a topic that was created just now, is behind."""

    async def scenario() -> None:
        kafka = BehindKafka()
        known = kafka.add_topic(GROUPS_TOPIC, 32)
        kafka.add_topic(LEDGER_TOPIC, 1)
        assert (await open_state_topics(kafka)).groups.id == known.id

        kafka.behind = {0, 1}
        opening = asyncio.create_task(open_state_topics(kafka))
        await asyncio.sleep(0.3)
        kafka.behind = set()
        assert (await opening).groups.id == known.id, "CreateTopics is answered with TOPIC_ALREADY_EXISTS"

    run(scenario())


class BehindKafka(FakeKafka):
    """Some brokers do not know any topic yet."""

    def __init__(self) -> None:
        super().__init__(2)
        self.behind = {0}

    def handle(self, node_id: int, request: Any) -> Any:
        if node_id in self.behind and isinstance(request, MetadataRequest):
            assert request.topics is not None
            missing = [
                MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic.name) for topic in request.topics
            ]
            return MetadataResponse(topics=missing)
        return super().handle(node_id, request)


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_log_that_forgets_offsets_is_refused(policy: str) -> None:
    async def scenario() -> None:
        kafka = FakeKafka()
        kafka.add_topic(GROUPS_TOPIC, 32, {"cleanup.policy": policy})
        with pytest.raises(StateTopicError, match=f"cleanup.policy={policy}"):
            await open_state_topics(kafka)

    run(scenario())


def test_configs_that_risk_data_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        kafka = FakeKafka()
        kafka.add_topic(GROUPS_TOPIC, 32, {"unclean.leader.election.enable": "true"})
        await open_state_topics(kafka)

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert "unclean.leader.election.enable=true" in caplog.text


def test_a_topic_without_the_right_to_see_it_is_an_error_of_the_operator() -> None:
    class Forbidding(FakeKafka):
        def handle(self, node_id: int, request: Any) -> Any:
            if isinstance(request, MetadataRequest):
                return MetadataResponse(
                    topics=[MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, GROUPS_TOPIC)]
                )
            return super().handle(node_id, request)

    async def scenario() -> None:
        with pytest.raises(StateTopicError, match="TOPIC_AUTHORIZATION_FAILED"):
            await open_state_topics(Forbidding())

    run(scenario())


def test_another_topic_of_the_same_name_is_recognized() -> None:
    async def scenario() -> None:
        kafka = FakeKafka()
        groups = (await open_state_topics(kafka)).groups
        await groups.check_same_topic()
        known = kafka.topics.pop(GROUPS_TOPIC)
        await asyncio.sleep(2)
        with pytest.raises(StateTopicMissing):
            await groups.check_same_topic()
        kafka.add_topic(GROUPS_TOPIC, 32)
        with pytest.raises(StateTopicReplaced):
            await groups.check_same_topic()
        kafka.topics[GROUPS_TOPIC] = known
        await groups.check_same_topic()
        kafka.is_down = True
        await asyncio.sleep(2)
        with pytest.raises(KafkaUnreachable):
            await groups.check_same_topic()

    run(scenario())
