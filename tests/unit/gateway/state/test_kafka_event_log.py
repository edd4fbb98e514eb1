"""Events of groups in Kafka: in order, once, and never more of them than fit in memory."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from holdfast.broker.groups.event_log import MAX_PENDING
from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.events.group_event import LEDGER_TOPIC, EventKind, GroupEvent
from holdfast.gateway.state.kafka_event_log import KafkaEventLog
from holdfast.gateway.state.topic import FoundTopic, StateTopic
from holdfast.wire.error_codes import ErrorCode
from tests.unit.gateway.state.fake_kafka import FakeKafka, Faults, RandomFaults, simulate


def events(*generations: int) -> list[GroupEvent]:
    cause = Cause(CauseCode.MEMBER_JOINED)
    return [
        GroupEvent(kind=EventKind.ASSIGNED, group_id="g", at_ms=1, generation=one, epoch=0, cause=cause)
        for one in generations
    ]


class World:
    def __init__(self) -> None:
        self.kafka = FakeKafka(2)
        topic = self.kafka.add_topic(LEDGER_TOPIC, 1)
        self.partition = topic.partitions[0]
        self.log = KafkaEventLog(self.kafka, StateTopic(self.kafka, LEDGER_TOPIC, FoundTopic(topic.id, 1, 1), 1 << 20))

    @property
    def batches(self) -> list[list[int]]:
        return [[json.loads(value or b"")["generation"] for value in batch.values] for batch in self.partition.log]

    @property
    def stored(self) -> list[int]:
        return [generation for batch in self.batches for generation in batch]


def test_events_are_stored_in_order_and_joined_while_a_batch_is_in_flight() -> None:
    class Slow(Faults):
        def delay_s(self) -> float:
            return 0.01

    async def scenario() -> None:
        world = World()
        world.kafka.faults = Slow()
        world.log.write(events(1), 1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for generation in range(2, 30):
            world.log.write(events(generation), 1)
        await world.log.close()
        assert world.batches == [[1], list(range(2, 30))]

    simulate(scenario())


@pytest.mark.parametrize("seed", range(20))
def test_events_are_stored_once_whatever_is_lost(seed: int) -> None:
    async def scenario() -> None:
        world = World()
        world.kafka.faults = faults = RandomFaults(seed, rate=0.2)
        for generation in range(100):
            world.log.write(events(generation), 1)
            world.partition.leader = faults.random.choice([0, 0, 0, 1])
            await asyncio.sleep(faults.delay_s())
        faults.stop()
        await asyncio.sleep(30)
        await world.log.close()
        assert world.stored == list(range(100))

    simulate(scenario())


def test_the_oldest_events_are_dropped_when_too_many_wait(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        world = World()
        world.kafka.is_down = True
        for generation in range(MAX_PENDING + 500):
            world.log.write(events(generation), 1)
        await asyncio.sleep(60)
        world.kafka.is_down = False
        await asyncio.sleep(60)
        assert world.stored == list(range(500, MAX_PENDING + 500))
        await world.log.close()

    with caplog.at_level(logging.ERROR):
        simulate(scenario())
    assert len(caplog.records) == 2, "when it begins, and how many there were"
    assert "500 group events were not stored" in caplog.text


def test_after_kafka_has_forgotten_the_producer_events_are_stored_with_another_one() -> None:
    async def scenario() -> None:
        world = World()
        world.log.write(events(1), 1)
        await asyncio.sleep(1)
        for state in world.partition.producers.values():
            state.batches[-1] = (5, 5, 5)
        world.log.write(events(2), 1)
        await world.log.close()
        assert world.stored == [1, 2]

    simulate(scenario())


def test_a_batch_that_kafka_rejects_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    class RejectsFirst(Faults):
        is_first = True

        def before(self, request: Any) -> ErrorCode | None:
            if not (self.is_first and isinstance(request, bytes)):
                return None
            self.is_first = False
            return ErrorCode.MESSAGE_TOO_LARGE

    async def scenario() -> None:
        world = World()
        world.kafka.faults = RejectsFirst()
        world.log.write(events(1), 1)
        await asyncio.sleep(1)
        world.log.write(events(2), 1)
        await world.log.close()
        assert world.stored == [2]

    with caplog.at_level(logging.ERROR):
        simulate(scenario())
    assert "1 group events are not stored: Kafka answers MESSAGE_TOO_LARGE" in caplog.text


def test_closing_gives_up_on_a_kafka_that_is_down(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        world = World()
        world.kafka.is_down = True
        world.log.write(events(1), 1)
        world.log.write(events(2), 1)
        await world.log.close()

    with caplog.at_level(logging.ERROR):
        simulate(scenario())
    assert "2 group events are not stored: the gateway stops" in caplog.text
