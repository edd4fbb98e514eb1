"""The gateway's own requests with a real coordinator, a group log in memory, and a Kafka that is a table of answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, cast

from holdfast.broker.api.request import ClientSession
from holdfast.broker.clock import PauseAwareClock
from holdfast.broker.config.broker import BrokerConfig
from holdfast.broker.groups.group_log import GroupLogError, PartitionOwner
from holdfast.broker.groups.service import GroupCoordinatorService
from holdfast.broker.util.shielded_tasks import ShieldedTasks
from holdfast.broker.util.slices import SliceScheduler
from holdfast.client.addresses import Address
from holdfast.coordinator.events.group_event import GroupEvent
from holdfast.gateway.group_names import NameInUse
from holdfast.gateway.kafka.errors import KafkaUnreachable
from holdfast.gateway.kafka_offsets import CommittedOffset
from holdfast.gateway.own_groups import ObservedEventLog, OwnGroups
from holdfast.gateway.requests.context import GatewayServices
from holdfast.gateway.requests.local_requests import LocalRequests
from holdfast.gateway.requests.rights import KafkaAuthorizer
from holdfast.gateway.topic_mirror import MirroredTopic
from holdfast.types import TopicPartition
from holdfast.wire.apis.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from holdfast.wire.apis.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from holdfast.wire.apis.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResourceResponse,
)
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.group_records import GroupRecord, OffsetCommitValue
from holdfast.wire.headers import decode_response, encode_request

TOPIC_ID = bytes(range(16))
NODES = (1, 2, 3)


class MemoryGroupLog:
    partition_count = 4
    is_created = True

    def __init__(self) -> None:
        self.failures = 0
        """So many appends fail."""
        self.paused: list[asyncio.Future[None]] = []
        self._is_paused = False

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        for stored in self.paused:
            stored.set_result(None)
        self.paused.clear()

    async def create_if_missing(self) -> None: ...

    def start(self, owner: PartitionOwner) -> None:
        owner.partitions_gained(range(self.partition_count))

    def append(self, group_id: str, records: Sequence[GroupRecord], now_ms: int) -> asyncio.Future[None]:
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.failures:
            self.failures -= 1
            stored.set_exception(GroupLogError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "Kafka is away"))
        elif self._is_paused:
            self.paused.append(stored)
        else:
            stored.set_result(None)
        return stored

    def replay(self, partition: int) -> Iterator[Sequence[GroupRecord]]:
        return iter(())

    def replay_failed(self, partition: int, reason: str) -> bool:
        return False


@dataclass
class FakeMirror:
    names: dict[str, MirroredTopic] = field(default_factory=dict)
    later: dict[str, MirroredTopic] = field(default_factory=dict)
    """What a refresh finds."""
    refreshes: int = 0

    def get(self, name: str) -> MirroredTopic | None:
        return self.names.get(name)

    def by_id(self, topic_id: bytes) -> MirroredTopic | None:
        return next((one for one in self.names.values() if one.id == topic_id), None)

    def partition_count(self, name: str) -> int:
        return len(self.names[name].partitions) if name in self.names else 0

    async def refresh(self) -> None:
        self.refreshes += 1
        self.names.update(self.later)


class FakeBrokers:
    is_transparent = True
    node_ids = NODES

    def advertised(self, node_id: int) -> Address:
        return Address("gw.test", 9093 + node_id)


@dataclass
class FakeKafka:
    """Kafka's own coordinator."""

    members: dict[str, int] = field(default_factory=dict)
    """Groups with members there."""
    offsets: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    written: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    brokers: FakeBrokers = field(default_factory=FakeBrokers)
    asked: list[Any] = field(default_factory=list)
    reads: int = 0
    adoptions: int = 0
    metadata: str = ""
    failures: int = 0
    """So many adoptions fail after the name is held."""

    async def coordinator_of(self, key: str, key_type: int, *, refresh: bool = False) -> int:
        return NODES[0]

    async def ask(self, node_id: int, request: Any, **_: Any) -> Any:
        self.asked.append(request)
        if isinstance(request, DescribeGroupsRequest):
            return DescribeGroupsResponse(groups=[self._described(name) for name in request.groups])
        for name in request.groups_names:
            self.offsets.pop(name, None)
        return DeleteGroupsResponse(results=[DeletableGroupResult(name) for name in request.groups_names])

    def _described(self, name: str) -> DescribedGroup:
        if name in self.members:
            return DescribedGroup(group_id=name, group_state="Stable", protocol_type="consumer")
        if name in self.held:
            return DescribedGroup(group_id=name, group_state="Stable", protocol_type="holdfast")
        state = "Empty" if name in self.offsets else "Dead"
        return DescribedGroup(group_id=name, group_state=state, protocol_type="consumer" if state == "Empty" else "")

    # -- names and adoption --------------------------------------------------------------------------------------------

    async def hold(self, group_id: str) -> None:
        if group_id in self.members:
            raise NameInUse(group_id, ("consumer-1",))
        await asyncio.sleep(0)
        self.held.add(group_id)

    async def release(self, group_id: str) -> None:
        self.held.discard(group_id)

    def is_held(self, group_id: str) -> bool:
        return group_id in self.held

    async def read(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        self.reads += 1
        await asyncio.sleep(0)
        return {where: CommittedOffset(offset, -1, "") for where, offset in self.offsets.get(group_id, {}).items()}

    async def adopt(self, group_id: str) -> Mapping[TopicPartition, OffsetCommitValue]:
        await self.hold(group_id)
        if self.failures:
            self.failures -= 1
            raise KafkaUnreachable("the connection was lost")
        self.adoptions += 1
        found = self.offsets.get(group_id, {})
        return {where: OffsetCommitValue(offset, -1, self.metadata, 1) for where, offset in found.items()}


class FakeClient:
    """A client with its connection to Kafka: `answers` says what Kafka responds."""

    def __init__(self, authorizer: KafkaAuthorizer, node_id: int | None = None) -> None:
        listener = cast(Any, None)
        self.session = ClientSession(listener, authorizer, lambda: None)
        self.session.client_host = "192.0.2.7"
        self.node_id = node_id
        self.asked: list[Any] = []
        self.answers: Callable[[Any], Any] = allowed
        self.hangs = False

    async def ask(self, request: Any, version: int) -> Any:
        self.asked.append(request)
        await asyncio.sleep(3_600 if self.hangs else 0)
        return self.answers(request)


def allowed(request: Any) -> Any:
    """Kafka without an authorizer, and without any group: the right exists, the group does not."""
    response = type(request).API.response()
    if hasattr(request, "groups") and hasattr(response, "groups"):
        response.groups = [DescribedGroup(group_id=name, group_state="Dead") for name in request.groups]
    if isinstance(request, IncrementalAlterConfigsRequest):
        response.responses = [
            IncrementalAlterConfigsResourceResponse(resource_type=one.resource_type, resource_name=one.resource_name)
            for one in request.resources
        ]
    if hasattr(request, "include_cluster_authorized_operations"):
        response.cluster_authorized_operations = -1
    for topic in getattr(request, "topics", None) or ():
        if hasattr(response, "topics") and hasattr(request, "allow_auto_topic_creation"):
            from holdfast.wire.apis.metadata import MetadataResponseTopic

            found = MetadataResponseTopic(name=topic.name)
            found.topic_authorized_operations = -1
            response.topics.append(found)
    return response


class EventList:
    def __init__(self) -> None:
        self.events: list[GroupEvent] = []

    def write(self, events: list[GroupEvent], now_ms: int) -> None:
        self.events += events


class RequestsHarness:
    """Use it in `async with`."""

    def __init__(self) -> None:
        self.kafka = FakeKafka()
        self.mirror = FakeMirror({"t": MirroredTopic("t", TOPIC_ID, range(4))})
        self.now = 0.0
        self.authorizer = KafkaAuthorizer(lambda: self.now)
        self.event_log = EventList()
        self.group_log = MemoryGroupLog()

    async def __aenter__(self) -> Self:
        self.clock = PauseAwareClock(asyncio.get_running_loop())
        slices, tasks = SliceScheduler(), ShieldedTasks()
        self.groups = GroupCoordinatorService(
            BrokerConfig.of({}),
            self.group_log,
            ObservedEventLog(self.event_log, lambda group_id: self.own_groups.deleted(group_id)),
            self.clock,
            partition_count=self.mirror.partition_count,
            slices=slices,
            tasks=tasks,
        )
        fake: Any = self.kafka
        self.own_groups = OwnGroups(self.groups, fake, fake, fake, fake, self.event_log, lambda: self.now)
        services = GatewayServices(
            config=BrokerConfig.of({}),
            topics=cast(Any, self.mirror),
            groups=self.groups,
            slices=slices,
            cluster=fake,
            own_groups=self.own_groups,
        )
        self.requests = LocalRequests(services, self.authorizer)
        self.clock.start()
        self.groups.start()
        while self.groups.coordinator.queries.is_anything_loading:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.001)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.own_groups.stop()
        self.clock.stop()
        await self.groups.stop()

    def client(self, principal: str | None = None, node_id: int | None = None) -> FakeClient:
        client = FakeClient(self.authorizer, node_id)
        if principal is not None:
            client.session.authenticated(principal)
        return client

    def send(self, client: FakeClient, request: Any, version: int) -> bytes | Coroutine[Any, Any, bytes]:
        return self.requests.answer(encode_request(request, version, 7, "app")[4:], client)

    async def ask(self, client: FakeClient, request: Any, version: int) -> Any:
        answer = self.send(client, request, version)
        frame = await answer if isinstance(answer, Coroutine) else answer
        assert int.from_bytes(frame[:4]) == len(frame) - 4
        correlation_id, response = decode_response(type(request).API, version, frame[4:])
        assert correlation_id == 7
        return response
