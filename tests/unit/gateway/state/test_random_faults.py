"""Gateways that take a partition from each other, on a Kafka that loses requests and responses, and moves its leaders.

Whatever happens: an acknowledged append is in the log once, in order and below the next claim; an append that failed as
not stored is not in the log; and no append is in the log twice. The writers at the end of this file break one rule
each, and must be found out.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from functools import partial

import pytest

from holdfast.broker.groups.group_log import GroupLogError
from holdfast.gateway.state.append_queue import AppendBatch, WriterLimits
from holdfast.gateway.state.partition_writer import Loss, PartitionWriter
from holdfast.gateway.state.producer import Producer, init_producer
from holdfast.gateway.state.topic import FoundTopic, StateTopic
from holdfast.wire.apis.produce import PartitionProduceResponse
from holdfast.wire.error_codes import ErrorCode
from tests.unit.gateway.state.fake_kafka import FakeKafka, FakePartition, RandomFaults, simulate
from tests.unit.gateway.state.test_partition_writer import NOW_MS, TOPIC, commit, numbers_in

SEEDS = range(60)
CONTROL_SEEDS = range(400)
APPENDS = 60
NOT_STORED = (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


@dataclass
class Appended:
    gateway: int
    claim: int
    """The offset of its gateway's claim."""
    numbers: list[int]
    outcome: ErrorCode | None = None


@dataclass
class History:
    appends: list[Appended] = field(default_factory=list)
    claims: list[tuple[int, int]] = field(default_factory=list)
    """Gateway and offset, in the order in which the claims were confirmed."""
    fenced: list[int] = field(default_factory=list)


class Gateway:
    def __init__(
        self, number: int, kafka: FakeKafka, history: History, writer: type[PartitionWriter], in_flight: int
    ) -> None:
        self.number = number
        self._kafka = kafka
        self._history = history
        self._writer_class = writer
        self._random = random.Random(number)
        self._in_flight = in_flight
        self._next_number = number * 1_000_000
        self._claim = -1
        self._is_serving = False
        self._outcomes: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Serves the partition until it is lost for good, or all appends are made."""
        previous: Producer | None = None
        while len(self._outcomes) < APPENDS:
            writer = self._new_writer()
            try:
                self._claim = await writer.claim(previous)
            except GroupLogError as error:
                if error.code is ErrorCode.NOT_COORDINATOR and writer.loss is Loss.FENCED:
                    break
                previous = writer.producer
                continue
            self._history.claims.append((self.number, self._claim))
            self._is_serving = True
            await self._serve(writer)
            self._is_serving = False
            if writer.loss is not Loss.DIVERGED:
                await writer.close(10_000)
                break
            previous = writer.producer
        await asyncio.gather(*self._outcomes)

    def _new_writer(self) -> PartitionWriter:
        topic = StateTopic(self._kafka, TOPIC, FoundTopic(self._kafka.topics[TOPIC].id, 1, 1), 1 << 20)
        return self._writer_class(
            self._kafka,
            topic,
            0,
            gateway_id=str(self.number),
            on_lost=self._note,
            limits=WriterLimits(in_flight=self._in_flight, batch_records=4, renewal_s=3, heartbeat_s=1),
        )

    def _note(self, loss: Loss, _reason: str) -> None:
        # An InitProducerId of its own, processed late, may fence a gateway that has to claim its partition again.
        if loss is Loss.FENCED and self._is_serving:
            self._history.fenced.append(self.number)

    async def _serve(self, writer: PartitionWriter) -> None:
        while writer.loss is None and len(self._outcomes) < APPENDS:
            for _ in range(self._random.choice([0, 1, 1, 2, 6])):
                self._append(writer)
            await asyncio.sleep(self._random.choice([0, 0.001, 0.02, 0.1, 0.5, 2]))
            writer.tick()

    def _append(self, writer: PartitionWriter) -> None:
        numbers = [self._next_number + index for index in range(self._random.choice([1, 1, 2, 3, 6]))]
        self._next_number += len(numbers)
        # Some are too large after the limit is lowered.
        metadata = "x" * self._random.choice([0, 0, 0, 500])
        stored = writer.append([record for number in numbers for record in commit(number, metadata)], NOW_MS)
        appended = Appended(self.number, self._claim, numbers)
        self._history.appends.append(appended)
        self._outcomes.append(asyncio.create_task(self._await(appended, stored)))

    async def _await(self, appended: Appended, stored: asyncio.Future[None]) -> None:
        try:
            await stored
            appended.outcome = ErrorCode.NONE
        except GroupLogError as error:
            appended.outcome = error.code


async def disturb(kafka: FakeKafka, faults: RandomFaults) -> None:
    chance = faults.random
    partition = kafka.topics[TOPIC].partitions[0]
    while faults.is_on:
        await asyncio.sleep(chance.choice([0.01, 0.1, 1]))
        match chance.randrange(12):
            case 0 | 1 | 2:
                partition.leader = chance.choice(kafka.node_ids)
            case 3 | 4:
                kafka.disconnect_all()
            case 5:
                kafka.max_message_bytes = 400
                await asyncio.sleep(chance.choice([0.01, 0.1]))
                kafka.max_message_bytes = None
            case 6:
                if chance.random() < 0.2:
                    partition.forget_duplicates()


async def history_of(seed: int, writer: type[PartitionWriter]) -> tuple[History, FakePartition]:
    chance = random.Random(seed)
    kafka = FakeKafka(3)
    partition = kafka.add_topic(TOPIC, 1).partitions[0]
    kafka.faults = faults = RandomFaults(seed, rate=chance.choice([0.0, 0.02, 0.1, 0.3]))
    history = History()
    in_flight = chance.choice([1, 2, 5, 5])

    async def start(number: int) -> None:
        await asyncio.sleep(chance.choice([0, 0.1, 1, 5]) * number)
        await Gateway(number, kafka, history, writer, in_flight).run()

    async def end_faults() -> None:
        await asyncio.sleep(60)
        faults.stop()

    gateways = [start(number) for number in range(chance.choice([1, 2, 3]))]
    await asyncio.gather(disturb(kafka, faults), end_faults(), *gateways)
    return history, partition


def violations(history: History, partition: FakePartition) -> list[str]:
    position: dict[int, tuple[int, int]] = {}
    found: list[str] = []
    for batch in partition.log:
        for index, number in enumerate(numbers_in(batch)):
            if number in position:
                found.append(f"{number} is stored twice")
            position[number] = (batch.header.base_offset, index)
    last: dict[int, tuple[int, int]] = {}
    for append in history.appends:
        places = [position[number] for number in append.numbers if number in position]
        if append.outcome is None:
            found.append(f"{append} has no outcome")
        if append.outcome is ErrorCode.NONE and len(places) < len(append.numbers):
            found.append(f"{append} is lost")
        if append.outcome in NOT_STORED and places:
            found.append(f"{append} is stored")
        if places and [(places[0][0], places[0][1] + index) for index in range(len(append.numbers))] != places:
            found.append(f"{append} is divided: {places}")
        if places and append.outcome is ErrorCode.NONE:
            if places[0] < last.get(append.claim, (-1, -1)):
                found.append(f"{append} overtook another append")
            last[append.claim] = places[-1]
        found += [
            f"{append} is stored above the later claim of gateway {gateway} at offset {claim}"
            for gateway, claim in history.claims
            if places and gateway != append.gateway and places[0][0] > claim > append.claim
        ]
    claimed_by = {gateway for gateway, _ in history.claims}
    found += [f"gateway {one} is fenced by nobody" for one in history.fenced if not claimed_by - {one}]
    return found


def found_with(seed: int, writer: type[PartitionWriter] = PartitionWriter) -> list[str]:
    return violations(*simulate(history_of(seed, writer), limit_s=100_000))


@pytest.mark.parametrize("seed", SEEDS)
def test_no_acknowledged_append_is_lost_doubled_or_moved(seed: int) -> None:
    assert found_with(seed) == []


def test_the_random_runs_reach_every_outcome() -> None:
    outcomes: set[ErrorCode | None] = set()
    takeovers = again = 0
    for seed in SEEDS:
        history, _ = simulate(history_of(seed, PartitionWriter))
        outcomes |= {append.outcome for append in history.appends}
        takeovers += len(history.fenced)
        again += len(history.claims) - len({gateway for gateway, _ in history.claims})
    assert outcomes >= {ErrorCode.NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_SERVER_ERROR}
    assert takeovers > 10
    assert again > 3


# -- controls ----------------------------------------------------------------------------------------------------------


class NewSequenceNumbers(PartitionWriter):
    """Sends a batch again as if it were a new one."""

    def _begin_round(self) -> None:
        assert self._producer is not None
        for batch in self._sent:
            batch.seal(self._producer, self._sequence)
            self._sequence = batch.next_sequence
        super()._begin_round()


class NoClaim(PartitionWriter):
    """Takes the new epoch, and serves what it finds in the log."""

    async def claim(self, current: Producer | None = None) -> int:
        self._producer = await init_producer(self._cluster, self.name, current)
        self._start(self._run())
        assert isinstance(self._cluster, FakeKafka)
        return self._cluster.topics[TOPIC].partitions[0].end_offset


class BelievesInOrder(PartitionWriter):
    """Takes a batch that is out of order for a duplicate."""

    def _take(self, batch: AppendBatch, answer: PartitionProduceResponse) -> None:
        if answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            answer.error_code = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        super()._take(batch, answer)


class GivesUp(PartitionWriter):
    """Takes a batch without an answer for one that is not stored."""

    def _begin_round(self) -> None:
        for batch in [*self._sent]:
            if not batch.is_claim:
                batch.fail(GroupLogError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no answer"))
        super()._begin_round()


class MixesEpochs(PartitionWriter):
    """Uses a new epoch while batches of the old one are in flight."""

    def _flush(self) -> None:
        if self._next_producer is not None:
            self._producer, self._next_producer, self._sequence = self._next_producer, None, 0
            self._waiting.put_first(self._claim_batch())
        super()._flush()


class RenewsTwice(PartitionWriter):
    """Starts over with sequence number 0 in an epoch that it has used already."""

    async def _renew(self, current: Producer) -> None:
        await super()._renew(current)
        await asyncio.sleep(0.5)
        self._next_producer = self._next_producer or self._producer


@pytest.mark.parametrize("writer", [NewSequenceNumbers, NoClaim, BelievesInOrder, GivesUp, MixesEpochs, RenewsTwice])
def test_a_writer_that_breaks_a_rule_is_found_out(writer: type[PartitionWriter]) -> None:
    assert any(map(partial(found_with, writer=writer), CONTROL_SEEDS))
