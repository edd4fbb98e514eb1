"""Events of groups: one batch for each iteration of the event loop, after the replies, and none is lost at the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path

import pytest

from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.groups.event_log import MAX_PENDING, MAX_PER_FLUSH, EventLogWriter
from holdfast.broker.server import Broker
from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.events.group_event import LEDGER_TOPIC, EventKind, GroupEvent
from holdfast.wire.records import decode_batch

SETTINGS = {"listeners": "PLAINTEXT://127.0.0.1:0"}


@asynccontextmanager
async def running(
    path: Path, settings: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[Broker, EventLogWriter]]:
    broker = Broker(BrokerConfig.of({**SETTINGS, **(settings or {})}), path)
    await broker.start()
    try:
        yield broker, EventLogWriter(broker.topics, broker.tasks, broker.flusher)
    finally:
        await broker.stop()


def events(*generations: int) -> list[GroupEvent]:
    cause = Cause(CauseCode.MEMBER_JOINED)
    return [
        GroupEvent(kind=EventKind.ASSIGNED, group_id="g", at_ms=1, generation=one, epoch=0, cause=cause)
        for one in generations
    ]


def batches(broker: Broker) -> list[list[int]]:
    """The generations that are written, batch by batch."""
    topic = broker.topics.get(LEDGER_TOPIC)
    if topic is None:
        return []
    found = [decode_batch(batch) for batch in topic.partitions[0].log.batches_from(0)]
    return [[json.loads(record.value or b"")["generation"] for record in batch] for batch in found]


def test_the_events_of_one_iteration_are_one_batch_that_is_written_after_its_replies(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as (broker, log):
            log.write(events(1), 1)
            await broker.tasks.join()  # the topic is made
            assert batches(broker) == [[1]]

            log.write(events(2, 3), 1)
            log.write(events(4), 1)
            when_replies_leave: list[list[list[int]]] = []
            asyncio.get_running_loop().call_soon(lambda: when_replies_leave.append(batches(broker)))
            await broker.tasks.join()
            assert when_replies_leave == [[[1]]]
            assert batches(broker) == [[1], [2, 3, 4]]

    asyncio.run(scenario())


def test_many_events_are_not_kept_for_the_next_turn(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as (broker, log):
            log.write(events(0), 1)
            await broker.tasks.join()

            log.write(events(*range(1, MAX_PER_FLUSH)), 1)
            assert len(batches(broker)) == 1
            log.write(events(MAX_PER_FLUSH), 1)
            assert batches(broker)[1] == [*range(1, MAX_PER_FLUSH + 1)]

    asyncio.run(scenario())


def test_events_wait_for_their_topic_and_are_written_before_the_broker_stops(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as (_, log):
            log.write(events(1), 1)
            log.write(events(*range(2, MAX_PER_FLUSH + 10)), 1)
        async with running(tmp_path) as (broker, _):
            assert [*chain(*batches(broker))] == [*range(1, MAX_PER_FLUSH + 10)]

    asyncio.run(scenario())


def test_events_are_stored_whatever_timestamps_the_broker_accepts(tmp_path: Path) -> None:
    """The clock was set back between two events of one batch."""

    async def scenario() -> None:
        async with running(tmp_path, {"log.message.timestamp.after.max.ms": "1000"}) as (broker, log):
            log.write(events(1), 10_000_000)
            log.write(events(2), 1)
            await broker.tasks.join()
            assert batches(broker) == [[1, 2]]

    asyncio.run(scenario())


def test_more_events_than_may_wait_for_the_topic_are_stored_if_it_exists(tmp_path: Path) -> None:
    many = range(1, MAX_PENDING + 2_000)

    async def scenario() -> None:
        async with running(tmp_path) as (broker, log):
            log.write(events(0), 1)
            await broker.tasks.join()
            log.write(events(*many), 1)
            await broker.tasks.join()
            assert [*chain(*batches(broker))] == [0, *many]

    asyncio.run(scenario())


def test_events_that_are_dropped_while_the_topic_is_created_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as (broker, log):
            log.write(events(*range(MAX_PENDING + 3)), 1)
            await broker.tasks.join()
            assert [*chain(*batches(broker))] == [*range(3, MAX_PENDING + 3)]

    asyncio.run(scenario())
    assert "3 group events are not stored" in caplog.text
