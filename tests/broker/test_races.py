"""Two things at once, on one broker in this process: what one does must not undo or stop the other."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.server import Broker
from holdfast.broker.storage.topics import Topic
from holdfast.log import StorageError
from tests.unit.log.samples import sample


@asynccontextmanager
async def running(path: Path, settings: dict[str, str] | None = None) -> AsyncIterator[Broker]:
    broker = Broker(BrokerConfig.of({"listeners": "PLAINTEXT://127.0.0.1:0", **(settings or {})}), path)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


async def created(broker: Broker, name: str, partitions: int = 1, overrides: dict[str, str] | None = None) -> Topic:
    topic = await broker.topics.create(name, partitions, overrides or {})
    assert topic is not None
    return topic


def append(topic: Topic, partition: int = 0) -> None:
    topic.partitions[partition].log.append(sample(), leader_epoch=0, now_ms=1_700_000_000_000)


def stored_topics(path: Path) -> dict[str, Any]:
    topics: dict[str, Any] = json.loads((path / "topics.json").read_text())["topics"]
    return topics


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


def test_growing_a_topic_that_is_being_deleted_does_not_bring_it_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            topic = await created(broker, "discarded")

            await asyncio.gather(broker.topics.delete(topic), broker.topics.grow(topic, 3), return_exceptions=True)

            assert "discarded" not in stored_topics(tmp_path)

    run(scenario())


def test_configuring_a_topic_that_is_being_deleted_does_not_bring_it_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            topic = await created(broker, "discarded")
            change = broker.topics.set_overrides(topic, {"retention.ms": "1000"})

            await asyncio.gather(broker.topics.delete(topic), change, return_exceptions=True)

            assert "discarded" not in stored_topics(tmp_path)

    run(scenario())


def test_two_growths_at_once_leave_the_larger(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            topic = await created(broker, "growing")

            await asyncio.gather(broker.topics.grow(topic, 5), broker.topics.grow(topic, 3), return_exceptions=True)

            assert len(topic.partitions) == 5
            assert stored_topics(tmp_path)["growing"]["partitions"] == 5, "two partitions are lost at the next start"

    run(scenario())


@pytest.mark.parametrize("flush", ["interval", "always"])
def test_a_topic_deleted_before_its_flush_does_not_stop_the_flushes_of_others(flush: str, tmp_path: Path) -> None:
    settings = {"flush": flush, "log.flush.interval.ms": "100"} if flush == "interval" else {"flush": flush}

    async def scenario() -> None:
        async with running(tmp_path, settings) as broker:
            discarded, kept = await created(broker, "discarded"), await created(broker, "kept")
            append(discarded)
            broker.flusher.appended(discarded.partitions[0])
            await broker.topics.delete(discarded)
            waiting = broker.flusher.flush(discarded.partitions[0])
            await asyncio.wait([waiting], timeout=1)

            append(kept)
            await asyncio.wait_for(broker.flusher.flush(kept.partitions[0]), 5)

            assert kept.partitions[0].log.recovery_point == 1

    run(scenario())


def test_checkpoints_written_from_several_threads_do_not_spoil_each_other(tmp_path: Path) -> None:
    # Housekeeping, DeleteRecords and the deletion of a topic all write them, each in a thread of its own.
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            topic = await created(broker, "cut", partitions=20)
            for partition in range(20):
                append(topic, partition)
                topic.partitions[partition].log.delete_records_before(1)
            failures: list[Exception] = []

            def write_often() -> None:
                try:
                    for _ in range(100):
                        broker.topics.write_checkpoints()
                except (StorageError, OSError) as error:
                    failures.append(error)

            await asyncio.gather(*(asyncio.to_thread(write_often) for _ in range(4)))

            assert failures == []

    run(scenario())


def test_topics_can_be_listed_from_a_thread_while_others_are_created(tmp_path: Path) -> None:
    # Retention and checkpoints go over all topics in worker threads.
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            await created(broker, "first")
            await created(broker, "second")
            listing = broker.topics.partitions()
            next(listing)

            await created(broker, "third")

            assert len(list(listing)) >= 1

    run(scenario())


def test_a_reader_whose_log_fails_does_not_fail_the_producer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.broker.wire_client import WireClient, batch, fetch_request

    async def scenario() -> None:
        async with running(tmp_path) as broker:
            topic = await created(broker, "shared")
            log = topic.partitions[0].log

            def parked_reader_and_producer() -> int:
                with WireClient(broker.address) as reader, WireClient(broker.address) as producer:
                    reader.send(fetch_request("shared", 0, max_wait_ms=30_000, min_bytes=100_000), 12)
                    while not topic.partitions[0].fetch_waiters:
                        producer.produce("other", batch(b"x"))
                    monkeypatch.setattr(type(log), "read", failing_read)
                    return producer.produce("shared", batch(b"news")).error_code

            assert await asyncio.to_thread(parked_reader_and_producer) == 0

    def failing_read(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    run(scenario())


def test_stopping_while_housekeeping_writes_is_still_a_clean_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    under_way, go_on = threading.Event(), threading.Event()

    async def scenario() -> None:
        async with running(tmp_path, {"log.retention.check.interval.ms": "1"}) as broker:
            await created(broker, "t")
            original = broker.topics.write_checkpoints

            def slow_work(*_: object) -> None:
                under_way.set()
                go_on.wait(2)
                original()

            monkeypatch.setattr(broker.log_maintenance, "apply_retention", slow_work)
            broker.log_maintenance._tasks.append(
                asyncio.create_task(broker.log_maintenance._every(lambda: 0.0, slow_work))
            )
            await asyncio.to_thread(under_way.wait, 10)
            asyncio.get_running_loop().call_later(0.3, go_on.set)
        assert (tmp_path / ".kafka_cleanshutdown").exists()
        still_running = [thread for thread in threading.enumerate() if thread.name.startswith("asyncio_")]
        assert go_on.is_set(), f"the data was closed under work that was still under way: {still_running}"

    run(scenario())


def test_two_brokers_started_on_one_port_report_it_in_one_sentence(tmp_path: Path) -> None:
    from holdfast.broker.server import BrokerError

    async def scenario() -> None:
        async with running(tmp_path / "first") as first:
            port = first.address[1]
        listeners = {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}
        brokers = [Broker(BrokerConfig.of(listeners), tmp_path / name) for name in ("a", "b")]
        outcomes = await asyncio.gather(*(broker.start() for broker in brokers), return_exceptions=True)
        for broker, outcome in zip(brokers, outcomes, strict=True):
            if outcome is None:
                await broker.stop()
        assert [type(outcome) for outcome in outcomes if outcome is not None] == [BrokerError]

    run(scenario())
