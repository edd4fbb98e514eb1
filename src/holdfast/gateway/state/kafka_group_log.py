"""The group log in Kafka: the topic `__holdfast_groups`, whose partitions this gateway claims.

A partition is gained in three steps. InitProducerId gives the gateway the highest epoch, the claim makes the leader
reject every lower one, and the replay reads everything up to the claim. From then on only this gateway can write to the
partition, so its memory is what the log contains.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any, Final

from holdfast.broker.groups.group_log import GroupLogError, PartitionOwner
from holdfast.broker.structured_log import log_event
from holdfast.gateway.kafka.errors import KafkaRefused
from holdfast.gateway.state.append_queue import WriterLimits
from holdfast.gateway.state.claim import LOG_FORMAT
from holdfast.gateway.state.log_reader import LogReader, LogTruncated
from holdfast.gateway.state.old_producers import fence_producer
from holdfast.gateway.state.partition_writer import Loss, PartitionWriter
from holdfast.gateway.state.ports import Cluster
from holdfast.gateway.state.producer import Producer
from holdfast.gateway.state.replay import Replay
from holdfast.gateway.state.topic import StateTopic, StateTopicError
from holdfast.wire.batch import Buffer
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import GroupRecord, partition_for

logger = logging.getLogger(__name__)

CONCURRENT_CLAIMS: Final = 64
"""More than partitions: one without a leader must not block the others."""
CONCURRENT_REPLAYS: Final = 3
"""A replay blocks a thread of the event loop's executor while it waits for Kafka. The executor has at least five, and
needs some for the names of hosts, which the replay may wait for."""
KEPT_GROUPS: Final = 10_000
KEPT_NAME_LENGTH: Final = 255
"""The partitions of at most this many groups are remembered, without those whose name is longer and may be hostile."""
PROBED_EVERY_TICKS: Final = 10
"""So often, the partition in which nothing was stored for longest gets a claim. A gateway that has no appends finds out
this way that another one has taken its place."""
CLOSED_WITHIN_S: Final = 10.0

_TICK_S: Final = 1.0
_RECLAIM_PAUSE_S: Final = 1.0
_LONGEST_RECLAIM_PAUSE_S: Final = 60.0


class KafkaGroupLog:
    def __init__(
        self,
        cluster: Cluster,
        topic: StateTopic,
        *,
        gateway_id: str,
        on_failed: Callable[[str], None],
        on_fenced: Callable[[int], None] = lambda _partition: None,
        limits: WriterLimits = WriterLimits(),  # noqa: B008  # frozen
    ) -> None:
        """`on_failed` gets one sentence; the gateway has to stop. `on_fenced` gets a partition that another gateway has
        claimed. It is not claimed back."""
        self.partition_count: int = topic.partition_count
        self.is_created = True
        self._cluster, self._topic, self._limits = cluster, topic, limits
        self._gateway_id, self._on_failed, self._on_fenced = gateway_id, on_failed, on_fenced
        self._loop = asyncio.get_running_loop()
        self._owner: PartitionOwner | None = None
        self._writers: dict[int, PartitionWriter] = {}
        self._replays: dict[int, Replay] = {}
        self._gained_again: dict[int, tuple[float, float]] = {}
        """When a partition that was lost is claimed again, and after which pause."""
        self._claiming = asyncio.Semaphore(CONCURRENT_CLAIMS)
        self._replaying = asyncio.Semaphore(CONCURRENT_REPLAYS)
        self._partition_of: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = self._has_failed = False

    async def create_if_missing(self) -> None:
        """The topic exists: `open_state_topics` is called before."""

    # -- partitions ----------------------------------------------------------------------------------------------------

    def start(self, owner: PartitionOwner) -> None:
        """No partition is served before it is claimed."""
        self._owner = owner
        owner.partitions_awaited(range(self.partition_count))
        for partition in range(self.partition_count):
            self._start(self._gain(partition))
        self._start(self._tick())

    async def _gain(self, partition: int, previous: Producer | None = None) -> None:
        """With `previous`, only if no other gateway has claimed the partition since."""
        writer = PartitionWriter(
            self._cluster,
            self._topic,
            partition,
            gateway_id=self._gateway_id,
            on_lost=partial(self._lost, partition, previous),
            limits=self._limits,
        )
        self._writers[partition] = writer
        try:
            async with self._claiming:
                claim_offset = await writer.claim(previous)
        except KafkaRefused as error:
            self._fail(str(error))
            return
        except GroupLogError as error:
            if error.code is not ErrorCode.NOT_COORDINATOR:
                self._fail(f"partition {writer.name} of the group log cannot be claimed: {error}")
            return  # lost again; `_lost` knows it already
        async with self._replaying:
            if self._writers.get(partition) is not writer or writer.loss is not None:
                return
            assert self._owner is not None, "started"
            assert writer.producer is not None, "claimed"
            access = _Access(self._cluster, self._topic, partition, writer, self._gateway_id)
            replay = self._replays[partition] = Replay(writer.name, access, claim_offset, writer.producer.id)
            self._owner.partitions_gained([partition])
            await replay.ended.wait()
            if self._replays.get(partition) is replay:
                del self._replays[partition]

    def _lost(self, partition: int, previous: Producer | None, loss: Loss, reason: str) -> None:
        writer = self._writers.pop(partition)
        log_event(logger, "partition of the group log lost", logging.ERROR, partition=writer.name, reason=reason)
        self._withdraw(partition)
        if loss is Loss.UNUSABLE:
            self._fail(reason)
        elif loss is Loss.FENCED:
            self._on_fenced(partition)
            # Another gateway has started. It has claimed the other partitions as well, or is about to.
            for other in self._writers.values():
                other.probe()
        elif not self._is_closed:
            assert self._owner is not None, "started"
            self._owner.partitions_awaited([partition])
            self._start(self._gain_again(partition, writer.producer or previous))

    def _withdraw(self, partition: int) -> None:
        """The owner must not serve the partition, nor finish a replay of it that is under way."""
        assert self._owner is not None, "started"
        self._owner.partitions_lost([partition])
        replay = self._replays.pop(partition, None)
        if replay is not None:
            replay.cancel()

    async def _gain_again(self, partition: int, previous: Producer | None) -> None:
        """Soon, or later if the partition was lost a moment ago: each time adds a claim to the log."""
        now_s = self._loop.time()
        again_s, pause_s = self._gained_again.get(partition, (0.0, 0.0))
        pause_s = min(2 * pause_s, _LONGEST_RECLAIM_PAUSE_S) if now_s < again_s + 2 * pause_s else _RECLAIM_PAUSE_S
        self._gained_again[partition] = now_s + pause_s, pause_s
        await asyncio.sleep(pause_s)
        await self._gain(partition, previous)

    async def _tick(self) -> None:
        for tick in count(1):
            await asyncio.sleep(_TICK_S)
            for writer in list(self._writers.values()):
                writer.tick()
            idle = [writer for writer in self._writers.values() if writer.is_idle]
            if tick % PROBED_EVERY_TICKS == 0 and idle:
                min(idle, key=lambda writer: writer.stored_s).probe()

    def _fail(self, sentence: str) -> None:
        if not self._is_closed and not self._has_failed:
            self._has_failed = True
            self._on_failed(sentence)

    # -- append --------------------------------------------------------------------------------------------------------

    def append(self, group_id: str, records: Sequence[GroupRecord], now_ms: int) -> asyncio.Future[None]:
        partition = self._partition_of.get(group_id)
        if partition is None:
            partition = partition_for(group_id, self.partition_count)
            if len(self._partition_of) < KEPT_GROUPS and len(group_id) <= KEPT_NAME_LENGTH:
                self._partition_of[group_id] = partition
        writer = self._writers.get(partition)
        if writer is not None:
            return writer.append(records, now_ms)
        refused: asyncio.Future[None] = self._loop.create_future()
        refused.set_exception(
            GroupLogError(ErrorCode.NOT_COORDINATOR, f"partition {partition} of the group log is not this gateway's")
        )
        return refused

    # -- replay --------------------------------------------------------------------------------------------------------

    def replay_failed(self, partition: int, reason: str) -> bool:
        """A part of a log must not pass for the whole: the partition is claimed and read again."""
        writer = self._writers.get(partition)
        if writer is not None:
            writer.lose(Loss.DIVERGED, f"partition {writer.name} cannot be read: {reason}")
        return False

    def replay(self, partition: int) -> Iterator[Sequence[GroupRecord]]:
        """Raises GroupLogError only if the owner knows that the partition is lost."""
        replay = self._replays.get(partition)
        return _nothing(partition) if replay is None else replay.records()

    # -- the end -------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Stores what waits, if Kafka takes it soon. The owner must not append any more."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for partition in list(self._replays):
            self._withdraw(partition)
        await asyncio.gather(*[writer.close(CLOSED_WITHIN_S) for writer in self._writers.values()])

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a task of the group log failed", exc_info=error)
            self._fail(f"the group log failed: {error}")


def _nothing(partition: int) -> Iterator[Sequence[GroupRecord]]:
    """The records of a partition that was lost before its replay began."""
    yield from ()
    raise GroupLogError(ErrorCode.NOT_COORDINATOR, f"partition {partition} of the group log is lost")


class _Access:
    """What the replay of a partition needs, with the consequences for its writer."""

    def __init__(
        self, cluster: Cluster, topic: StateTopic, partition: int, writer: PartitionWriter, gateway_id: str
    ) -> None:
        self._cluster, self._topic, self._partition = cluster, topic, partition
        self._writer, self._gateway_id = writer, gateway_id
        self._reader = LogReader(cluster, topic, partition)

    async def fetch(self, offset: int) -> tuple[Buffer, int]:
        try:
            return await self._reader.fetch(offset)
        except StateTopicError as error:
            self._writer.lose(Loss.UNUSABLE, str(error))
            raise
        except LogTruncated as error:
            self._writer.lose(Loss.DIVERGED, str(error))
            raise

    async def fence(self, producer_ids: Sequence[int]) -> int:
        producer = self._writer.producer
        assert producer is not None, "it has claimed the partition"
        self._writer.expect_other_records()
        offsets = [
            await fence_producer(self._cluster, self._topic, self._partition, old_id, producer, self._gateway_id)
            for old_id in producer_ids
        ]
        return max(offsets)

    async def refuse_format(self, log_format: int) -> None:
        self._writer.lose(
            Loss.UNUSABLE,
            f"a newer gateway has written to {self._writer.name} in format {log_format}, and this one knows only "
            f"formats up to {LOG_FORMAT}; start the newer version",
        )

    def close(self) -> None:
        self._reader.close()
