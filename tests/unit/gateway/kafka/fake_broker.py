"""Brokers that answer from a table, on the event loop of the test."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from holdfast.client.addresses import Address
from holdfast.wire.apis.api_versions import API_VERSIONS, ApiVersion, ApiVersionsResponse
from holdfast.wire.apis.describe_configs import DESCRIBE_CONFIGS, DescribeConfigsResponse, DescribeConfigsResult
from holdfast.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorResponse, FoundCoordinator
from holdfast.wire.apis.metadata import (
    METADATA,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast.wire.error_codes import ErrorCode
from holdfast.wire.headers import decode_request_header, encode_response_parts
from holdfast.wire.message import APIS, Api, decode

HOST = "127.0.0.1"


class Hangup(Exception):
    """Raised by an answer to close the connection."""


@dataclass(frozen=True)
class Request:
    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    message: Any


Answer = Callable[[Request], Any]
"""Returns the response, or bytes that are sent as they are, or None to say nothing."""


def framed(request: Request, response: Any, correlation_id: int | None = None) -> bytes:
    number = request.correlation_id if correlation_id is None else correlation_id
    parts: list[Any] = encode_response_parts(response, request.version, number)
    return b"".join(parts)


def all_versions(_: Request, **limits: tuple[int, int]) -> ApiVersionsResponse:
    """Everything that Holdfast knows, within the limits given by the name of an API."""
    return ApiVersionsResponse(
        api_keys=[ApiVersion(key, *limits.get(api.name, api.versions)) for key, api in APIS.items()]
    )


class FakeBroker:
    def __init__(self, *answers: tuple[Api, Answer], tls: ssl.SSLContext | None = None) -> None:
        self._answers: dict[int, Answer] = {API_VERSIONS.key: all_versions}
        for api, answer in answers:
            self.answer(api, answer)
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = Address(HOST, 0)
        self.requests: list[Request] = []
        self.is_asked = asyncio.Event()
        self.connections = 0

    def answer(self, api: Api, answer: Answer) -> None:
        self._answers[api.key] = answer

    def limit(self, api: Api, lowest: int, highest: int) -> None:
        """Supports the API in these versions only."""
        self.answer(API_VERSIONS, lambda request: all_versions(request, **{api.name: (lowest, highest)}))

    def asked(self, api: Api) -> int:
        return sum(request.api is api for request in self.requests)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accepted, HOST, self.address.port, ssl=self._tls)
        self.address = Address(*self._server.sockets[0].getsockname()[:2])

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        self.hang_up()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def hang_up(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            with contextlib.suppress(OSError, EOFError, Hangup):
                while True:
                    (size,) = struct.unpack(">i", await reader.readexactly(4))
                    answer = self._respond(_parsed(await reader.readexactly(size)))
                    if answer:
                        writer.write(answer)
                        await writer.drain()
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    def _respond(self, request: Request) -> bytes:
        self.requests.append(request)
        self.is_asked.set()
        response = self._answers[request.api.key](request)
        if response is None:
            return b""
        return response if isinstance(response, bytes) else framed(request, response)


def _parsed(frame: bytes) -> Request:
    api_key, version, correlation_id, client_id, position = decode_request_header(frame)
    api = APIS[api_key]
    return Request(api, version, correlation_id, client_id, decode(api.request, version, frame, position))


@dataclass
class FakeCluster:
    """Brokers that know each other. What they say can be changed at any time."""

    cluster_id: str = "cluster-a"
    advertised: dict[int, Address] = field(default_factory=dict)
    """The brokers that Metadata lists, with these addresses."""
    leaders: dict[str, list[int]] = field(default_factory=dict)
    coordinators: dict[str, int | ErrorCode] = field(default_factory=dict)
    may_describe_configs: bool = True
    nodes: dict[int, FakeBroker] = field(default_factory=dict)

    async def add(self, *node_ids: int) -> None:
        """New brokers, which advertise their own addresses."""
        for node_id in node_ids:
            broker = self.nodes[node_id] = FakeBroker()
            self.assign(node_id, broker)
            await broker.start()
            self.advertised[node_id] = broker.address

    def assign(self, node_id: int, broker: FakeBroker) -> None:
        """Lets this broker, at its address, be broker `node_id`."""
        self.nodes[node_id] = broker
        broker.answer(METADATA, self._metadata)
        broker.answer(FIND_COORDINATOR, self._coordinator)
        broker.answer(DESCRIBE_CONFIGS, lambda request: self._configs(node_id, request))

    async def remove(self, node_id: int) -> None:
        self.advertised.pop(node_id, None)
        await self.nodes.pop(node_id).stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for broker in self.nodes.values():
            await broker.stop()

    @property
    def bootstrap(self) -> str:
        return ",".join(str(broker.address) for broker in self.nodes.values())

    def asked(self, api: Api) -> int:
        return sum(broker.asked(api) for broker in self.nodes.values())

    def _metadata(self, request: Request) -> MetadataResponse:
        brokers = [MetadataResponseBroker(node_id, *address) for node_id, address in self.advertised.items()]
        topics = []
        for one in request.message.topics or ():
            partitions = [
                MetadataResponsePartition(partition_index=number, leader_id=leader)
                for number, leader in enumerate(self.leaders.get(one.name, ()))
            ]
            code = ErrorCode.NONE if one.name in self.leaders else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topics.append(MetadataResponseTopic(code, one.name, partitions=partitions))
        return MetadataResponse(brokers=brokers, cluster_id=self.cluster_id, topics=topics)

    def _coordinator(self, request: Request) -> FindCoordinatorResponse:
        keys = request.message.coordinator_keys or [request.message.key]
        found = []
        for key in keys:
            known = self.coordinators.get(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if isinstance(known, ErrorCode):
                found.append(FoundCoordinator(key, -1, "", -1, known, None))
            else:
                found.append(FoundCoordinator(key, known, *self.advertised[known], ErrorCode.NONE, None))
        if request.version < 4:
            one = found[0]
            return FindCoordinatorResponse(error_code=one.error_code, node_id=one.node_id, host=one.host, port=one.port)
        return FindCoordinatorResponse(coordinators=found)

    def _configs(self, node_id: int, request: Request) -> DescribeConfigsResponse:
        results = []
        for resource in request.message.resources:
            code = ErrorCode.NONE if resource.resource_name == str(node_id) else ErrorCode.INVALID_REQUEST
            if not self.may_describe_configs:
                code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            results.append(DescribeConfigsResult(code, None, resource.resource_type, resource.resource_name, []))
        return DescribeConfigsResponse(results=results)
