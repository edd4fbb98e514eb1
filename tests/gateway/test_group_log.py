"""The group log on a real Kafka: two gateways, a killed one, a killed broker, and producer ids that expire."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast.broker.groups.group_log import GroupLogError
from holdfast.coordinator.events.causes import Cause, CauseCode
from holdfast.coordinator.events.group_event import LEDGER_TOPIC, EventKind, GroupEvent
from holdfast.gateway.kafka.cluster import KafkaCluster
from holdfast.gateway.state.append_queue import WriterLimits
from holdfast.gateway.state.kafka_event_log import KafkaEventLog
from holdfast.gateway.state.log_reader import LogReader, split
from holdfast.gateway.state.producer import HIGHEST_EPOCH
from holdfast.gateway.state.topic import (
    GROUPS_TOPIC,
    StateTopicError,
    StateTopicMissing,
    StateTopicReplaced,
    open_state_topics,
)
from holdfast.wire.apis.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from holdfast.wire.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from holdfast.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import GroupRecord, OffsetCommitKey, OffsetCommitValue, partition_for
from holdfast.wire.offset_records import OffsetRecords
from holdfast.wire.records import decode_batch
from tests.gateway.appending_gateway import GROUPS, commit
from tests.gateway.group_log_gateway import NOW_MS, LogGateway, connected
from tests.support.apache_kafka import ApacheKafka
from tests.support.kafka_distribution import REPOSITORY
from tests.support.replaying_owner import until

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("apache_kafka_distribution"),
]

EXPIRY_S = 4
PARTITIONS = 32


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    """It forgets a transactional.id that was not used for four seconds."""
    properties = {
        "transactional.id.expiration.ms": str(EXPIRY_S * 1000),
        "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    }
    with ApacheKafka(properties) as own:
        yield own


@pytest.fixture
def empty(kafka: ApacheKafka) -> ApacheKafka:
    """Without the topics of a gateway."""

    async def delete() -> None:
        cluster = await connected(kafka.bootstrap)
        await delete_topics(cluster, GROUPS_TOPIC, LEDGER_TOPIC)
        await cluster.close()

    run(delete())
    return kafka


async def delete_topics(cluster: KafkaCluster, *names: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name) for name in names], timeout_ms=30_000)
    response = await cluster.ask_any(request)
    allowed = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert all(one.error_code in allowed for one in response.responses)
    while not await are_missing(cluster, names):  # noqa: ASYNC110  # the broker follows the controller
        await asyncio.sleep(0.05)


async def are_missing(cluster: KafkaCluster, names: Sequence[str]) -> bool:
    topics = [MetadataRequestTopic(name=name) for name in names]
    response = await cluster.ask_any(MetadataRequest(topics=topics, allow_auto_topic_creation=False))
    return all(one.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for one in response.topics)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 300))


def offset_of(record: GroupRecord) -> int:
    _, value = record
    assert isinstance(value, OffsetCommitValue)
    return value.offset


async def refused(gateway: LogGateway, record: GroupRecord) -> ErrorCode:
    with pytest.raises(GroupLogError) as raised:
        await gateway.append(record)
    return raised.value.code


# -- topics ------------------------------------------------------------------------------------------------------------


def test_the_topics_are_created_once_and_never_again_by_themselves(empty: ApacheKafka) -> None:
    async def scenario() -> None:
        cluster = await connected(empty.bootstrap)
        first = await open_state_topics(cluster)
        assert (first.groups.partition_count, first.ledger.partition_count) == (PARTITIONS, 1)
        assert first.groups.max_message_bytes == 8 << 20
        again = await open_state_topics(cluster, partitions=7)
        assert (again.groups.id, again.groups.partition_count) == (first.groups.id, PARTITIONS)
        await first.groups.check_same_topic()

        await delete_topics(cluster, GROUPS_TOPIC)
        await asyncio.sleep(1.1)
        with pytest.raises(StateTopicMissing):
            await first.groups.check_same_topic()
        with pytest.raises(StateTopicMissing, match="--create-state"):
            await open_state_topics(cluster)
        created = await open_state_topics(cluster, create=True)
        assert created.groups.id != first.groups.id
        with pytest.raises(StateTopicReplaced):
            await first.groups.check_same_topic()
        await cluster.close()

    run(scenario())


def test_a_topic_that_deletes_offsets_is_refused(empty: ApacheKafka) -> None:
    async def scenario() -> None:
        cluster = await connected(empty.bootstrap)
        configs = [CreatableTopicConfig("cleanup.policy", "compact,delete")]
        request = CreateTopicsRequest(topics=[CreatableTopic(GROUPS_TOPIC, 1, 1, configs=configs)])
        (created,) = (await cluster.ask_any(request)).topics
        assert created.error_code == ErrorCode.NONE
        with pytest.raises(StateTopicError, match=r"cleanup\.policy=compact,delete"):
            await open_state_topics(cluster)
        await cluster.close()

    run(scenario())


def test_a_log_that_is_deleted_while_the_gateway_runs_stops_it(empty: ApacheKafka) -> None:
    async def scenario() -> None:
        gateway = await LogGateway.started(empty.bootstrap)
        await gateway.owner.serving()
        await delete_topics(gateway.cluster, GROUPS_TOPIC)
        assert await refused(gateway, commit("g", 1)) is ErrorCode.NOT_COORDINATOR
        await until(lambda: bool(gateway.failures))
        assert "was deleted while the gateway was running" in gateway.failures[0]
        await gateway.close()

    run(scenario())


# -- fencing -----------------------------------------------------------------------------------------------------------


def test_the_second_gateway_fences_the_first_in_every_partition(empty: ApacheKafka) -> None:
    async def scenario() -> None:
        first = await LogGateway.started(empty.bootstrap)
        await first.owner.serving()
        await first.append(commit("g", 1))
        second = await LogGateway.started(empty.bootstrap)
        await second.owner.serving()
        assert second.replayed("g") == [commit("g", 1)]

        assert await refused(first, commit("g", 2)) is ErrorCode.NOT_COORDINATOR
        await until(lambda: len(first.fenced) == PARTITIONS)
        assert first.owner.served == set()
        await second.append(commit("g", 3))
        assert second.fenced == []
        await first.close()
        await second.close()

        third = await LogGateway.started(empty.bootstrap)
        await third.owner.serving()
        assert third.replayed("g") == [commit("g", 1), commit("g", 3)]
        await third.close()

    run(scenario())


def test_a_gateway_that_renews_keeps_its_producer_id_and_is_fenced_by_the_next_one(empty: ApacheKafka) -> None:
    async def scenario() -> None:
        first = await LogGateway.started(empty.bootstrap, WriterLimits(renewal_s=1))
        await first.owner.serving()
        partition = partition_for("g", PARTITIONS)
        before = first.log._writers[partition].producer
        for number in range(3 * EXPIRY_S):
            await first.append(commit("g", number))
            await asyncio.sleep(1)
        after = first.log._writers[partition].producer
        assert before is not None
        assert after is not None
        assert after.id == before.id
        assert after.epoch > before.epoch + 3
        second = await LogGateway.started(empty.bootstrap)
        await second.owner.serving()
        assert list(map(offset_of, second.replayed("g"))) == list(range(3 * EXPIRY_S))
        second_producer = second.log._writers[partition].producer
        assert second_producer is not None
        assert second_producer.id == before.id
        assert await refused(first, commit("g", 99)) is ErrorCode.NOT_COORDINATOR
        await first.close()
        await second.close()

    run(scenario())


def test_a_gateway_whose_transactional_id_has_expired_is_fenced_as_well(empty: ApacheKafka) -> None:
    async def scenario() -> None:
        first = await LogGateway.started(empty.bootstrap)
        await first.owner.serving()
        await first.append(commit("g", 1))
        partition = partition_for("g", PARTITIONS)
        before = first.log._writers[partition].producer
        await asyncio.sleep(EXPIRY_S + 3)
        second = await LogGateway.started(empty.bootstrap)
        await second.owner.serving()
        after = second.log._writers[partition].producer
        assert before is not None
        assert after is not None
        assert after.id != before.id, "the case that this test is about"
        assert after.epoch < HIGHEST_EPOCH

        assert await refused(first, commit("g", 2)) is ErrorCode.NOT_COORDINATOR
        await second.append(commit("g", 3))
        await first.close()
        await second.close()
        third = await LogGateway.started(empty.bootstrap)
        await third.owner.serving()
        assert third.replayed("g") == [commit("g", 1), commit("g", 3)]
        await third.close()

    run(scenario())


# -- crashes -----------------------------------------------------------------------------------------------------------


def test_after_kill_9_of_a_gateway_the_next_one_has_every_acknowledged_commit(empty: ApacheKafka) -> None:
    command = [sys.executable, "-m", "tests.gateway.appending_gateway", empty.bootstrap]
    acknowledged: dict[str, int] = defaultdict(lambda: -1)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "serving\n"
        until_s = time.monotonic() + 3
        while time.monotonic() < until_s:
            group, offset = process.stdout.readline().split()
            acknowledged[group] = int(offset)
        process.kill()
        for line in process.stdout.read().splitlines():
            group, _, offset = line.partition(" ")
            if offset:
                acknowledged[group] = int(offset)
    assert len(acknowledged) == GROUPS

    async def scenario() -> None:
        gateway = await LogGateway.started(empty.bootstrap)
        await gateway.owner.serving()
        stored: dict[str, list[int]] = defaultdict(list)
        for records in gateway.owner.records.values():
            for key, value in records:
                assert isinstance(key, OffsetCommitKey)
                assert isinstance(value, OffsetCommitValue)
                stored[key.group].append(value.offset)
        for group, last in acknowledged.items():
            offsets = stored[group]
            assert offsets == list(range(len(offsets))), "each commit once, and in order"
            assert last <= offsets[-1] <= last + 1, "all that is acknowledged, and at most one that is not"
        await gateway.close()

    run(scenario())


async def append_until(done: threading.Event, gateway: LogGateway, group: str) -> int:
    """Commits rising offsets. Returns the number of those that are acknowledged."""
    count = 0
    while not done.is_set():
        try:
            await gateway.append(commit(group, count))
        except GroupLogError as error:
            # The broker does not remember which batches it has, and the partition is replayed.
            assert error.code is ErrorCode.NOT_COORDINATOR
            await gateway.owner.serving()
            offsets = offsets_of(gateway, group)
            assert offsets in (list(range(count)), list(range(count + 1)))
            count = len(offsets)
        else:
            count += 1
    return count


def offsets_of(gateway: LogGateway, group: str) -> list[int]:
    return [offset_of(record) for record in gateway.replayed(group) if record[0] == commit(group, 0)[0]]


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_appends_wait_for_a_broker_that_is_restarted(empty: ApacheKafka, how: str) -> None:
    groups = [f"group-{number}" for number in range(40)]
    serving, done = threading.Event(), threading.Event()

    async def scenario() -> None:
        first = await LogGateway.started(empty.bootstrap)
        await first.owner.serving()
        serving.set()
        counts = await asyncio.gather(*[append_until(done, first, group) for group in groups])
        assert first.failures == []
        assert first.fenced == []
        await first.close()

        second = await LogGateway.started(empty.bootstrap)
        await second.owner.serving()
        for group, count in zip(groups, counts, strict=True):
            assert offsets_of(second, group) == list(range(count))
        await second.close()

    # Not the other way round: a broker ends with the thread that started it.
    with ThreadPoolExecutor(1) as executor:
        running = executor.submit(run, scenario())
        assert serving.wait(60)
        time.sleep(1)
        (empty.kill if how == "kill" else empty.stop)()
        empty.start()
        time.sleep(3)
        done.set()
        running.result(120)


# -- size --------------------------------------------------------------------------------------------------------------


def test_a_log_of_100_000_records_is_replayed_soon(empty: ApacheKafka) -> None:
    async def scenario() -> None:
        first = await LogGateway.started(empty.bootstrap)
        await first.owner.serving()
        began_s = time.monotonic()
        for round_number in range(10):
            appends = []
            for number in range(1_000):
                offsets = {
                    ("orders", partition): OffsetCommitValue(round_number, -1, "", NOW_MS) for partition in range(10)
                }
                records = OffsetRecords(f"group-{number}", offsets)
                appends.append(first.log.append(records.group_id, records, NOW_MS))
            await asyncio.gather(*appends)
        print(f"10,000 commits of 10 partitions stored in {time.monotonic() - began_s:.2f} s")
        await first.close()

        cluster = await connected(empty.bootstrap)
        began_s = time.monotonic()
        second = LogGateway(cluster, await open_state_topics(cluster), WriterLimits())
        await second.owner.serving()
        took_s = time.monotonic() - began_s
        print(f"100,000 records replayed in {took_s:.2f} s")
        assert sum(map(len, second.owner.records.values())) == 100_000
        assert took_s < 20, "two on a quiet machine"
        await second.close()

    run(scenario())


def test_events_are_stored_in_order(empty: ApacheKafka) -> None:
    async def scenario() -> None:
        cluster = await connected(empty.bootstrap)
        topics = await open_state_topics(cluster)
        log = KafkaEventLog(cluster, topics.ledger)
        for generation in range(50):
            log.write([event(generation)], NOW_MS)
            await asyncio.sleep(0.001 * (generation % 3))
        await log.close()

        reader = LogReader(cluster, topics.ledger, 0)
        records, _ = await reader.fetch(0)
        stored = [record.value for batch in split(records, 0) for record in decode_batch(batch.data)]
        assert [json.loads(value or b"")["generation"] for value in stored] == list(range(50))
        reader.close()
        await cluster.close()

    run(scenario())


def event(generation: int) -> GroupEvent:
    cause = Cause(CauseCode.MEMBER_JOINED)
    return GroupEvent(kind=EventKind.ASSIGNED, group_id="g", at_ms=1, generation=generation, epoch=0, cause=cause)
