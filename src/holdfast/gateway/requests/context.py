"""What the gateway's own handlers get: the services of groups, and the client with its connection to Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.broker.api.request import RequestContext
from holdfast.broker.api.services import CommittedOffsets
from holdfast.broker.clock import wall_clock_ms
from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.groups.service import GroupCoordinatorService
from holdfast.broker.util.slices import SliceScheduler
from holdfast.gateway.brokers import BrokerDirectory
from holdfast.gateway.kafka.cluster import KafkaCluster
from holdfast.gateway.own_groups import OwnGroups
from holdfast.gateway.router.ports import RoutedClient
from holdfast.gateway.topic_mirror import TopicMirror
from holdfast.wire.error_codes import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GatewayServices:
    """The services that handlers of group requests use (`broker.api.services.GroupServices`), and the gateway's."""

    config: BrokerConfig
    topics: TopicMirror
    groups: GroupCoordinatorService
    slices: SliceScheduler
    cluster: KafkaCluster
    own_groups: OwnGroups
    now_ms: Callable[[], int] = wall_clock_ms
    config_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """The configs of groups are altered one request at a time."""

    async def committed(self, group_id: str) -> tuple[ErrorCode, CommittedOffsets]:
        return await self.own_groups.committed(group_id)

    @property
    def brokers(self) -> BrokerDirectory:
        return self.cluster.brokers


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedContext(RequestContext):
    client: RoutedClient
