"""The services that handlers use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.broker.api.rejected_transactions import RejectedTransactionsLog
from holdfast.broker.authorization.authorizer import Authorizer
from holdfast.broker.authorization.user_changes import UserChanges
from holdfast.broker.clock import wall_clock_ms
from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.config.dynamic import DynamicBrokerConfig
from holdfast.broker.groups.service import GroupCoordinatorService
from holdfast.broker.storage.disk_health import DiskHealth
from holdfast.broker.storage.flusher import Flusher
from holdfast.broker.storage.producer_ids import ProducerIds
from holdfast.broker.storage.topics import Topics
from holdfast.broker.util.shielded_tasks import ShieldedTasks
from holdfast.broker.util.slices import SliceScheduler
from holdfast.log import DataDirectory
from holdfast.types import TopicPartition
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import OffsetCommitValue

MAX_DECOMPRESSING = 2
"""The number of large record batches that are decompressed at a time. Each takes up to 64 MiB."""


CommittedOffsets = Mapping[TopicPartition, OffsetCommitValue]


class TopicInfo(Protocol):
    """What the handlers of group requests know of a topic."""

    @property
    def name(self) -> str: ...

    @property
    def id(self) -> bytes: ...

    @property
    def partitions(self) -> Sized:
        """Their number counts."""


class TopicDirectory(Protocol):
    """The topics whose offsets can be committed: those of this broker, or those of the cluster behind a gateway."""

    def get(self, name: str) -> TopicInfo | None: ...

    def by_id(self, topic_id: bytes) -> TopicInfo | None: ...


class GroupServices(Protocol):
    """The services that the handlers of group requests use. A gateway has only these."""

    @property
    def topics(self) -> TopicDirectory: ...

    @property
    def groups(self) -> GroupCoordinatorService: ...

    @property
    def slices(self) -> SliceScheduler: ...

    @property
    def now_ms(self) -> Callable[[], int]: ...

    async def committed(self, group_id: str) -> tuple[ErrorCode, CommittedOffsets]:
        """The committed offsets of a group."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Services:
    """All services of a broker."""

    dynamic_config: DynamicBrokerConfig
    data: DataDirectory
    topics: Topics
    producer_ids: ProducerIds
    flusher: Flusher
    disk_health: DiskHealth
    groups: GroupCoordinatorService
    user_changes: UserChanges | None
    """None without a users file."""
    tasks: ShieldedTasks
    slices: SliceScheduler
    now_ms: Callable[[], int] = wall_clock_ms
    """Wall-clock time for timestamps that are stored or displayed, never for deadlines."""
    rejected_transactions: RejectedTransactionsLog = field(default_factory=RejectedTransactionsLog)
    decompression_slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_DECOMPRESSING))

    @property
    def config(self) -> BrokerConfig:
        """The current configuration. Dynamic configs can change while the broker runs."""
        return self.dynamic_config.current

    @property
    def authorizer(self) -> Authorizer | None:
        return None if self.user_changes is None else self.user_changes.authorizer

    async def committed(self, group_id: str) -> tuple[ErrorCode, CommittedOffsets]:
        return await self.groups.committed(group_id)

    @property
    def config_lock(self) -> asyncio.Lock:
        """Configs are altered one request at a time."""
        return self.topics.config_lock

    @property
    def node_id(self) -> int:
        return self.config.node_id

    @property
    def rack(self) -> str | None:
        return self.config.broker_rack

    @property
    def cluster_id(self) -> str:
        return self.data.cluster_id
