"""A Kafka cluster in memory, with Kafka's rules for idempotent producers, and with faults.

As in Kafka, the requests of a connection are processed one after the other. Requests that were sent before a connection
was lost may still be processed, at any time.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.gateway.kafka.errors import KafkaUnreachable
from holdfast.wire.apis.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from holdfast.wire.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribedConfig,
)
from holdfast.wire.apis.fetch import FetchablePartitionResponse, FetchableTopicResponse, FetchRequest, FetchResponse
from holdfast.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from holdfast.wire.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from holdfast.wire.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast.wire.apis.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from holdfast.wire.batch import BatchHeader, Buffer, batches, stamp
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.records import decode_batch

REMEMBERED_BATCHES = 5
EPOCHS = (1 << 15) - 1
SEQUENCES = 1 << 31


@dataclass
class ProducerState:
    """What a leader knows of a producer."""

    epoch: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))
    """First and last sequence number, and the offset."""


@dataclass
class StoredBatch:
    header: BatchHeader
    data: bytes

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for record in decode_batch(self.data)]


class FakePartition:
    def __init__(self) -> None:
        self.leader = 0
        self.log: list[StoredBatch] = []
        self.start_offset = self.end_offset = 0
        self.producers: dict[int, ProducerState] = {}

    def append(self, data: Buffer) -> tuple[ErrorCode, int]:
        (batch,) = batches(data)
        header = batch.header
        first, last = header.base_sequence, (header.base_sequence + header.record_count - 1) % SEQUENCES
        state = self.producers.get(header.producer_id)
        if state is not None and header.producer_epoch < state.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if state is not None and header.producer_epoch > state.epoch:
            if first != 0:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            state = None
        elif state is not None:
            for one_first, one_last, offset in state.batches:
                if (one_first, one_last) == (first, last):
                    return ErrorCode.NONE, offset
            if first != (state.batches[-1][1] + 1) % SEQUENCES:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        if state is None:  # as Kafka: with any sequence number
            state = self.producers[header.producer_id] = ProducerState(header.producer_epoch)
        offset = self.write(data)
        state.batches.append((first, last, offset))
        return ErrorCode.NONE, offset

    def write(self, data: Buffer) -> int:
        """Without any check."""
        (batch,) = batches(bytearray(data))
        offset = self.end_offset
        stored = b"".join(map(bytes, stamp(batch.data, offset, 0)))
        (batch,) = batches(stored)
        self.log.append(StoredBatch(batch.header, stored))
        self.end_offset += batch.header.record_count
        return offset

    def forget_duplicates(self) -> None:
        """As in a clean restart: the snapshot of a producer has only its last batch."""
        for state in self.producers.values():
            state.batches = deque([state.batches[-1]], REMEMBERED_BATCHES)


@dataclass
class FakeTopic:
    name: str
    id: bytes
    partitions: list[FakePartition]
    configs: dict[str, str] = field(default_factory=dict)


@dataclass
class TransactionalId:
    producer_id: int
    epoch: int
    last_epoch: int = -1


class Faults:
    """No faults. A test replaces the methods that it needs."""

    def before(self, request: Any) -> ErrorCode | None:
        """An error instead of the request."""

    def after(self, request: Any) -> ErrorCode | None:
        """An error after the request was processed."""

    def loses_request(self) -> bool:
        return False

    def loses_response(self) -> bool:
        return False

    def processes_requests_of_lost_connections(self) -> bool:
        return False

    def delay_s(self) -> float:
        return 0.0


class FakeKafka:
    """Implements `gateway.state.ports.Cluster`."""

    def __init__(self, nodes: int = 1) -> None:
        self.node_ids = list(range(nodes))
        self.brokers = self
        self.topics: dict[str, FakeTopic] = {}
        self.transactional_ids: dict[str, TransactionalId] = {}
        self.faults = Faults()
        self.max_message_bytes: int | None = None
        self.connections: list[FakeConnection] = []
        self.requests: list[Any] = []
        self.is_down = False
        self.on_request: Callable[[Any], None] = lambda _request: None
        self._next_id = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def add_topic(self, name: str, partitions: int, configs: dict[str, str] | None = None) -> FakeTopic:
        made = FakeTopic(name, self.new_id().to_bytes(16, "big"), [FakePartition() for _ in range(partitions)])
        made.configs = {"cleanup.policy": "compact", "max.message.bytes": "1048588", **(configs or {})}
        self.topics[name] = made
        return made

    # -- the client ----------------------------------------------------------------------------------------------------

    async def ask(self, node_id: int, request: Any, *, version: int | None = None, timeout_s: float = 30.0) -> Any:
        connection = await self.open_connection(node_id)
        try:
            return await connection.ask(request)
        finally:
            connection.close()

    async def ask_any(self, request: Any, *, version: int | None = None, timeout_s: float = 30.0) -> Any:
        return await self.ask(self.node_ids[0], request)

    async def open_connection(self, node_id: int) -> FakeConnection:
        await asyncio.sleep(self.faults.delay_s())
        if self.is_down or node_id not in self.node_ids:
            raise KafkaUnreachable(f"no broker {node_id}")
        connection = FakeConnection(self, node_id)
        self.connections.append(connection)
        return connection

    async def leader_of(self, topic: str, partition: int, *, refresh: bool = False) -> int:
        await asyncio.sleep(self.faults.delay_s())
        if self.is_down or topic not in self.topics:
            raise KafkaUnreachable(f"no leader of {topic}-{partition}")
        return self.topics[topic].partitions[partition].leader

    async def coordinator_of(self, key: str, key_type: int, *, refresh: bool = False) -> int:
        await asyncio.sleep(self.faults.delay_s())
        if self.is_down:
            raise KafkaUnreachable("no coordinator")
        return self.node_ids[0]

    def start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def disconnect_all(self) -> None:
        for connection in list(self.connections):
            connection.lose()

    # -- the brokers ---------------------------------------------------------------------------------------------------

    def handle(self, node_id: int, request: Any) -> Any:
        self.requests.append(request)
        self.on_request(request)
        match request:
            case ProduceRequest():
                return self._produce(node_id, request)
            case InitProducerIdRequest():
                return self._init_producer_id(request)
            case FetchRequest():
                return self._fetch(node_id, request)
            case ListOffsetsRequest():
                return self._list_offsets(request)
            case MetadataRequest():
                return self._metadata(request)
            case DescribeConfigsRequest():
                return self._describe_configs(request)
            case CreateTopicsRequest():
                return self._create_topics(request)
        raise AssertionError(f"no handler of {request}")

    def _produce(self, node_id: int, request: ProduceRequest) -> ProduceResponse:
        (topic,) = request.topic_data
        (data,) = topic.partition_data
        assert request.acks == -1
        assert request.transactional_id is None
        assert data.records is not None
        code, offset = self._append(node_id, topic.name, topic.topic_id, data.index, data.records)
        if code is ErrorCode.NONE and (error := self.faults.after(request)) is not None:
            code, offset = error, -1
        answer = PartitionProduceResponse(data.index, code, offset)
        return ProduceResponse([TopicProduceResponse(topic.name, topic.topic_id, [answer])])

    def _append(self, node_id: int, name: str, topic_id: bytes, index: int, data: Buffer) -> tuple[ErrorCode, int]:
        topic = self.topics.get(name)
        if topic is None or topic.id != topic_id:
            return ErrorCode.UNKNOWN_TOPIC_ID, -1
        partition = topic.partitions[index]
        if partition.leader != node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        if (error := self.faults.before(data)) is not None:
            return error, -1
        if self.max_message_bytes is not None and len(data) > self.max_message_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        return partition.append(data)

    def _init_producer_id(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        if (error := self.faults.before(request)) is not None:
            return InitProducerIdResponse(error_code=error)
        name = request.transactional_id
        if name is None:
            return InitProducerIdResponse(producer_id=self.new_id(), producer_epoch=0)
        known = self.transactional_ids.get(name)
        if known is None:
            known = self.transactional_ids[name] = TransactionalId(self.new_id(), -1)
        elif request.producer_id != -1 and request.producer_id != known.producer_id:
            return InitProducerIdResponse(error_code=ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if request.producer_id == -1 or known.epoch == -1:
            known.epoch, known.last_epoch = known.epoch + 1, -1
        elif request.producer_epoch == known.epoch:
            known.epoch, known.last_epoch = known.epoch + 1, known.epoch
        elif request.producer_epoch != known.last_epoch:
            return InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED)
        if known.epoch >= EPOCHS:
            known.producer_id, known.epoch, known.last_epoch = self.new_id(), 0, -1
        return InitProducerIdResponse(producer_id=known.producer_id, producer_epoch=known.epoch)

    def _fetch(self, node_id: int, request: FetchRequest) -> FetchResponse:
        (topic,) = request.topics
        (wanted,) = topic.partitions
        known = self.topics.get(topic.topic)
        if known is None or known.id != topic.topic_id:
            answer = FetchablePartitionResponse(wanted.partition, ErrorCode.UNKNOWN_TOPIC_ID)
        else:
            answer = self._fetched(node_id, known.partitions[wanted.partition], wanted.fetch_offset, request.max_bytes)
            answer.partition_index = wanted.partition
        return FetchResponse(responses=[FetchableTopicResponse(topic.topic, topic.topic_id, [answer])])

    def _fetched(self, node_id: int, partition: FakePartition, offset: int, limit: int) -> FetchablePartitionResponse:
        if partition.leader != node_id:
            return FetchablePartitionResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if (error := self.faults.before(offset)) is not None:
            return FetchablePartitionResponse(error_code=error)
        if not partition.start_offset <= offset <= partition.end_offset:
            return FetchablePartitionResponse(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        found = b""
        for batch in partition.log:
            if batch.header.last_offset >= offset:
                found += batch.data
                if len(found) > limit:
                    break
        first = next((batch for batch in partition.log if batch.header.last_offset >= offset), None)
        cut = limit if first is None else max(limit, len(first.data))
        return FetchablePartitionResponse(records=found[:cut])

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        (topic,) = request.topics
        (wanted,) = topic.partitions
        partition = self.topics[topic.name].partitions[wanted.partition_index]
        offset = partition.start_offset if wanted.timestamp == -2 else partition.end_offset
        answer = ListOffsetsPartitionResponse(wanted.partition_index, ErrorCode.NONE, -1, offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(topic.name, [answer])])

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        assert request.topics is not None
        (wanted,) = request.topics
        topic = self.topics.get(wanted.name or "")
        if topic is None:
            missing = MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, wanted.name)
            return MetadataResponse(topics=[missing])
        found = [
            MetadataResponsePartition(ErrorCode.NONE, index, one.leader, replica_nodes=[one.leader])
            for index, one in enumerate(topic.partitions)
        ]
        return MetadataResponse(topics=[MetadataResponseTopic(ErrorCode.NONE, topic.name, topic.id, partitions=found)])

    def _describe_configs(self, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        (resource,) = request.resources
        topic = self.topics[resource.resource_name]
        configs = [DescribedConfig(name, value) for name, value in topic.configs.items()]
        result = DescribeConfigsResult(ErrorCode.NONE, None, resource.resource_type, topic.name, configs)
        return DescribeConfigsResponse(results=[result])

    def _create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        (topic,) = request.topics
        code = ErrorCode.TOPIC_ALREADY_EXISTS if topic.name in self.topics else ErrorCode.NONE
        if code is ErrorCode.NONE:
            configs = {config.name: config.value or "" for config in topic.configs}
            self.add_topic(topic.name, topic.num_partitions, configs)
        return CreateTopicsResponse(topics=[CreatableTopicResult(topic.name, error_code=code)])


class FakeConnection:
    """Implements `gateway.state.ports.Connection`."""

    def __init__(self, kafka: FakeKafka, node_id: int) -> None:
        self.kafka = kafka
        self.node_id = node_id
        self.is_closed = False
        self._requests: deque[tuple[Any, asyncio.Future[Any]]] = deque()
        self._lost_actions: list[Callable[[], None]] = []
        self._is_processing = False

    def send(self, request: Any, version: int | None = None, *, timeout_s: float = 30.0) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.is_closed:
            answer.set_exception(KafkaUnreachable("closed"))
            return answer
        self._requests.append((request, answer))
        if not self._is_processing:
            self._is_processing = True
            self.kafka.start(self._process())
        return answer

    async def ask(self, request: Any, *, version: int | None = None, timeout_s: float = 30.0) -> Any:
        return await self.send(request)

    def on_lost(self, action: Callable[[], None]) -> None:
        self._lost_actions.append(action)

    def close(self) -> None:
        self.lose()

    def lose(self) -> None:
        """All requests without an answer fail. The broker may process them nevertheless."""
        if self.is_closed:
            return
        self.is_closed = True
        self.kafka.connections.remove(self)
        for _, answer in self._requests:
            if not answer.done():
                answer.set_exception(KafkaUnreachable("lost"))
        for action in self._lost_actions:
            action()

    async def _process(self) -> None:
        faults = self.kafka.faults
        while self._requests:
            await asyncio.sleep(faults.delay_s())
            if self.is_closed and not faults.processes_requests_of_lost_connections():
                break
            if not self.is_closed and faults.loses_request():
                self.lose()
                continue
            request, answer = self._requests[0]
            response = self.kafka.handle(self.node_id, request)
            if not self.is_closed and faults.loses_response():
                self.lose()
            self._requests.popleft()
            if not answer.done():
                await asyncio.sleep(faults.delay_s())
                if not answer.done():
                    answer.set_result(response)
        self._is_processing = False


# -- time --------------------------------------------------------------------------------------------------------------


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes when nothing else happens. It must not wait for threads or sockets."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1_000.0
        select = self._selector.select  # type: ignore[attr-defined]  # there is no other way to wait for nothing

        def skip(timeout: float | None = None) -> Any:
            assert timeout is not None, "nothing is left to wait for: a deadlock"
            self.now_s += max(timeout, 0)
            return select(0)

        self._selector.select = skip  # type: ignore[attr-defined]

    def time(self) -> float:
        return self.now_s


def simulate(scenario: Any, limit_s: float = 100_000.0) -> Any:
    """Runs the coroutine in simulated time."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(asyncio.wait_for(scenario, limit_s))


class RandomFaults(Faults):
    """Faults that happen with certain probabilities, until `stop`."""

    def __init__(self, seed: int, *, rate: float = 0.05) -> None:
        self.random = random.Random(seed)
        self.rate = rate
        self.is_on = True

    def stop(self) -> None:
        self.is_on = False

    def _happens(self, factor: float = 1.0) -> bool:
        return self.is_on and self.random.random() < self.rate * factor

    def before(self, request: Any) -> ErrorCode | None:
        if not self._happens():
            return None
        if isinstance(request, InitProducerIdRequest):
            codes = [ErrorCode.NOT_COORDINATOR, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.REQUEST_TIMED_OUT]
        else:
            codes = [
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.LEADER_NOT_AVAILABLE,
                ErrorCode.NOT_ENOUGH_REPLICAS,
                ErrorCode.KAFKA_STORAGE_ERROR,
            ]
        return self.random.choice(codes)

    def after(self, request: Any) -> ErrorCode | None:
        codes = [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT]
        return self.random.choice(codes) if self._happens(0.5) else None

    def loses_request(self) -> bool:
        return self._happens()

    def loses_response(self) -> bool:
        return self._happens()

    def processes_requests_of_lost_connections(self) -> bool:
        return self.random.random() < 0.5

    def delay_s(self) -> float:
        return self.random.choice([0.0, 0.0, 0.001, 0.005, 0.02, 0.1])
