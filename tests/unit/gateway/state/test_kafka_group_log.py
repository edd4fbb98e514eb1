"""The group log on a Kafka in memory: partitions are claimed, replayed and lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from holdfast.broker.groups.group_log import GroupLogError
from holdfast.gateway.state import log_reader
from holdfast.gateway.state.append_queue import idempotent_batch
from holdfast.gateway.state.claim import LOG_FORMAT
from holdfast.gateway.state.kafka_group_log import KafkaGroupLog
from holdfast.gateway.state.producer import HIGHEST_EPOCH, Producer
from holdfast.gateway.state.topic import FoundTopic, StateTopic
from holdfast.wire.apis.init_producer_id import InitProducerIdRequest
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import (
    ClaimKey,
    ClaimValue,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_claim,
    encode_record,
    partition_for,
)
from holdfast.wire.offset_records import OffsetRecords
from holdfast.wire.records import Record, encode_batch, encoded_record
from tests.support.replaying_owner import ReplayingOwner, until
from tests.unit.gateway.state.fake_kafka import FakeKafka, FakePartition, Faults, simulate

TOPIC = "__holdfast_groups"
NOW_MS = 1_700_000_000_000
PARTITIONS = 6


class Gateway:
    def __init__(self, kafka: FakeKafka, gateway_id: str = "gateway-1", *, owner: ReplayingOwner | None = None) -> None:
        self.kafka = kafka
        self.owner = owner or ReplayingOwner()
        self.failures: list[str] = []
        self.fenced: list[int] = []
        topic = kafka.topics[TOPIC]
        found = FoundTopic(topic.id, len(topic.partitions), 1)
        self.log = self.owner.log = KafkaGroupLog(
            kafka,
            StateTopic(kafka, TOPIC, found, 1 << 20),
            gateway_id=gateway_id,
            on_failed=self.failures.append,
            on_fenced=self.fenced.append,
        )
        self.log.start(self.owner)

    async def serving(self) -> None:
        await self.owner.serving()

    def append(self, group: str, *records: GroupRecord) -> asyncio.Future[None]:
        return self.log.append(group, records, NOW_MS)

    def replayed(self, group: str) -> list[GroupRecord]:
        return self.owner.records[partition_for(group, PARTITIONS)]


def fake_kafka() -> FakeKafka:
    kafka = FakeKafka(2)
    kafka.add_topic(TOPIC, PARTITIONS)
    return kafka


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


def commit(group: str, number: int, metadata: str = "") -> GroupRecord:
    return OffsetCommitKey(group, "orders", number), OffsetCommitValue(7 * number, -1, metadata, NOW_MS)


def partition_of(kafka: FakeKafka, group: str) -> FakePartition:
    return kafka.topics[TOPIC].partitions[partition_for(group, PARTITIONS)]


def test_a_new_log_serves_all_partitions_and_none_before_its_claim() -> None:
    async def scenario() -> None:
        gateway = Gateway(fake_kafka())
        assert gateway.owner.events == [("awaited", partition) for partition in range(PARTITIONS)]
        assert gateway.log.is_created
        await gateway.serving()

        assert [len(one.log) for one in gateway.kafka.topics[TOPIC].partitions] == [1] * PARTITIONS
        assert set(map(len, gateway.owner.records.values())) == {0}, "claims are no records of groups"
        await gateway.log.close()
        assert gateway.kafka.connections == []

    run(scenario())


def test_what_one_gateway_stores_the_next_one_replays() -> None:
    async def scenario() -> None:
        kafka = fake_kafka()
        first = Gateway(kafka)
        await first.serving()
        member = MemberMetadata("m-1", None, "c", "/h", 1, 2, b"s", b"a")
        group = (GroupMetadataKey("g"), GroupMetadataValue("consumer", 3, "range", "m-1", NOW_MS, [member]))
        offsets = {("orders", number): OffsetCommitValue(number, -1, "", NOW_MS) for number in range(3)}
        await first.append("g", group)
        await first.log.append("g", OffsetRecords("g", offsets), NOW_MS)
        await first.append("other", commit("other", 5, "with metadata"))
        await first.log.close()

        second = Gateway(kafka)
        await second.serving()
        assert second.replayed("g") == [group, *OffsetRecords("g", offsets)]
        assert second.replayed("other") == [commit("other", 5, "with metadata")]
        await second.log.close()

    run(scenario())


def test_a_large_log_is_read_in_several_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        kafka = fake_kafka()
        partition = partition_of(kafka, "g")
        for number in range(500):
            partition.write(encode_batch([Record(0, NOW_MS, b"\x7f\xff", b"of a kind that nobody knows")]))
            partition.write(_batch_of(commit("g", number)))
        monkeypatch.setattr(log_reader, "FETCH_BYTES", 1_500)

        gateway = Gateway(kafka)
        await gateway.serving()
        assert gateway.replayed("g") == [commit("g", number) for number in range(500)]
        await gateway.log.close()

    run(scenario())


def _batch_of(*records: GroupRecord) -> bytes:
    return encode_batch([Record(index, NOW_MS, *encode_record(*record)) for index, record in enumerate(records)])


def test_the_second_gateway_takes_over_and_the_first_does_not_claim_back() -> None:
    async def scenario() -> None:
        kafka = fake_kafka()
        first = Gateway(kafka)
        await first.serving()
        await first.append("g", commit("g", 1))
        second = Gateway(kafka, "gateway-2")
        await second.serving()

        with pytest.raises(GroupLogError) as raised:
            await first.append("g", commit("g", 2))
        assert raised.value.code is ErrorCode.NOT_COORDINATOR
        partition = partition_for("g", PARTITIONS)
        assert first.fenced[0] == partition
        assert ("lost", partition) in first.owner.events
        await until(lambda: first.owner.served == set())  # the others are asked at once
        assert first.failures == []
        with pytest.raises(GroupLogError):
            await first.append("g", commit("g", 3))
        await second.append("g", commit("g", 4))
        assert second.replayed("g") == [commit("g", 1)]
        await first.log.close()
        await second.log.close()

    run(scenario())


def test_a_replay_waits_for_kafka_and_never_ends_early() -> None:
    async def scenario() -> None:
        kafka = fake_kafka()
        first = Gateway(kafka)
        await first.serving()
        for number in range(20):
            await first.append("g", commit("g", number))
        await first.log.close()

        class Unsteady(Faults):
            fetches = 0

            def before(self, request: Any) -> ErrorCode | None:
                if not isinstance(request, int):
                    return None
                self.fetches += 1
                partition_of(kafka, "g").leader = self.fetches % 2
                return ErrorCode.LEADER_NOT_AVAILABLE if self.fetches % 3 == 0 else None

            def loses_response(self) -> bool:
                return self.fetches % 4 == 1

        kafka.faults = Unsteady()
        second = Gateway(kafka)
        await asyncio.sleep(0.3)
        kafka.faults = Faults()
        await second.serving()
        assert second.replayed("g") == [commit("g", number) for number in range(20)]
        await second.log.close()

    run(scenario())


def test_closing_ends_a_replay_that_waits_and_its_partition_is_not_served() -> None:
    async def scenario() -> None:
        kafka = fake_kafka()

        class NoFetch(Faults):
            def before(self, request: Any) -> ErrorCode | None:
                return ErrorCode.LEADER_NOT_AVAILABLE if isinstance(request, int) else None

        kafka.faults = NoFetch()
        gateway = Gateway(kafka)
        await until(lambda: ("gained", 0) in gateway.owner.events)
        await asyncio.sleep(0.05)
        await gateway.log.close()
        assert gateway.owner.served == set()
        assert gateway.owner.loads == {}

    run(scenario())


def test_the_start_of_the_log_may_be_above_zero() -> None:
    async def scenario() -> None:
        kafka = fake_kafka()
        partition = partition_of(kafka, "g")
        partition.write(_batch_of(commit("g", 1)))
        partition.write(_batch_of(commit("g", 2)))
        del partition.log[0]
        partition.start_offset = 1
        gateway = Gateway(kafka)
        await gateway.serving()
        assert gateway.replayed("g") == [commit("g", 2)]
        await gateway.log.close()

    run(scenario())


def test_unreadable_records_are_skipped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        kafka = fake_kafka()
        partition = partition_of(kafka, "g")
        partition.write(_batch_of(commit("g", 1)))
        partition.write(encode_batch([Record(0, NOW_MS, b"\x00\x01\x00\x01g", b"\x00\x03")]))
        partition.write(_batch_of(commit("g", 2)))
        gateway = Gateway(kafka)
        await gateway.serving()
        assert gateway.replayed("g") == [commit("g", 1), commit("g", 2)]
        await gateway.log.close()

    with caplog.at_level(logging.ERROR):
        run(scenario())
    assert [record.message for record in caplog.records] == ["unreadable group records skipped"]


def test_after_a_sequence_number_that_kafka_did_not_expect_the_partition_is_replayed() -> None:
    async def scenario() -> None:
        kafka = fake_kafka()
        gateway = Gateway(kafka)
        await gateway.serving()
        await gateway.append("g", commit("g", 1))
        partition = partition_of(kafka, "g")
        for state in partition.producers.values():
            state.batches[-1] = (50, 50, 50)  # as if the log had other batches than the gateway knows

        with pytest.raises(GroupLogError) as raised:
            await gateway.append("g", commit("g", 2))
        assert raised.value.code is ErrorCode.NOT_COORDINATOR
        await gateway.serving()
        assert gateway.replayed("g") == [commit("g", 1)]
        await gateway.append("g", commit("g", 3))
        assert partition.log[-1].header.producer_epoch == 1
        assert gateway.failures == []
        assert gateway.fenced == []
        assert [event for event, one in gateway.owner.events if one == partition_for("g", PARTITIONS)] == [
            *["awaited", "gained", "lost", "awaited", "gained"]
        ]
        await gateway.log.close()

    run(scenario())


def test_a_topic_that_was_created_again_stops_the_gateway_with_one_sentence() -> None:
    async def scenario() -> None:
        kafka = fake_kafka()
        gateway = Gateway(kafka)
        await gateway.serving()
        kafka.add_topic(TOPIC, PARTITIONS)
        with pytest.raises(GroupLogError):
            await gateway.append("g", commit("g", 2))
        (sentence,) = gateway.failures
        assert "deleted and created again" in sentence
        assert all(one.log == [] for one in kafka.topics[TOPIC].partitions)
        await gateway.log.close()

    run(scenario())


def test_a_log_of_a_newer_gateway_is_not_served() -> None:
    async def scenario() -> None:
        kafka = fake_kafka()
        key, value = encode_claim(ClaimKey(LOG_FORMAT + 1), ClaimValue(1, 2, "newer"))
        partition_of(kafka, "g").write(encode_batch([Record(0, NOW_MS, key, value)]))
        gateway = Gateway(kafka)
        await until(lambda: bool(gateway.failures))
        await asyncio.sleep(0.05)
        assert "newer" in gateway.failures[0]
        assert partition_for("g", PARTITIONS) not in gateway.owner.served
        await gateway.log.close()

    run(scenario())


def test_a_refused_claim_stops_the_gateway_with_one_sentence() -> None:
    async def scenario() -> None:
        kafka = fake_kafka()

        class NoRight(Faults):
            def before(self, request: Any) -> ErrorCode | None:
                is_init = isinstance(request, InitProducerIdRequest)
                return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if is_init else None

        kafka.faults = NoRight()
        gateway = Gateway(kafka)
        await until(lambda: bool(gateway.failures))
        (sentence,) = gateway.failures
        assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in sentence
        await gateway.log.close()

    run(scenario())


def test_a_writer_with_an_older_producer_id_is_fenced_before_the_partition_is_served() -> None:
    """Kafka has forgotten the transactional.id, and the new gateway gets another producer id."""

    async def scenario() -> None:
        kafka = fake_kafka()
        first = Gateway(kafka)
        await first.serving()
        await first.append("g", commit("g", 1))
        kafka.transactional_ids.clear()
        partition = partition_of(kafka, "g")
        (old_id,) = partition.producers
        late: list[asyncio.Future[None]] = []

        def append_late(request: Any) -> None:
            # Between the claim of the new gateway and its replay: only the new producer id has claimed.
            if len(partition.producers) == 2 and not late:
                late.append(first.append("g", commit("g", 2)))

        kafka.on_request = append_late
        second = Gateway(kafka, "gateway-2")
        await second.serving()
        assert partition.producers[old_id].epoch == HIGHEST_EPOCH
        await late[0]
        assert second.replayed("g") == [commit("g", 1), commit("g", 2)]
        with pytest.raises(GroupLogError):
            await first.append("g", commit("g", 3))
        await second.append("g", commit("g", 4))
        await first.log.close()
        await second.log.close()

        third = Gateway(kafka, "gateway-3")
        await third.serving()
        assert third.replayed("g") == [commit("g", number) for number in (1, 2, 4)]
        fences = [one for one in partition.log if one.header.producer_epoch == HIGHEST_EPOCH]
        assert len(fences) == 1, "it is fenced once"
        await third.log.close()

    run(scenario())


def test_batches_of_a_producer_without_an_id_and_control_batches_are_no_old_writers() -> None:
    async def scenario() -> None:
        kafka = fake_kafka()
        partition = partition_of(kafka, "g")
        partition.write(_batch_of(commit("g", 1)))
        gateway = Gateway(kafka)
        await gateway.serving()
        assert gateway.replayed("g") == [commit("g", 1)]
        assert len(partition.log) == 2
        await gateway.log.close()

    run(scenario())


def test_a_batch_of_an_idempotent_producer_is_what_kafka_expects() -> None:
    record = Record(0, NOW_MS, b"k", b"v")
    batch = idempotent_batch(encoded_record(record, 0, NOW_MS), 1, NOW_MS, Producer(7, 3), 9)
    assert batch == encode_batch([record._replace(offset=0)], producer_id=7, producer_epoch=3, base_sequence=9)


class FailingOwner(ReplayingOwner):
    """Cannot replay anything."""

    def partitions_gained(self, partitions: Sequence[int]) -> None:
        assert self.log is not None
        for partition in partitions:
            asyncio.get_running_loop().call_later(0.1, self.log.replay_failed, partition, "for the test")


def test_a_partition_that_is_lost_again_and_again_is_claimed_less_and_less_often() -> None:
    async def scenario() -> None:
        kafka = FakeKafka()
        partition = kafka.add_topic(TOPIC, 1).partitions[0]
        gateway = Gateway(kafka, owner=FailingOwner())
        await asyncio.sleep(1_000)
        assert 15 < len(partition.log) < 30
        assert [batch.header.producer_epoch for batch in partition.log] == list(range(len(partition.log)))
        assert gateway.failures == []
        await gateway.log.close()

    simulate(scenario())
