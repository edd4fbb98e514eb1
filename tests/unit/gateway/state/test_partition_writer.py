"""The writer of a partition of the group log, on a Kafka in memory and in simulated time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.broker.groups.group_log import GroupLogError
from holdfast.gateway.state.append_queue import WriterLimits
from holdfast.gateway.state.partition_writer import Loss, PartitionWriter
from holdfast.gateway.state.topic import FoundTopic, StateTopic
from holdfast.wire.apis.init_producer_id import InitProducerIdRequest
from holdfast.wire.apis.produce import ProduceRequest
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import GroupMetadataKey, GroupRecord, OffsetCommitKey, OffsetCommitValue
from holdfast.wire.offset_records import OffsetRecords
from holdfast.wire.records import decode_batch
from tests.unit.gateway.state.fake_kafka import FakeKafka, FakePartition, Faults, StoredBatch, simulate

TOPIC = "__holdfast_groups"
NOW_MS = 1_700_000_000_000


def commit(number: int, metadata: str = "") -> list[GroupRecord]:
    return [(OffsetCommitKey("g", "orders", number), OffsetCommitValue(number, -1, metadata, NOW_MS))]


class World:
    """A Kafka with one state partition."""

    def __init__(self, nodes: int = 2) -> None:
        self.kafka = FakeKafka(nodes)
        self.topic = self.kafka.add_topic(TOPIC, 1)
        self.losses: list[Loss] = []

    @property
    def partition(self) -> FakePartition:
        return self.topic.partitions[0]

    def writer(self, *, in_flight: int = 5, **limits: Any) -> PartitionWriter:
        """With five batches in flight, as there is more to go wrong than with one."""
        found = FoundTopic(self.topic.id, 1, 1)
        return PartitionWriter(
            self.kafka,
            StateTopic(self.kafka, TOPIC, found, 1 << 20),
            0,
            gateway_id="gateway-1",
            on_lost=lambda loss, _reason: self.losses.append(loss),
            limits=WriterLimits(in_flight=in_flight, **limits),
        )

    async def claimed(self, **limits: Any) -> PartitionWriter:
        writer = self.writer(**limits)
        await writer.claim()
        return writer

    @property
    def data_batches(self) -> list[StoredBatch]:
        """Without claims."""
        return [batch for batch in self.partition.log if numbers_in(batch)]

    @property
    def stored(self) -> list[int]:
        return [number for batch in self.partition.log for number in numbers_in(batch)]


def numbers_in(batch: StoredBatch) -> list[int]:
    """Of the commits in a batch; none in a claim."""
    keys = [record.key for record in decode_batch(batch.data) if record.key is not None]
    return [int.from_bytes(key[-4:], "big") for key in keys if key.startswith(b"\x00\x01")]


async def outcome(stored: asyncio.Future[None]) -> ErrorCode:
    try:
        await stored
    except GroupLogError as error:
        return error.code
    return ErrorCode.NONE


async def outcomes(appends: Sequence[asyncio.Future[None]]) -> list[ErrorCode]:
    return [await outcome(one) for one in appends]


class FirstAnswers(Faults):
    """The first answers to Produce, before or after the batch is stored."""

    def __init__(self, before: Sequence[ErrorCode | None] = (), after: Sequence[ErrorCode | None] = ()) -> None:
        self._before, self._after = list(before), list(after)

    def before(self, request: Any) -> ErrorCode | None:
        return self._before.pop(0) if self._before and not isinstance(request, InitProducerIdRequest) else None

    def after(self, request: Any) -> ErrorCode | None:
        return self._after.pop(0) if self._after else None

    def delay_s(self) -> float:
        return 0.01


# -- claims ------------------------------------------------------------------------------------------------------------


def test_a_claim_is_a_plain_batch_and_returns_its_offset() -> None:
    async def scenario() -> None:
        world = World()
        await (await world.claimed()).close(1)

        assert await world.writer().claim() == 1
        claim = world.partition.log[1].header
        assert (claim.producer_epoch, claim.base_sequence, claim.record_count) == (1, 0, 1)
        assert not claim.is_transactional
        assert not claim.is_control

    simulate(scenario())


def test_a_claim_waits_for_the_transaction_coordinator() -> None:
    async def scenario() -> None:
        world = World()
        world.kafka.is_down = True
        claiming = asyncio.create_task(world.writer().claim())
        await asyncio.sleep(60)
        assert not claiming.done()

        world.kafka.is_down = False
        assert await claiming == 0

    simulate(scenario())


def test_after_another_claim_nothing_is_stored_and_nobody_claims_again() -> None:
    async def scenario() -> None:
        world = World()
        first = await world.claimed()
        assert await outcome(first.append(commit(1), NOW_MS)) is ErrorCode.NONE
        second = await world.claimed()

        appends = [first.append(commit(number), NOW_MS) for number in (2, 3)]
        assert await outcomes(appends) == [ErrorCode.NOT_COORDINATOR] * 2
        assert world.losses == [Loss.FENCED]
        assert await outcome(first.append(commit(4), NOW_MS)) is ErrorCode.NOT_COORDINATOR
        await asyncio.sleep(1_000)
        assert await outcome(second.append(commit(5), NOW_MS)) is ErrorCode.NONE
        assert world.stored == [1, 5]

    simulate(scenario())


def test_an_append_between_the_new_epoch_and_the_claim_lies_before_the_claim() -> None:
    async def scenario() -> None:
        world = World()
        first = await world.claimed()
        late: list[asyncio.Future[None]] = []

        def append_late(request: Any) -> None:
            if isinstance(request, InitProducerIdRequest):
                late.append(first.append(commit(7), NOW_MS))

        world.kafka.on_request = append_late
        world.kafka.faults = FirstAnswers()
        claim = await world.writer().claim()

        assert await outcomes(late) == [ErrorCode.NONE]
        assert world.data_batches[0].header.base_offset < claim

    simulate(scenario())


# -- batches -----------------------------------------------------------------------------------------------------------


def test_appends_of_one_iteration_are_one_batch_and_an_append_is_never_divided() -> None:
    async def scenario() -> None:
        world = World()
        writer = await world.claimed(batch_records=5)
        offsets = {("orders", number): OffsetCommitValue(number, -1, "", NOW_MS) for number in range(3)}
        three = OffsetRecords("g", offsets)

        appends = [writer.append(three, NOW_MS) for _ in range(3)]
        appends.append(writer.append([record for number in range(8) for record in commit(number)], NOW_MS))
        assert await outcomes(appends) == [ErrorCode.NONE] * 4
        assert [numbers_in(batch) for batch in world.data_batches] == [[0, 1, 2]] * 3 + [list(range(8))]

        together = [writer.append(three, NOW_MS), writer.append(commit(9), NOW_MS), writer.append(commit(8), NOW_MS)]
        assert await outcomes(together) == [ErrorCode.NONE] * 3
        assert numbers_in(world.data_batches[-1]) == [0, 1, 2, 9, 8]

    simulate(scenario())


@pytest.mark.parametrize("in_flight", [1, 2, 5])
def test_a_number_of_batches_is_in_flight_and_other_appends_are_joined_meanwhile(in_flight: int) -> None:
    async def scenario() -> None:
        world = World()
        writer = await world.claimed(in_flight=in_flight)
        world.kafka.faults = FirstAnswers()  # slow
        appends = []
        for number in range(20):
            appends.append(writer.append(commit(number), NOW_MS))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await outcomes(appends)

        sizes = [batch.header.record_count for batch in world.data_batches]
        assert sizes == [1] * in_flight + [20 - in_flight]
        assert world.stored == list(range(20))

    simulate(scenario())


def test_a_record_that_the_format_cannot_hold_fails_alone() -> None:
    async def scenario() -> None:
        world = World()
        writer = await world.claimed()
        appends = [
            writer.append(commit(1), NOW_MS),
            writer.append([(GroupMetadataKey("x" * 40_000), None)], NOW_MS),
            writer.append(commit(2), NOW_MS),
        ]
        assert await outcomes(appends) == [ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]
        assert world.stored == [1, 2]

    simulate(scenario())


def test_an_append_larger_than_the_topic_allows_fails_alone_without_being_sent() -> None:
    async def scenario() -> None:
        world = World()
        writer = await world.claimed()
        large = [record for number in range(60) for record in commit(number, "x" * 20_000)]
        appends = [writer.append(large, NOW_MS), writer.append(commit(2), NOW_MS)]
        assert await outcomes(appends) == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]

    simulate(scenario())


@pytest.mark.parametrize("limits", [{"waiting_records": 3}, {"waiting_bytes": 100}])
def test_appends_beyond_the_bound_are_refused_and_later_ones_are_not(limits: dict[str, int]) -> None:
    async def scenario() -> None:
        world = World()
        writer = await world.claimed(**limits)
        appends = [writer.append(commit(number), NOW_MS) for number in range(5)]
        found = await outcomes(appends)
        assert found[0] is ErrorCode.NONE
        assert found[-1] is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await outcome(writer.append(commit(9), NOW_MS)) is ErrorCode.NONE

    simulate(scenario())


def test_sequence_numbers_wrap_around() -> None:
    async def scenario() -> None:
        world = World()
        writer = await world.claimed()
        last = (1 << 31) - 1
        writer._sequence = last - 1
        (state,) = world.partition.producers.values()
        state.batches[-1] = (last - 2, last - 2, 0)

        for number in range(4):
            assert await outcome(writer.append(commit(number) + commit(number), NOW_MS)) is ErrorCode.NONE
        assert [batch.header.base_sequence for batch in world.data_batches] == [last - 1, 0, 2, 4]

    simulate(scenario())


# -- failures ----------------------------------------------------------------------------------------------------------

TRANSIENT = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_SERVER_ERROR,
]


@pytest.mark.parametrize("code", TRANSIENT)
@pytest.mark.parametrize("failing", range(3))
def test_a_batch_that_fails_is_sent_again_with_all_behind_it(code: ErrorCode, failing: int) -> None:
    async def scenario() -> None:
        world = World()
        writer = await world.claimed(batch_records=1)
        world.kafka.faults = FirstAnswers(before=[None] * failing + [code])
        appends = [writer.append(commit(number), NOW_MS) for number in range(8)]

        assert await outcomes(appends) == [ErrorCode.NONE] * 8
        assert world.stored == list(range(8))
        assert world.losses == []

    simulate(scenario())


@pytest.mark.parametrize("code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND])
def test_a_batch_that_was_stored_after_all_is_stored_once(code: ErrorCode) -> None:
    async def scenario() -> None:
        world = World()
        writer = await world.claimed(batch_records=1)
        world.kafka.faults = FirstAnswers(after=[None, code])
        appends = [writer.append(commit(number), NOW_MS) for number in range(8)]

        assert await outcomes(appends) == [ErrorCode.NONE] * 8
        assert world.stored == list(range(8))

    simulate(scenario())


def test_a_duplicate_counts_as_stored() -> None:
    async def scenario() -> None:
        world = World()
        writer = await world.claimed(batch_records=1)
        world.kafka.faults = FirstAnswers(after=[ErrorCode.DUPLICATE_SEQUENCE_NUMBER])
        appends = [writer.append(commit(number), NOW_MS) for number in range(2)]
        assert await outcomes(appends) == [ErrorCode.NONE] * 2
        produced = [request for request in world.kafka.requests if isinstance(request, ProduceRequest)]
        assert len(produced) == 3

    simulate(scenario())


def test_the_writer_follows_the_leader() -> None:
    async def scenario() -> None:
        world = World()
        writer = await world.claimed()
        assert await outcome(writer.append(commit(1), NOW_MS)) is ErrorCode.NONE
        world.partition.leader = 1
        assert await outcome(writer.append(commit(2), NOW_MS)) is ErrorCode.NONE
        world.kafka.disconnect_all()
        assert await outcome(writer.append(commit(3), NOW_MS)) is ErrorCode.NONE
        assert world.stored == [1, 2, 3]
        assert [one.node_id for one in world.kafka.connections] == [1]

    simulate(scenario())


def test_while_kafka_is_down_appends_wait_and_then_those_that_were_not_sent_fail() -> None:
    async def scenario() -> None:
        world = World()
        writer = await world.claimed(batch_records=1, in_flight=1)
        world.kafka.faults = FirstAnswers()
        sent, waiting = (writer.append(commit(number), NOW_MS) for number in (1, 2))
        await asyncio.sleep(0.005)
        world.kafka.is_down = True
        world.kafka.disconnect_all()
        for _ in range(100):
            await asyncio.sleep(1)
            writer.tick()

        assert waiting.done()
        assert await outcome(waiting) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert not sent.done()
        world.kafka.is_down = False
        assert await outcome(sent) is ErrorCode.NONE
        assert world.stored == [1]

    simulate(scenario())


def test_a_batch_that_kafka_rejects_fails_alone_and_those_behind_it_are_stored() -> None:
    async def scenario() -> None:
        world = World()
        writer = await world.claimed(batch_records=1)
        world.kafka.faults = FirstAnswers()
        world.kafka.max_message_bytes = 1_000  # lowered after the start
        appends = [writer.append(commit(number, "x" * 2_000 * (number in (1, 2))), NOW_MS) for number in range(7)]

        rejected = ErrorCode.UNKNOWN_SERVER_ERROR
        assert await outcomes(appends) == [ErrorCode.NONE, rejected, rejected, *[ErrorCode.NONE] * 4]
        assert world.stored == [0, 3, 4, 5, 6]
        assert world.losses == []

    simulate(scenario())


def test_a_batch_that_may_be_stored_and_is_rejected_then_loses_the_partition() -> None:
    async def scenario() -> None:
        world = World()
        writer = await world.claimed()
        world.kafka.faults = FirstAnswers(after=[ErrorCode.REQUEST_TIMED_OUT])
        append = writer.append(commit(1, "x" * 2_000), NOW_MS)
        await asyncio.sleep(0.015)
        world.kafka.max_message_bytes = 1_000

        assert await outcome(append) is ErrorCode.NOT_COORDINATOR
        assert world.losses == [Loss.DIVERGED]
        assert world.stored == [1]

    simulate(scenario())


def test_an_unexpected_sequence_number_loses_the_partition_and_it_can_be_claimed_again() -> None:
    """The broker was restarted: it has all five batches, but remembers only the last one."""

    async def scenario() -> None:
        world = World()
        writer = await world.claimed(batch_records=1)

        class StoredAndRestarted(Faults):
            def loses_response(self) -> bool:
                return world.stored == [0]

            def processes_requests_of_lost_connections(self) -> bool:
                return True

            def before(self, request: Any) -> ErrorCode | None:
                if len(world.stored) == 3:
                    world.partition.forget_duplicates()
                return None

        world.kafka.faults = StoredAndRestarted()
        appends = [writer.append(commit(number), NOW_MS) for number in range(3)]
        assert await outcomes(appends) == [ErrorCode.NOT_COORDINATOR] * 3
        assert world.losses == [Loss.DIVERGED]

        world.kafka.faults = Faults()
        again = world.writer()
        assert await again.claim(writer.producer) == 4
        assert await outcome(again.append(commit(3), NOW_MS)) is ErrorCode.NONE
        assert world.stored == [0, 1, 2, 3]

    simulate(scenario())


def test_a_lost_partition_is_not_claimed_back_from_another_gateway() -> None:
    async def scenario() -> None:
        world = World()
        writer = await world.claimed()
        previous = writer.producer
        writer.lose(Loss.DIVERGED, "for the test")
        await world.claimed()

        with pytest.raises(GroupLogError) as raised:
            await world.writer().claim(previous)
        assert raised.value.code is ErrorCode.NOT_COORDINATOR
        assert world.losses == [Loss.DIVERGED, Loss.FENCED]

    simulate(scenario())


@pytest.mark.parametrize("is_created_again", [False, True])
def test_a_topic_that_vanishes_stops_the_writer(is_created_again: bool) -> None:
    async def scenario() -> None:
        world = World()
        writer = await world.claimed()
        del world.kafka.topics[TOPIC]
        if is_created_again:
            world.kafka.add_topic(TOPIC, 1)

        assert await outcome(writer.append(commit(1), NOW_MS)) is ErrorCode.NOT_COORDINATOR
        assert world.losses == [Loss.UNUSABLE]
        assert not is_created_again or world.kafka.topics[TOPIC].partitions[0].log == []

    simulate(scenario())


def test_records_of_another_writer_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        world = World()
        writer = await world.claimed()
        for number in range(3):
            world.partition.write(world.partition.log[0].data)
            assert await outcome(writer.append(commit(number), NOW_MS)) is ErrorCode.NONE

    with caplog.at_level(logging.ERROR):
        simulate(scenario())
    assert [record.message for record in caplog.records] == [
        "the group log has records that this gateway did not write"
    ]


# -- time --------------------------------------------------------------------------------------------------------------


async def ticking(writer: PartitionWriter, seconds: int) -> None:
    for _ in range(seconds):
        await asyncio.sleep(1)
        writer.tick()


def test_an_idle_partition_gets_a_claim_now_and_then() -> None:
    async def scenario() -> None:
        world = World()
        writer = await world.claimed(heartbeat_s=100)
        await ticking(writer, 350)
        assert len(world.partition.log) == 4

        for _ in range(10):
            await ticking(writer, 20)
            await outcome(writer.append(commit(1), NOW_MS))
        assert len(world.partition.log) == 14, "no claims while there are appends"

    simulate(scenario())


def test_a_renewal_changes_the_epoch_between_two_batches_and_costs_no_append() -> None:
    async def scenario() -> None:
        world = World()
        writer = await world.claimed(renewal_s=10, batch_records=1)
        world.kafka.faults = FirstAnswers()
        appends = []
        for number in range(300):
            appends.append(writer.append(commit(number), NOW_MS))
            await asyncio.sleep(0.2)
            writer.tick()
        assert await outcomes(appends) == [ErrorCode.NONE] * 300
        assert world.stored == list(range(300))
        epochs = [batch.header.producer_epoch for batch in world.partition.log]
        assert epochs == sorted(epochs)
        assert epochs[-1] >= 5
        assert world.losses == []

    simulate(scenario())


def test_a_renewal_after_another_claim_loses_the_partition() -> None:
    async def scenario() -> None:
        world = World()
        first = await world.claimed(renewal_s=10)
        await world.claimed()
        await ticking(first, 12)
        assert world.losses == [Loss.FENCED]

    simulate(scenario())


def test_appends_go_on_while_a_renewal_waits_for_the_coordinator() -> None:
    async def scenario() -> None:
        world = World()
        writer = await world.claimed(renewal_s=10)

        class NoCoordinator(Faults):
            def before(self, request: Any) -> ErrorCode | None:
                is_renewal = isinstance(request, InitProducerIdRequest)
                return ErrorCode.COORDINATOR_NOT_AVAILABLE if is_renewal else None

        world.kafka.faults = NoCoordinator()
        await ticking(writer, 100)
        assert await outcome(writer.append(commit(1), NOW_MS)) is ErrorCode.NONE
        world.kafka.faults = Faults()
        await asyncio.sleep(5)
        assert world.partition.log[-1].header.producer_epoch == 1

    simulate(scenario())


def test_close_waits_for_appends_and_gives_up_after_its_timeout() -> None:
    async def scenario() -> None:
        world = World()
        writer = await world.claimed()
        world.kafka.faults = FirstAnswers()
        append = writer.append(commit(1), NOW_MS)
        await writer.close(10)
        assert await outcome(append) is ErrorCode.NONE
        assert world.kafka.connections == []

        writer = await world.claimed()
        world.kafka.is_down = True
        world.kafka.disconnect_all()
        append = writer.append(commit(2), NOW_MS)
        await writer.close(10)
        assert await outcome(append) is ErrorCode.NOT_COORDINATOR

    simulate(scenario())


def test_a_renewal_is_not_repeated_before_its_epoch_is_used() -> None:
    """Kafka would return the same epoch again, and sequence numbers would start over in it."""

    async def scenario() -> None:
        world = World()
        writer = await world.claimed(renewal_s=3, batch_records=1)
        world.kafka.faults = FirstAnswers(before=[ErrorCode.NOT_ENOUGH_REPLICAS] * 20)
        append = writer.append(commit(0), NOW_MS)
        await ticking(writer, 10)
        assert not append.done()
        await ticking(writer, 60)
        assert await outcome(append) is ErrorCode.NONE
        appends = [writer.append(commit(number), NOW_MS) for number in range(1, 9)]
        assert await outcomes(appends) == [ErrorCode.NONE] * 8
        assert world.stored == list(range(9))

    simulate(scenario())


def test_a_request_of_our_own_that_is_processed_late_costs_nothing() -> None:
    """The claim asked for an epoch twice, because the first connection was lost. Nobody else has claimed."""

    async def scenario() -> None:
        world = World()
        writer = await world.claimed(renewal_s=10)
        world.kafka.handle(0, InitProducerIdRequest(writer.name, 60_000))
        await ticking(writer, 60)
        assert await outcome(writer.append(commit(1), NOW_MS)) is ErrorCode.NONE
        assert world.losses == []

    simulate(scenario())


def test_a_batch_behind_a_rejected_one_whose_fate_is_not_known_loses_the_partition() -> None:
    """The broker may still take it, with a sequence number that another batch would have by then."""

    async def scenario() -> None:
        world = World()
        writer = await world.claimed(batch_records=1)
        world.kafka.max_message_bytes = 1_000

        class LosesTheSecond(FirstAnswers):
            requests = 0

            def loses_request(self) -> bool:
                self.requests += 1
                return self.requests == 2

        world.kafka.faults = LosesTheSecond()
        appends = [writer.append(commit(1, "x" * 2_000), NOW_MS), writer.append(commit(2), NOW_MS)]
        assert await outcomes(appends) == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_COORDINATOR]
        assert world.losses == [Loss.DIVERGED]

    simulate(scenario())
